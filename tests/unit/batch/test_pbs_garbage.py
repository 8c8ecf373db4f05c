"""A dialect of the PBS family reads any output of its commands or raises a BatchError, and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.batch import pbs, torque
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import BatchError, Result

SAMPLES = Path(__file__).parents[1] / "samples"
CLUSTER = BatchSettings(user="kuser", queue="workq")
TAG = "kaaaaa000000001"
Parse = Callable[[Result], Any]

REAL = [
    (SAMPLES / name).read_text()
    for name in (
        "pbs/array-after-qdel.tf.json",
        "pbs/job-walltime-exceeded.json",
        "pbs/job-odd-variables.f.txt",
        "pbs/pbsnodes-a-busy.json",
        "pbs/pbsnodes-a-full.txt",
        "pbs/qstat-B-f.json",
        "pbs/qstat-Q-f.json",
        "torque/pbsnodes_a.out",
        "torque/qstat_f.out",
        "torque/qstat_Qf.out",
    )
]
XML = "<Data><Job><Job_Id>12.head</Job_Id><Job_Name>a</Job_Name><job_state>C</job_state><exit_status>1</exit_status>"
REAL.append(XML + "<exec_host>n1/0-3+n2/0</exec_host></Job></Data>")

PARSERS: dict[str, Parse] = {
    f"{dialect.NAME}-{name}": parse
    for dialect in (pbs, torque)
    for name, parse in (
        ("describe", dialect.parse_describe),
        ("submit", dialect.parse_submit),
        ("status", dialect.parse_status),
        ("find", lambda result, dialect=dialect: dialect.parse_find(result, TAG)),
        ("history", lambda result, dialect=dialect: dialect.parse_history(result, TAG)),
        ("cancel", dialect.parse_cancel),
        *(
            (f"capacity-{place}", lambda result, dialect=dialect, place=place: capacity(dialect, place, result))
            for place in range(4)
        ),
    )
}


def capacity(dialect: Any, place: int, result: Result) -> Any:
    """All but one of the answers are good."""
    if dialect is pbs:
        good = ["pbs/pbsnodes-a-busy.json", "pbs/array-running.tf.json", "pbs/qstat-Q-f.json", "pbs/qstat-B-f.json"]
    else:
        good = ["torque/pbsnodes_a.out", "torque/qstat_f.out", "pbs/qstat-Q-f.txt", "pbs/qstat-B-f.txt"]
    results = [Result(["x"], 0, (SAMPLES / name).read_text(), "") for name in good]
    results[place] = result
    return dialect.parse_capacity(CLUSTER, results)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """Real output, cut, with a piece of it replaced, or its JSON with a value replaced somewhere."""
    text = draw(st.sampled_from(REAL))
    if text.startswith("{") and draw(st.booleans()):
        return json.dumps(replaced(draw, json.loads(text)))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 200)))
    piece = draw(st.text(max_size=20) | st.sampled_from(["9" * 5000, "\u00b2", "-", "\x00", "<!DOCTYPE", "{", "\n\t"]))
    return text[:start] + piece + text[end:] if draw(st.booleans()) else text[:start] + piece


def replaced(draw: st.DrawFn, tree: Any) -> Any:
    if not isinstance(tree, dict) or not tree or draw(st.integers(0, 4)) == 0:
        return draw(VALUES)
    key = draw(st.sampled_from(sorted(tree)))
    return {**tree, key: replaced(draw, tree[key])}


OUTPUT = st.text(max_size=200) | mangled() | VALUES.map(json.dumps)
WORDS = st.text(max_size=60) | st.sampled_from(["", "qstat: Unknown Job Id 9.head", "cannot connect to server head"])


@pytest.mark.parametrize("name", sorted(PARSERS))
@settings(max_examples=60)
@given(stdout=OUTPUT, stderr=WORDS, exit_status=st.sampled_from([0, 0, 0, 1, 35, 127, 153, 255, None]))
def test_nothing_but_a_batch_error(name: str, stdout: str, stderr: str, exit_status: int | None) -> None:
    try:
        PARSERS[name](Result(["qstat"], exit_status, stdout, stderr))
    except BatchError as error:
        assert error.message  # noqa: PT017  # most examples raise nothing


@given(text=st.text(max_size=200))
def test_a_host_file_of_any_text(text: str) -> None:
    try:
        hosts = pbs.hosts({"PBS_NODEFILE": "/x"}, lambda path: text)
    except BatchError:
        return
    assert sum(host.processors for host in hosts) == sum(1 for line in text.splitlines() if line.strip())


def test_nesting_without_end_is_unreadable() -> None:
    with pytest.raises(BatchError):
        pbs.parse_status(Result(["qstat"], 0, '{"Jobs":' + "[" * 200_000, ""))
    with pytest.raises(BatchError):
        torque.parse_status(Result(["qstat"], 0, "<Data>" + "<a>" * 200_000, ""))
