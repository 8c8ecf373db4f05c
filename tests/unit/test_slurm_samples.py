"""Every captured situation of Slurm 22.05 is read as the golden file says: with accounting and without, with daemons
that are down, jobs that it has forgotten, a node that is down.

Read the difference, then bless: KOALA_BLESS=1 pytest tests/unit/test_slurm_samples.py
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.protocol import Site
from koalapy_adapters.errors import BatchError, Result

HERE = Path(__file__).parent
SAMPLES = HERE / "samples" / "slurm"
GOLDEN = HERE.parent / "golden" / "slurm-readings.json"
SITUATIONS = ("acct", "ctld_down", "dbd_down", "noacct", "noacct_purged", "node_down")
WHOSE = {"transient", "site", "request", "ours"}
SITE = Site(user="koala")

Reader = Callable[[Result], Any]


class Sample(NamedTuple):
    """A command, and what became of it. Output that was empty has no file."""

    name: str
    result: Result
    read: Reader


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def samples(situation: str) -> list[Sample]:
    directory, found = SAMPLES / situation, []
    for line in text(directory / "index.tsv").splitlines():
        name, status, command = line.rstrip(";").split("\t")
        argv = argv_of(command)
        output, error = (text(directory / f"{name}.{ending}") for ending in ("out", "err"))
        result = Result(argv, int(status.removeprefix("rc=")), output, error)
        found.append(Sample(f"{situation}/{name}", result, reader(argv)))
    return found


def argv_of(command: str) -> list[str]:
    """The first command of Slurm's in it; some were run by a shell, or under a time-out."""
    argvs = [part.removeprefix("timeout 60 ").removeprefix("sh -c ").split() for part in command.split("; ")]
    return next((argv for argv in argvs if argv[0].startswith("s")), argvs[0])


def reader(argv: list[str]) -> Reader:
    """How the dialect reads this command's answer; the answer of one that it never asks, like one that it does."""
    readers: dict[str, Reader] = {
        "squeue": slurm.parse_status,
        "sinfo": nodes,
        "sacct": history,
        "scancel": slurm.parse_cancel,
        "scontrol": slurm.parse_hold if "hold" in argv else slurm.parse_describe,
    }
    submits = "sbatch" in argv or "srun" in argv
    return slurm.parse_submit if submits else readers.get(argv[0], slurm.parse_describe)


def nodes(result: Result) -> Any:
    nothing = Result([], 0, "", "")
    return slurm.parse_capacity(SITE, [result, nothing, nothing])


def history(result: Result) -> Any:
    argv = slurm.history_argv(SITE, "tlimit", "")
    assert argv is not None
    return slurm.parse_history(result._replace(argv=argv), "tlimit")


ALL = [sample for situation in SITUATIONS for sample in samples(situation)]


def reading(sample: Sample) -> Any:
    try:
        return plain(sample.read(sample.result))
    except BatchError as error:
        return {"refused": type(error).__name__, "code": error.code, "message": error.message, "words": words(error)}


def words(error: BatchError) -> str:
    return error.result.words[:100] if error.result is not None else ""


def plain(value: Any) -> Any:
    """As JSON has it, but for what is as always."""
    if hasattr(value, "_asdict"):
        return {key: plain(each) for key, each in value._asdict().items() if each not in ("", None, [], {})}
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def test_every_sample_is_read_or_refused_as_expected() -> None:
    readings = json.loads(json.dumps({sample.name: reading(sample) for sample in ALL}))
    if os.environ.get("KOALA_BLESS"):
        GOLDEN.write_text(json.dumps(readings, indent=1, ensure_ascii=False) + "\n")
    assert readings == json.loads(GOLDEN.read_text())


def test_there_are_all_samples() -> None:
    listed = {sample.name for sample in ALL}
    files = {f"{each}/{path.stem}" for each in SITUATIONS for path in (SAMPLES / each).glob("*.[oe][ur][tr]")}
    assert files <= listed
    assert len(ALL) == 220


def refusal(sample: Sample) -> BatchError | None:
    try:
        sample.read(sample.result)
    except BatchError as error:
        return error
    return None


REFUSED = [(sample, error) for sample, error in ((sample, refusal(sample)) for sample in ALL) if error is not None]


@pytest.mark.parametrize(("sample", "error"), REFUSED, ids=[sample.name for sample, _ in REFUSED])
def test_a_refusal_says_whose_move_it_is_and_what_is_wrong(sample: Sample, error: BatchError) -> None:
    assert error.whose in WHOSE
    assert error.message.endswith(".")
    assert "\n" not in error.message
    assert error.advice.endswith(".")
    assert not sample.result.stdout + sample.result.stderr or words(error)


def test_a_squeue_in_json_with_errors_is_no_list_of_no_jobs() -> None:
    """It exits 0 with the controller down."""
    (sample,) = (each for each in ALL if each.name == "ctld_down/ctld_down_squeue___json")
    assert sample.result.exit_status == 0
    error = refusal(sample)
    assert error is not None
    assert error.code == "unreadable_answer"
