"""Captured output of real batch systems, and how a dialect reads it, held against golden files.

Read the difference, then bless: KOALA_BLESS=1 pytest tests/unit/batch/test_pbs_samples.py, or another such file.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from koalapy_adapters.errors import BatchError, Result

UNIT = Path(__file__).parent.parent / "unit"
SAMPLES = UNIT / "samples"
GOLDEN = UNIT.parent / "golden"
WHOSE = {"transient", "cluster", "request", "ours"}

Reader = Callable[[Result], Any]


class Sample(NamedTuple):
    """A command, and what became of it. Output that was empty has no file."""

    name: str
    result: Result
    read: Reader


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def refusal(sample: Sample) -> BatchError | None:
    try:
        sample.read(sample.result)
    except BatchError as error:
        return error
    return None


def refused(samples: Iterable[Sample]) -> list[tuple[Sample, BatchError]]:
    return [(sample, error) for sample in samples if (error := refusal(sample)) is not None]


def are_as_blessed(samples: Iterable[Sample], golden: Path) -> bool:
    """Raises AssertionError with the difference."""
    readings = json.loads(json.dumps({sample.name: _reading(sample) for sample in samples}))
    if os.environ.get("KOALA_BLESS"):
        golden.write_text(json.dumps(readings, indent=1, ensure_ascii=False) + "\n")
    blessed = json.loads(golden.read_text())
    assert readings == blessed, [name for name in {*readings, *blessed} if readings.get(name) != blessed.get(name)]
    return True


def names_whose_move_it_is(sample: Sample, error: BatchError) -> bool:
    """In one sentence, with what to do, and with the batch system's own words if it had any."""
    said = sample.result.stdout + sample.result.stderr
    sentences = error.message.endswith(".") and "\n" not in error.message and error.advice.endswith(".")
    return error.whose in WHOSE and sentences and (not said or bool(_words(error)))


def _reading(sample: Sample) -> Any:
    error = refusal(sample)
    if error is None:
        return _plain(sample.read(sample.result))
    said = {"code": error.code, "message": error.message, "words": _words(error)}
    return {"refused": type(error).__name__, **said}


def _words(error: BatchError) -> str:
    return error.result.words[:100] if error.result is not None else ""


def _plain(value: Any) -> Any:
    """As JSON has it, but for what is as always."""
    if hasattr(value, "_asdict"):
        return {key: _plain(each) for key, each in value._asdict().items() if each not in ("", None, [], {})}
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value
