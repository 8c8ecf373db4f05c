"""Every captured situation of OpenPBS 23.06, and of Slurm in Torque's clothes, is read as in the golden file."""

import re
from typing import Any

import pytest
import readings
from koalapy_adapters.batch import pbs, torque
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import BatchError, Result
from readings import Reader, Sample, text

HERE = readings.SAMPLES


def openpbs() -> list[Sample]:
    directory = HERE / "pbs"
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
    cluster = BatchSettings(user="kuser")
    return pbs.parse_capacity(cluster, [nodes, whole("qstat-f-noargs.json"), queues, whole("qstat-B-f.json")])


def whole(name: str) -> Result:
    return Result(["qstat"], 0, text(HERE / "pbs" / name), "")


def slurms_torque() -> list[Sample]:
    directory = HERE / "torque"
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
    directory = HERE / "torque"
    jobs = Result(["sh"], 0, text(directory / "qstat_f.out"), "")
    nodes = nodes or Result(["pbsnodes"], 0, text(directory / "pbsnodes_a.out"), "")
    queues = queues or Result(["qstat"], 0, text(directory / "qstat_Qf.out"), "")
    return torque.parse_capacity(
        BatchSettings(user="koala", queue="batch"), [nodes, jobs, queues, Result(["qstat"], 1, "", "")]
    )


ALL = [*openpbs(), *slurms_torque()]


@pytest.mark.parametrize("family", ["pbs", "torque"])
def test_every_sample_is_read_or_refused_as_expected(family: str) -> None:
    of_family = [sample for sample in ALL if sample.name.startswith(f"{family}/")]
    assert readings.are_as_blessed(of_family, readings.GOLDEN / f"{family}-readings.json")


def test_there_are_all_samples() -> None:
    listed = {sample.name.partition("/")[2].partition(".")[0] for sample in ALL}
    files = {path.name.partition(".")[0] for family in ("pbs", "torque") for path in (HERE / family).iterdir()}
    assert len(ALL) == 188
    assert files - listed == {"INDEX", "index", "job-environment"}


REFUSED = readings.refused(ALL)


@pytest.mark.parametrize(("sample", "error"), REFUSED, ids=[sample.name for sample, _ in REFUSED])
def test_a_refusal_names_whose_move_it_is_and_what_is_wrong(sample: Sample, error: BatchError) -> None:
    assert readings.names_whose_move_it_is(sample, error)
