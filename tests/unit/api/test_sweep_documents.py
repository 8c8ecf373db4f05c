"""Results of sweeps as people and programs read them: whole and in order, for any number of results."""

import csv
import io
import itertools
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from koalapy.api import openapi
from koalapy.api.sweeps import as_csv, as_json, as_lines, columns
from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId, launcher_id
from koalapy.model.intervals import Intervals
from koalapy.model.parameters import Axis, ParameterResult, Source, Space
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.runtime.sweeps import Row
from koalapy.scavenging.prediction import Prediction
from koalapy.views.sweeps import forecast, places, runner, scavenged

AT = 1_700_000_000_000_000
ATTEMPT = AttemptId(JobId(1 << 23), 0, 1)
SPACE = Space(axes=(Axis(sources=(Source(names=("x",), loop=("1", "100", "1")),), count=100),))
PROGRAM = ComponentRequest(processors=1, executable="true")


def row(number: int, *values: str, **fields: Any) -> Row:
    given = {"exit_status": 0, "ending": "exited", "host": "node-1", "slot": 0, "output_size": 4, **fields}
    result = ParameterResult(
        number=number, started_at=AT, ended_at=AT + SECOND, output_at=0, errors_at=0, errors_size=0, **given
    )
    return Row(values or None, "alpha", ATTEMPT, result)


def whole(pieces: Iterator[bytes]) -> str:
    return b"".join(pieces).decode()


def test_a_line_is_a_result_with_its_values_by_name() -> None:
    lines = whole(as_lines(7, ["x", "y"], [row(3, "0.5", 'a "b",\n')])).splitlines()
    found = json.loads(lines[0])
    assert len(lines) == 1
    assert found["values"] == {"x": "0.5", "y": 'a "b",\n'}
    assert (found["parameter"], found["exit_status"], found["cluster"], found["host"]) == (3, 0, "alpha", "node-1")
    assert found["started_at"] < found["ended_at"]


@pytest.mark.parametrize("ending", ["killed", "walltime", "output", "failed"])
def test_only_a_result_that_exited_with_0_succeeded(ending: str) -> None:
    ends = row(1), row(1, exit_status=1), row(1, ending=ending)
    assert [each.result.succeeded for each in ends] == [True, False, False]


@pytest.mark.parametrize("form", [as_lines, as_csv])
def test_every_form_shows_how_where_and_when_a_parameter_ended(form: Any) -> None:
    text = whole(form(7, ["x"], [row(3, "1", exit_status=137, ending="killed")]))
    found = json.loads(text) if form is as_lines else next(csv.DictReader(io.StringIO(text)))
    shown = [str(found[name]) for name in ("exit_status", "ending", "cluster", "host", "started_at", "ended_at")]
    instants = [format_instant(Instant(AT)), format_instant(Instant(AT + SECOND))]
    assert shown == ["137", "killed", "alpha", "node-1", *instants]


@pytest.mark.parametrize("count", [0, 1, 2, 500, 501, 1203])
def test_a_document_of_any_number_of_results_is_whole(count: int) -> None:
    document = json.loads(whole(as_json(7, ["x"], (row(n, str(n)) for n in range(1, count + 1)))))
    openapi.check(document)
    assert [each["parameter"] for each in document["results"]] == list(range(1, count + 1))


def test_csv_is_read_back_equal() -> None:
    text = whole(as_csv(7, ["x", "y"], [row(1, "1", "a,b"), row(2, "2", 'quo"te'), row(3, "3", "two\nlines")]))
    found = list(csv.DictReader(io.StringIO(text)))
    assert [(each["parameter"], each["x"], each["y"]) for each in found] == [
        ("1", "1", "a,b"),
        ("2", "2", 'quo"te'),
        ("3", "3", "two\nlines"),
    ]


def test_csv_without_results_has_a_header() -> None:
    assert whole(as_csv(7, ["x"], [])) == "parameter,x,exit_status,ending,cluster,host,started_at,ended_at\n"


def test_a_parameter_may_have_the_name_of_a_column() -> None:
    assert columns(["host", "x"]) == [
        "parameter", "value_host", "x", "exit_status", "ending", "cluster", "host", "started_at", "ended_at",
    ]  # fmt: skip
    found = next(csv.DictReader(io.StringIO(whole(as_csv(7, ["host"], [row(1, "mine")])))))
    assert (found["value_host"], found["host"]) == ("mine", "node-1")


