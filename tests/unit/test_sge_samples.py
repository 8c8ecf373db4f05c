"""Every captured situation of Grid Engine 8.1.9, by its commands and its library, is read as the golden file says.

Read the difference, then bless: KOALA_BLESS=1 pytest tests/unit/test_sge_samples.py
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from koalapy_adapters.batch import sge, sge_jobs
from koalapy_adapters.batch.protocol import Site
from koalapy_adapters.errors import BatchError, Result

HERE = Path(__file__).parent
SAMPLES = HERE / "samples" / "sge"
GOLDEN = HERE.parent / "golden" / "sge-readings.json"
WHOSE = {"transient", "site", "request", "ours"}
SITE = Site(user="koala", parallel_environment="smp")

Reader = Callable[[Result], Any]


class Sample(NamedTuple):
    """A command, and what became of it. Output that was empty has no file."""

    name: str
    result: Result
    read: Reader


def text(name: str) -> str:
    path = SAMPLES / name
    return path.read_text() if path.exists() else ""


def captured() -> Iterator[Sample]:
    """`timeout` before a command, and what follows a semicolon, are how it was captured."""
    for line in text("index.tsv").splitlines():
        name, status, command = line.partition(";")[0].split("\t")
        argv = command.removeprefix("timeout 60 ").split()
        result = Result(argv, int(status.partition("=")[2]), text(f"{name}.out"), text(f"{name}.err"))
        yield Sample(name, result, reader(argv))


def by_drmaa() -> Iterator[Sample]:
    """What the library said where the command would have failed: `native OPTIONS -> EXCEPTION WORDS`."""
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
    """Of all jobs, since none in the samples bears a tag."""
    assert sge.parse_status(result) == {}
    return {job.batch_id: sge_jobs.status(job, result) for job in sge_jobs.jobs(sge_jobs.listing(result))}


def capacity(**answers: Result) -> Any:
    whole = {"listed": "qstat_f_xml", "selected": "qselect", "environment": "qconf_sp"}
    results = {key: answers.get(key, Result([name], 0, text(f"{name}.out"), "")) for key, name in whole.items()}
    quotas = Result(["qquota"], 0, "", "")
    return sge.parse_capacity(SITE, [results["listed"], results["selected"], quotas, results["environment"]])


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


def reading(sample: Sample) -> Any:
    try:
        return plain(sample.read(sample.result))
    except BatchError as error:
        said = error.result.words[:100] if error.result is not None else ""
        return {"refused": type(error).__name__, "code": error.code, "message": error.message[:200], "words": said}


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
    assert len(ALL) == len({sample.name for sample in ALL}) == 97


def refusals() -> Iterator[tuple[Sample, BatchError]]:
    for sample in ALL:
        try:
            sample.read(sample.result)
        except BatchError as error:
            yield sample, error


REFUSED = list(refusals())


@pytest.mark.parametrize(("sample", "error"), REFUSED, ids=[sample.name for sample, _ in REFUSED])
def test_a_refusal_says_whose_move_it_is_and_what_is_wrong(sample: Sample, error: BatchError) -> None:
    assert error.whose in WHOSE
    assert error.message.endswith(".")
    assert "\n" not in error.message
    assert error.advice.endswith(".")
    assert error.result is not None
    assert not sample.result.stdout + sample.result.stderr or error.result.words
