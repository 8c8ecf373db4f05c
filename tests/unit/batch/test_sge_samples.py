"""Every captured situation of Grid Engine 8.1.9, by its commands and its library, is read as in the golden file."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import readings
from koalapy_adapters.batch import sge, sge_jobs
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import BatchError, Result
from readings import Reader, Sample

HERE = readings.SAMPLES / "sge"
CLUSTER = BatchSettings(user="koala", parallel_environment="smp")


def text(name: str) -> str:
    return readings.text(HERE / name)


def captured() -> Iterator[Sample]:
    """`timeout` before a command, and what follows a semicolon, are how it was captured."""
    for line in text("index.tsv").splitlines():
        name, status, command = line.partition(";")[0].split("\t")
        argv = command.removeprefix("timeout 60 ").split()
        result = Result(argv, int(status.partition("=")[2]), text(f"{name}.out"), text(f"{name}.err"))
        yield Sample(name, result, reader(argv))


def by_drmaa() -> Iterator[Sample]:
    """Read the library's answer where the command would have failed: `native OPTIONS -> EXCEPTION WORDS`."""
    for options, words in re.findall(
        r"^native (.*) -> \w+ ['\"](.*)['\"]$", text("drmaa_transcript.txt"), re.MULTILINE
    ):
        words = words.replace("\\n", "\n")
        yield Sample(f"drmaa {options}", Result(["qsub", *options.split()], 1, "", words), sge.parse_submit)


def reader(argv: list[str]) -> Reader:
    """How the dialect reads this command's answer; the answer of one that it never asks, like one that it does."""
    command, options = argv[0], set(argv[1:])
    if command == "qstat":
        if "-j" in options and "-xml" in options:
            return sge.parse_explain
        return (lambda result: capacity(listed=result)) if "-f" in options else everybody
    if command == "qselect":
        return lambda result: capacity(selected=result)
    if command == "qconf":
        return lambda result: capacity(environment=result)
    return _READERS.get(command, sge.parse_status)


def everybody(result: Result) -> Any:
    """The sample's jobs are all ours, since none of them bears a tag."""
    assert sge.parse_status(result) == {}
    return {job.batch_id: sge_jobs.status(job, result) for job in sge_jobs.jobs(sge_jobs.listing(result))}


def capacity(**answers: Result) -> Any:
    whole = {"listed": "qstat_f_xml", "selected": "qselect", "environment": "qconf_sp"}
    results = {key: answers.get(key, Result([name], 0, text(f"{name}.out"), "")) for key, name in whole.items()}
    quotas = Result(["qquota"], 0, "", "")
    return sge.parse_capacity(CLUSTER, [results["listed"], results["selected"], quotas, results["environment"]])


def remembered(result: Result) -> Any:
    name = re.search(r"^jobname +(\S+)", result.stdout, re.MULTILINE)
    return sge.parse_history(result, name.group(1) if name else "kaaaaa000000001")


def allocation(result: Result) -> Any:
    environment = dict(line.partition("=")[::2] for line in result.stdout.splitlines())
    return [sge.batch_id(environment), sge.restarts(environment), sge.hosts(environment, str)]


_READERS: dict[str, Reader] = {
    "qsub": sge.parse_submit,
    "drmaa_init": sge.parse_submit,
    "qdel": sge.parse_cancel,
    "qacct": remembered,
    "sh": remembered,
    "cat": allocation,
    "qhold": sge.parse_hold,
    "qrls": sge.parse_hold,
    "qmod": sge.parse_hold,
    "qalter": sge.parse_hold,
}

ALL = [*captured(), *by_drmaa()]


def test_every_sample_is_read_or_refused_as_expected() -> None:
    assert readings.are_as_blessed(ALL, readings.GOLDEN / "sge-readings.json")


def test_there_are_all_samples() -> None:
    assert len(ALL) == len({sample.name for sample in ALL}) == 97


REFUSED = readings.refused(ALL)


@pytest.mark.parametrize(("sample", "error"), REFUSED, ids=[sample.name for sample, _ in REFUSED])
def test_a_refusal_names_whose_move_it_is_and_what_is_wrong(sample: Sample, error: BatchError) -> None:
    assert readings.names_whose_move_it_is(sample, error)