def test_unknown_values_are_empty() -> None:
    assert json.loads(whole(as_lines(7, ["x"], [row(1)])))["values"] is None
    assert whole(as_csv(7, ["x"], [row(1)])).splitlines()[1].startswith("1,,0,")


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert json.loads(whole(as_lines(7, ["x"], [row(1, "\udcff")])))["values"] == {"x": "\ufffd"}


@pytest.mark.parametrize("form", [as_json, as_lines, as_csv])
def test_many_rows_are_never_in_memory_at_once(form: Any) -> None:
    rows = (row(n, str(n)) for n in itertools.count(1))
    pieces = form(7, ["x"], itertools.islice(rows, 5_000))
    tracemalloc.start()
    try:
        size = sum(map(len, pieces))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 300_000
    assert peak < size


# ---- runners


def sweep(**fields: Any) -> Sweep:
    return Sweep(
        id=JobId(7),
        owner="me",
        request=Request(name="scan", components=(PROGRAM,), parameters=SPACE),
        state=JobState.RUNNING,
        position=1,
        submitted_at=Instant(AT),
        count=100,
        **fields,
    )


def launcher(number: int, cluster: str, processors: int = 4, going: str = "", **fields: Any) -> Attempt:
    return Attempt(
        id=launcher_id(FIRST_LAUNCHER + number),
        request=ComponentRequest(processors=processors, executable="launcher"),
        cluster=cluster,
        launcher=LauncherFields(owner=Owner(OwnerKind.SWEEP, 7), claimed_at=Instant(AT), stop_reason=going),
        **{"state": AttemptState.RUNNING, "allocated_at": Instant(AT), **fields},
    )


DOING = {launcher_id(FIRST_LAUNCHER + number): running for number, running in ((1, 4), (2, 3))}
WAITING: dict[str, Any] = {"state": AttemptState.QUEUED, "allocated_at": None}
LAUNCHERS = [
    launcher(1, "alpha"),
    launcher(2, "alpha", going="preempted"),
    launcher(3, "alpha", **WAITING),
    launcher(4, "gamma", processors=2),
    launcher(5, "gamma", state=AttemptState.CLEANED_UP, ending=Ending.DONE, ended_at=Instant(AT + 1)),
]


def test_a_runner_holds_the_nodes_of_its_launchers() -> None:
    found = sweep(
        out=(("alpha", Intervals.of([(1, 8)])),),
        reclaimed=(("beta", 2),),
        black_holes=(("alpha", "alpha-3"), ("beta", "beta-1")),
    )
    alpha, beta, gamma = places(found, LAUNCHERS, DOING)
    assert [alpha[each] for each in ("nodes", "processors", "starting", "stopping", "assigned")] == [2, 8, 1, 1, 8]
    assert (alpha["running"], gamma["running"]) == (7, None)
    assert (beta["nodes"], beta["reclaimed"], beta["black_holes"]) == (0, 2, ["beta-1"])
    assert (gamma["nodes"], gamma["processors"], gamma["starting"]) == (1, 2, 0)


def test_a_suspended_node_is_held_and_runs_no_parameter() -> None:
    launchers = [launcher(1, "alpha"), launcher(2, "alpha", state=AttemptState.SUSPENDED)]
    (alpha,) = places(sweep(), launchers, DOING)
    assert (alpha["nodes"], alpha["suspended"], alpha["running"]) == (2, 1, 4)


def test_scavenged_processors_are_those_of_allocated_launchers() -> None:
    assert scavenged(LAUNCHERS) == {"alpha": 8, "gamma": 2}


def test_the_document_of_a_runner_follows_its_schema() -> None:
    found = sweep(
        done=Intervals.of([(1, 40)]), failed=Intervals.of([(3, 4)]), out=(("alpha", Intervals.of([(41, 48)])),)
    )
    described = runner(replace(found, charged=90 * SECOND), LAUNCHERS, DOING, None, Instant(AT))
    admission = forecast(Prediction(), Instant(AT))
    openapi.check({"schema": "koala.runners/1", "runners": [described], "admission": admission})
    counts = tuple(described[name] for name in ("parameters", "done", "failed", "assigned", "waiting"))
    assert counts == (100, 40, 2, 8, 52)
    assert (described["charged_processor_seconds"], described["running"], described["parameters_per_minute"]) == (
        90,
        None,
        None,
    )
