"""Each kind of work has a table of transitions of its own, and every change is one of its table."""

import pytest
from engine_play import INSTANCE, Play, component, make

from koalapy.model.change import Change, Snapshot
from koalapy.model.events import CancelRequested, WorkSubmitted
from koalapy.model.header import Header
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.request import FlowJob, Request
from koalapy.model.sent import SentJob
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.work import KIND_OF, KINDS, Flow, Kind, Work

S = JobState


def of_kind(kind: Kind, state: JobState) -> Work:
    counts = {"count": 3} if kind.value in (Sweep, Flow) else {}
    work: Work = kind.value(
        id=JobId(7), owner="me", request=make(component(1)), state=state, position=1, submitted_at=Instant(1), **counts
    )
    return work


def recorded(work: Work) -> Records:
    of = {Job: "jobs", Sweep: "sweeps", Flow: "flows", SentJob: "sent_jobs"}[type(work)]
    return Records(Snapshot(instance=INSTANCE, **{of: (work,)}))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("other", JobState)
def test_a_change_that_the_table_of_its_kind_does_not_have_is_refused(
    kind: Kind, state: JobState, other: JobState
) -> None:
    if state not in kind.transitions:
        return
    records = recorded(of_kind(kind, state))
    row = records.work(JobId(7))
    assert row is not None
    if other in kind.transitions[state]:
        records.change_work(row, state=other)
        assert row.state is other
    else:
        with pytest.raises(ValueError, match=f"{kind.name} 7 cannot go from {state} to {other}"):
            records.change_work(row, state=other)
        assert row.state is state


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_work_of_every_kind_is_handed_out_and_dropped_once_it_is_final(kind: Kind) -> None:
    state = S.RUNNING
    records, work = Records(Snapshot(instance=INSTANCE)), of_kind(kind, state)
    records.add(work)
    step = records.take()
    assert [type(each) for each in Change.work.fget(step)] == [kind.value]  # type: ignore[attr-defined]
    assert records.all_work() == [work]
    for then in (S.STOPPING, S.CANCELLED):
        records.change_work(work, state=then)
    assert [each.state for each in records.take().work] == [S.CANCELLED]
    assert records.all_work() == []
    assert records.work(work.id) is None


def test_all_kinds_have_the_fields_of_the_header_and_only_a_job_has_attempts() -> None:
    header = set(Header.__dataclass_fields__)
    assert all(header < set(each.value.__dataclass_fields__) for each in KINDS)
    assert [each.name for each in KINDS if "attempts" in each.value.__dataclass_fields__] == ["job"]
    assert {KIND_OF[each.row].name for each in KINDS} == {each.name for each in KINDS}


def test_a_request_becomes_work_of_its_kind() -> None:
    play = Play()
    parts = (FlowJob(request=make(component(4))), FlowJob(request=make(component(4), site="lyon"), after=(0,)))
    play.apply(WorkSubmitted(request=Request(name="whole", components=(), jobs=parts), owner="me"))
    play.apply(WorkSubmitted(request=Request(name="there", components=(), jobs=parts[:1], site="lyon"), owner="me"))
    assert [type(each).__name__ for each in play.all_jobs.values()] == ["Flow", "Job", "SentJob", "SentJob"]
    assert list(play.flows[JobId(1)].jobs) == [2, 3]
    assert [each.site for each in play.sent_jobs.values()] == ["lyon", "lyon"]
    play.apply(CancelRequested(JobId(1)), CancelRequested(JobId(4)))
    play.obey()
    assert {each.state for each in play.all_jobs.values()} == {S.CANCELLED}
