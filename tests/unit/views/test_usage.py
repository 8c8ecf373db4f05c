"""Processor time by attempts: the usage of each attempt, and sums that agree for every grouping."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.change import Change
from koalapy.model.header import Outcome
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId, launcher_id
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import DAY, HOUR, SECOND, Instant
from koalapy.model.usage import (
    BatchSpan,
    By,
    Kind,
    Sum,
    Usage,
    accounted,
    by_days,
    sums,
    usage_of_launcher,
    usage_of_try,
    usage_until,
)
from koalapy.views.metrics import Counting

T = Instant(1_900_000_000 * SECOND)
WISH = ComponentRequest(processors=4, executable="./a.out")


def at(seconds: float) -> Instant:
    return Instant(T + round(seconds * SECOND))


def job_with_attempt(state: JobState = JobState.STOPPING, **instants: Instant | None) -> Job:
    attempt = Attempt(
        id=AttemptId(JobId(7), 0, 2),
        request=WISH,
        state=AttemptState.ENDED,
        ending=Ending.DONE,
        cluster="vu",
        batch_id="77",
        **instants,  # type: ignore[arg-type]
    )
    return Job(
        id=JobId(7),
        owner="mona",
        request=Request(name="poisson", components=(WISH, WISH)),
        state=state,
        position=1,
        submitted_at=T,
        attempts=(attempt, None),
        outcome=Outcome.DONE,
    )


FULL: dict[str, Any] = {"began_at": at(10), "allocated_at": at(12), "released_at": at(40), "ended_at": at(100)}


def test_the_last_attempt_counts_as_held_until_its_release_and_then_as_run() -> None:
    job = job_with_attempt(**FULL)
    (entry,) = usage_of_try(job)
    assert (entry.attempt, entry.kind, entry.batch_id) == (AttemptId(JobId(7), 0, 2), Kind.RUN, "77")
    assert (entry.started_at, entry.released_at, entry.ended_at) == (at(10), at(40), at(100))
    assert sums([entry], By.JOB) == {
        (7, "poisson", "mona"): Sum(held=120 * SECOND, run=240 * SECOND, estimated=360 * SECOND, attempts=1)
    }


def test_an_attempt_that_is_retried_counts_as_lost_and_a_failed_last_one_as_run() -> None:
    job = job_with_attempt(**FULL)
    (again,), (failed,) = (usage_of_try(job, lost=lost) for lost in (True, False))
    assert (again.kind, failed.kind) == (Kind.LOST, Kind.RUN)
    assert sums([again], By.USER)[("mona",)].held == 120 * SECOND


def test_an_attempt_that_was_never_released_was_held_to_its_end() -> None:
    job = job_with_attempt(**(FULL | {"released_at": None}))
    (entry,) = usage_of_try(job, lost=True)
    assert sums([entry], By.CLUSTER)[("vu",)] == Sum(held=360 * SECOND, estimated=360 * SECOND, attempts=1)


def test_a_batch_job_that_never_started_uses_nothing() -> None:
    job = job_with_attempt(ended_at=at(5))
    assert usage_of_try(job) == ()


def test_all_of_a_pilot_is_scavenged_and_charged_to_its_sweep() -> None:
    sweep = a_sweep()
    (entry,) = usage_of_launcher(a_pilot(**FULL), sweep)
    assert (entry.charged, entry.owner, entry.name) == (7, "mona", "poisson")
    assert sums([entry], By.DAY)[("2030-03-17",)].scavenged == 360 * SECOND
    assert usage_of_launcher(a_pilot(ended_at=at(5)), sweep) == ()


def test_a_pilot_that_goes_on_counts_until_now() -> None:
    sweep = a_sweep()
    running, over = a_pilot(**(FULL | {"ended_at": None})), a_pilot(state=AttemptState.CLEANED_UP, **FULL)
    (entry,) = usage_until([], {sweep.id: sweep}, [running, over], at(50))
    assert (entry.kind, entry.ended_at) == (Kind.SCAVENGED, at(50))


def a_sweep() -> Sweep:
    job = job_with_attempt(JobState.RUNNING)
    common = {"id": job.id, "owner": job.owner, "request": job.request, "submitted_at": job.submitted_at}
    return Sweep(**common, state=JobState.RUNNING, position=1, count=9)  # type: ignore[arg-type]


def a_pilot(**fields: Any) -> Attempt:
    (attempt, _) = job_with_attempt().attempts
    assert attempt is not None
    fields = {"state": AttemptState.RUNNING} | fields
    pilot = LauncherFields(owner=Owner(OwnerKind.SWEEP, 7), claimed_at=T)
    return replace(attempt, id=launcher_id(FIRST_LAUNCHER), launcher=pilot, **fields)


def test_a_running_attempt_counts_until_now() -> None:
    running = job_with_attempt(JobState.RUNNING, **(FULL | {"ended_at": None}))
    (entry,) = usage_until([running], {}, [], at(50))
    found = sums([entry], By.USER, unended=frozenset({entry.attempt}))[("mona",)]
    assert (found.run, found.open) == (40 * SECOND, 160 * SECOND)


def test_the_accounting_replaces_an_estimate() -> None:
    job = job_with_attempt(**FULL)
    (entry,) = usage_of_try(job)
    span = BatchSpan(attempt=entry.attempt, cluster="vu", started_at=at(9), ended_at=at(101), processors=8)
    better = accounted(entry, span)
    assert sums([better], By.USER)[("mona",)] == Sum(held=8 * 31 * SECOND, run=8 * 61 * SECOND, attempts=1)
    assert accounted(better, span) == better


# ---- pilots


def of_job(job: int, cluster: str, start: float, end: float, processors: int = 2, owner: str = "mona") -> Usage:
    return Usage(
        attempt=AttemptId(JobId(job), 0, 0),
        owner=owner,
        charged=JobId(job),
        name="pilot" if cluster == "vu" else "sleep",
        cluster=cluster,
        processors=processors,
        kind=Kind.RUN,
        started_at=at(start),
        released_at=at(start + 1),
        ended_at=at(end),
        accounted=cluster == "vu",
    )


PILOT, ON_IT = of_job(92, "vu", 0, 23), of_job(93, "pilot~92", 2, 22, owner="noor")


def test_a_job_on_a_pilot_is_the_pilots_used_part_and_adds_nothing_to_the_total() -> None:
    held = Sum(held=2 * SECOND, run=44 * SECOND, attempts=1)
    assert sums([PILOT, ON_IT], By.JOB) == {
        (92, "pilot", "mona"): held.plus(Sum(used=40 * SECOND)),
        (93, "sleep", "noor"): Sum(attempts=1, on_pilots=40 * SECOND),
    }
    both = held.plus(Sum(attempts=1, on_pilots=40 * SECOND, used=40 * SECOND))
    assert sums([ON_IT, PILOT], By.CLUSTER) == {("vu",): both}
    assert total(sums([PILOT, ON_IT], By.USER)).total == 46 * SECOND


def test_what_sweeps_used_of_a_held_component_counts_on_its_cluster_once() -> None:
    """Component 0 is held, given back, and queued again; component 1 comes last."""
    tries = ((0, 1, "vu", 0, 20), (0, 2, "vu", 60, 90), (1, 1, "delft", 50, 90))
    held = [
        replace(of_job(7, cluster, start, end), attempt=AttemptId(JobId(7), component, number), kind=Kind.LOST)
        for component, number, cluster, start, end in tries
    ]
    launcher = replace(of_job(93, "pilot~7", 2, 12, owner="noor"), kind=Kind.SCAVENGED, released_at=at(2))
    found = sums([*held, launcher], By.CLUSTER)
    assert {key: (each.used, each.on_pilots) for key, each in found.items()} == {
        ("vu",): (20 * SECOND, 20 * SECOND),
        ("delft",): (0, 0),
    }
    assert total(found).total == total(sums(held, By.CLUSTER)).total


def test_the_metrics_count_a_pilots_time_once() -> None:
    counting = Counting()
    counting.committed(Change(usage=(PILOT, ON_IT)))
    counted = counting.counted()
    assert sum(counted.processor_s.values()) == 46
    assert counted.attempts == {("vu", "run"): 1, ("pilot~92", "run"): 1}


@pytest.mark.parametrize("by", By)
def test_a_job_on_a_pilot_that_goes_on_is_not_open_twice(by: By) -> None:
    found = total(sums([PILOT, ON_IT], by, unended=frozenset({PILOT.attempt, ON_IT.attempt})))
    assert found == Sum(2 * SECOND, 44 * SECOND, open=46 * SECOND, attempts=2, on_pilots=40 * SECOND, used=40 * SECOND)


def test_a_launcher_on_a_pilot_is_not_scavenged_beside_the_pilot() -> None:
    launcher = replace(ON_IT, kind=Kind.SCAVENGED, released_at=ON_IT.started_at)
    assert total(sums([PILOT, launcher], By.DAY)).scavenged == 0
    assert total(sums([PILOT, launcher], By.DAY)).used == 40 * SECOND


@pytest.mark.parametrize("by", By)
def test_pruning_a_job_on_a_pilot_or_the_pilot_changes_no_total(by: By) -> None:
    whole = total(sums([PILOT, ON_IT], by))
    assert total(sums([PILOT], by, days=by_days([ON_IT]))) == whole
    without_pilot = total(sums([ON_IT], by, days=by_days([PILOT])))
    assert without_pilot == whole._replace(used=0)
    assert total(sums([], by, days=by_days([ON_IT, PILOT]))) == without_pilot


def test_a_job_on_a_lease_counts_in_full() -> None:
    borrowed = of_job(5, "lyon~92", 2, 22)
    assert sums([PILOT, borrowed], By.SITE)[("lyon",)].total == 40 * SECOND


@pytest.mark.parametrize(
    "lie",
    [
        {"cluster": "delft"},
        {"started_at": at(102)},
        {"processors": 0},
        {"ended_at": Instant(at(100) + 2 * DAY)},
        {"started_at": Instant(0)},
    ],
)
def test_an_impossible_accounting_is_ignored(lie: dict[str, object]) -> None:
    job = job_with_attempt(**FULL)
    (entry,) = usage_of_try(job)
    span = BatchSpan(attempt=entry.attempt, cluster="vu", started_at=at(9), ended_at=at(101), processors=4)
    assert accounted(entry, replace(span, **lie)) == entry  # type: ignore[arg-type]


@st.composite
def entries(draw: st.DrawFn) -> list[Usage]:
    instant = st.integers(T, T + 3 * DAY)
    found = []
    for number in range(draw(st.integers(0, 6))):
        started_at, released_at, ended_at = sorted(draw(st.tuples(instant, instant, instant)))
        kind = draw(st.sampled_from(Kind))
        job = JobId(draw(st.integers(1, 3)))
        found.append(
            Usage(
                attempt=AttemptId(job, 0, number),
                owner=draw(st.sampled_from(["mona", "noor"])),
                charged=job,
                name="a",
                cluster=draw(st.sampled_from(["vu", "delft", "pilot~1"])),
                processors=draw(st.integers(1, 10**6)),
                kind=kind,
                started_at=Instant(started_at),
                released_at=Instant(started_at if kind is Kind.SCAVENGED else released_at),
                ended_at=Instant(ended_at),
                accounted=draw(st.booleans()),
            )
        )
    return found


def total(found: dict[tuple[str | int, ...], Sum]) -> Sum:
    result = Sum()
    for each in found.values():
        result = result.plus(each)
    return result


@given(entries())
def test_the_total_is_the_same_for_every_grouping(used: list[Usage]) -> None:
    wanted = total(sums(used, By.USER))
    assert {by: total(sums(used, by)) for by in By} == dict.fromkeys(By, wanted)
    spans = {on: [e for e in used if (e.cluster == "pilot~1") is on] for on in (False, True)}
    processor_time = {on: sum((e.ended_at - e.started_at) * e.processors for e in found) for on, found in spans.items()}
    assert wanted.total == processor_time[False]
    assert wanted.on_pilots == processor_time[True]
    assert wanted.attempts == len(used)


@given(entries(), st.lists(st.integers(T - HOUR, T + 3 * DAY + HOUR), max_size=4), st.sampled_from(By))
def test_the_sums_of_all_intervals_add_up_to_the_total(used: list[Usage], cuts: list[int], by: By) -> None:
    bounds = [None, *map(Instant, sorted(cuts)), None]
    parts = [total(sums(used, by, since, until)) for since, until in pairwise(bounds)]
    whole = Sum()
    for part in parts:
        whole = whole.plus(part)
    assert whole == total(sums(used, by))


@given(entries())
def test_an_attempt_counts_at_most_24_hours_in_a_day(used: list[Usage]) -> None:
    for entry in used:
        assert all(found.total <= DAY * entry.processors for found in sums([entry], By.DAY).values())
