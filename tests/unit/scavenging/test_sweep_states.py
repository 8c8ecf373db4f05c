"""A sweep is a record of its own: its table of transitions, and what it shares with jobs, which are ids and keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from engine_play import INSTANCE, component, make
from sweep_play import SweepPlay, space

from koalapy.model.change import Snapshot
from koalapy.model.events import CancelRequested, HoldRequested, OutputCollected, ReleaseRequested, WorkSubmitted
from koalapy.model.identity import JobId
from koalapy.model.intervals import Intervals
from koalapy.model.records import Records
from koalapy.model.request import FlowJob, Request
from koalapy.model.states import SWEEP_TRANSITIONS, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.work import Work
from koalapy.policies.placement import worst_fit
from koalapy.views.explanation import explain, summary

S = JobState
Turn = tuple[JobState, JobState]


def in_state(state: JobState) -> tuple[Records, Sweep]:
    sweep = Sweep(
        id=JobId(7), owner="me", request=make(component(1), parameters=space(9)), state=state, position=1,
        submitted_at=Instant(1), count=9, out=(("alpha", Intervals.of([(1, 2)])),),
    )  # fmt: skip
    records = Records(Snapshot(instance=INSTANCE, sweeps=(sweep,)))
    return records, records.sweeps[sweep.id]


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("other", JobState)
def test_a_change_that_the_table_does_not_have_is_refused(state: JobState, other: JobState) -> None:
    if state not in SWEEP_TRANSITIONS:
        assert state is S.CLAIMING, "a sweep claims nothing"
        return
    records, sweep = in_state(state)
    if other in SWEEP_TRANSITIONS[state]:
        records.change_work(sweep, state=other)
        assert sweep.state is other
        assert not (sweep.out and other.final), "a parameter is out of a final sweep"
    else:
        with pytest.raises(ValueError, match=f"sweep 7 cannot go from {state} to {other}"):
            records.change_work(sweep, state=other)
        assert sweep.state is state


def test_the_table_has_no_change_that_never_happens() -> None:
    """Each life leads through some of them; together they lead through all."""
    with recorded() as seen:
        for life in (done, without_nodes, held_while_it_runs, held_before, after_others, admitted_after_another):
            life(SweepPlay({"alpha": 16}, max_runners=1))
    assert seen == {(state, other) for state, after in SWEEP_TRANSITIONS.items() for other in after}


@contextmanager
def recorded() -> Iterator[set[Turn]]:
    seen: set[Turn] = set()
    real = Records.change_work

    def change(self: Records, work: Work, **changes: Any) -> None:
        seen.update([(work.state, changes["state"])] if isinstance(work, Sweep) and "state" in changes else [])
        real(self, work, **changes)

    with patch.object(Records, "change_work", change):
        yield seen


def done(play: SweepPlay) -> None:
    sweep = play.sweep(3, stage_out=("{x}",))
    play.start_all(sweep)
    play.want(sweep, "alpha", 3)
    play.ran(play.staying(sweep)[0], (1, 2, 3))
    assert (play.record(sweep).state, play.record(sweep).collecting) == (S.RUNNING, True)
    play.apply(OutputCollected(job=sweep))
    play.go()
    assert play.record(sweep).state is S.DONE
    assert sweep not in play.engine.records.sweeps


def without_nodes(play: SweepPlay) -> None:
    sweep = play.sweep(3, cluster="nowhere")
    play.apply()
    play.measure()
    assert play.record(sweep).state is S.FAILED


def held_while_it_runs(play: SweepPlay) -> None:
    sweep = play.sweep()
    play.apply(HoldRequested(sweep))
    play.go()
    assert play.record(sweep).state is S.HELD
    play.apply(ReleaseRequested(sweep))
    assert play.record(sweep).state is S.RUNNING
    play.apply(HoldRequested(sweep))
    play.apply(ReleaseRequested(sweep))
    play.go()
    assert play.record(sweep).state is S.RUNNING
    play.apply(CancelRequested(sweep))
    play.go()
    assert play.record(sweep).state is S.CANCELLED


def held_before(play: SweepPlay) -> None:
    play.sweep()
    for end in (S.CANCELLED, S.HELD):
        sweep = play.sweep()
        play.apply(HoldRequested(sweep)) if end is S.HELD else play.apply(CancelRequested(sweep))
        assert play.record(sweep).state is end
    play.apply(CancelRequested(sweep))
    assert play.record(sweep).state is S.CANCELLED


def after_others(play: SweepPlay) -> None:
    first = play.submit(component(4))
    sweeps = [play.sweep(after=(first,)) for _ in range(3)]
    assert [play.record(each).state for each in sweeps] == [S.BLOCKED] * 3
    play.apply(HoldRequested(sweeps[0]), HoldRequested(sweeps[1]))
    play.apply(ReleaseRequested(sweeps[0]))
    assert [play.record(each).state for each in sweeps] == [S.BLOCKED, S.HELD, S.BLOCKED]
    play.apply(CancelRequested(sweeps[2]))
    play.apply(CancelRequested(first))
    play.obey()
    assert [play.record(each).state for each in sweeps] == [S.FAILED, S.FAILED, S.CANCELLED]


def admitted_after_another(play: SweepPlay) -> None:
    first = play.submit(component(4))
    sweep = play.sweep(after=(first,))
    play.run(first)
    play.end(play.attempts(first)[0])
    play.obey()
    play.measure()
    assert play.record(sweep).state is S.RUNNING


def test_a_sweep_is_no_job_and_shares_ids_and_keys_with_jobs() -> None:
    play = SweepPlay()
    request = make(component(1), parameters=space(5))
    play.apply(WorkSubmitted(request=request, owner="me", key="one"))
    play.submit(component(1))
    play.apply(WorkSubmitted(request=make(component(1)), owner="me", key="one"))
    assert (list(play.sweeps), list(play.jobs)) == ([1], [2])
    assert play.engine.records.work(JobId(1)) is play.engine.records.sweeps[JobId(1)]
    assert play.engine.job(JobId(1)) is None
    assert play.history[0].details == {"owner": "me", "type": "sweep"}


def test_a_flow_counts_its_sweeps_and_a_blocked_one_shows_what_it_waits_for() -> None:
    play = SweepPlay()
    parts = FlowJob(request=make(component(4))), FlowJob(request=make(component(1), parameters=space(5)), after=(0,))
    play.apply(WorkSubmitted(request=Request(name="flow", components=(), jobs=parts), owner="me"))
    first, sweep = JobId(2), JobId(3)
    found = explain(play.engine, play.now, play.record(sweep), worst_fit)
    assert summary(found) == "It waits until job 2 (job, claiming) is done."
    play.run(first)
    play.end(play.attempts(first)[0])
    play.obey()
    play.measure()
    play.start_all(sweep)
    launcher = play.staying(sweep)[0]
    play.want(sweep, launcher.cluster, 5)
    play.ran(launcher, range(1, 6))
    play.go()
    play.apply()
    flow = play.flows[JobId(1)]
    assert [flow.state, play.job(first).state, play.record(sweep).state] == [S.DONE] * 3
    assert flow.done == 2
