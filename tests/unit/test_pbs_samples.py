"""Every captured situation of OpenPBS 23.06, and of Slurm in Torque's clothes, is read as the golden file says.

Read the difference, then bless: KOALA_BLESS=1 pytest tests/unit/test_pbs_samples.py
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from koalapy_adapters.batch import pbs, torque
from koalapy_adapters.batch.protocol import Site
from koalapy_adapters.errors import BatchError, Result

HERE = Path(__file__).parent
SAMPLES = HERE / "samples"
GOLDEN = HERE.parent / "golden"
WHOSE = {"transient", "site", "request", "ours"}

Reader = Callable[[Result], Any]


class Sample(NamedTuple):
    """A command, and what became of it. Output that was empty has no file."""

    name: str
    result: Result
    read: Reader


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def openpbs() -> list[Sample]:
    directory = SAMPLES / "pbs"
    found = []
    for line in text(directory / "INDEX.txt").splitlines():
        match = re.match(r"(\S+) +rc=(\d+) +(.*?)(?:   # stderr: .*)?$", line)
        assert match, line
        name, status, command = match.groups()
        argv = command.split()
        result = Result(argv, int(status), text(directory / name), text(directory / f"{name}.stderr"))
        found.append(Sample(f"pbs/{name}", result, openpbs_reader(argv)))
    return found


def openpbs_reader(argv: list[str]) -> Reader:
    """How the dialect reads this command's answer; the answer of one that it never asks, like one that it does."""
    command, options = argv[0], set(argv[1:])
    if command == "qsub" or "|" in argv:
        return pbs.parse_submit
    if command == "qstat" and "--version" in options:
        return torque.parse_describe
    if command == "qstat" and "-B" in options:
        return pbs.parse_describe
    if command == "qstat" and "-Q" in options:
        return lambda result: openpbs_capacity(queues=result)
    if command == "pbsnodes":
        return lambda result: openpbs_capacity(nodes=result)
    return pbs.parse_status if command == "qstat" else pbs.parse_cancel


def openpbs_capacity(nodes: Result | None = None, queues: Result | None = None) -> Any:
    nodes = nodes or whole("pbsnodes-a.json")
    queues = queues or whole("qstat-Q-f.json")
    site = Site(user="kuser")
    return pbs.parse_capacity(site, [nodes, whole("qstat-f-noargs.json"), queues, whole("qstat-B-f.json")])


def whole(name: str) -> Result:
    return Result(["qstat"], 0, text(SAMPLES / "pbs" / name), "")


def slurms_torque() -> list[Sample]:
    directory = SAMPLES / "torque"
    found = []
    for line in text(directory / "index.tsv").splitlines():
        name, status, command = line.rstrip(";").split("\t")
        argv = command.split()
        result = Result(
            argv, int(status.partition("=")[2]), text(directory / f"{name}.out"), text(directory / f"{name}.err")
        )
        found.append(Sample(f"torque/{name}", result, torque_reader(argv)))
    return found


def torque_reader(argv: list[str]) -> Reader:
    command, options = argv[0], set(argv[1:])
    if command == "qsub" or "|" in argv:
        return torque.parse_submit
    if command == "qstat" and "-Q" in options:
        return lambda result: torque_capacity(queues=result)
    if command == "pbsnodes":
        return lambda result: torque_capacity(nodes=result)
    return torque.parse_cancel if command.startswith("q") and command != "qstat" else torque.parse_status


def torque_capacity(nodes: Result | None = None, queues: Result | None = None) -> Any:
    directory = SAMPLES / "torque"
    jobs = Result(["sh"], 0, text(directory / "qstat_f.out"), "")
    nodes = nodes or Result(["pbsnodes"], 0, text(directory / "pbsnodes_a.out"), "")
    queues = queues or Result(["qstat"], 0, text(directory / "qstat_Qf.out"), "")
    return torque.parse_capacity(Site(user="koala", queue="batch"), [nodes, jobs, queues])


ALL = [*openpbs(), *slurms_torque()]


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


@pytest.mark.parametrize("family", ["pbs", "torque"])
def test_every_sample_is_read_or_refused_as_expected(family: str) -> None:
    golden = GOLDEN / f"{family}-readings.json"
    of_family = [sample for sample in ALL if sample.name.startswith(f"{family}/")]
    readings = json.loads(json.dumps({sample.name: reading(sample) for sample in of_family}))
    if os.environ.get("KOALA_BLESS"):
        golden.write_text(json.dumps(readings, indent=1, ensure_ascii=False) + "\n")
    assert readings == json.loads(golden.read_text())


def test_there_are_all_samples() -> None:
    listed = {sample.name.partition("/")[2].partition(".")[0] for sample in ALL}
    files = {path.name.partition(".")[0] for family in ("pbs", "torque") for path in (SAMPLES / family).iterdir()}
    assert len(ALL) == 188
    assert files - listed == {"INDEX", "index", "job-environment"}


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
