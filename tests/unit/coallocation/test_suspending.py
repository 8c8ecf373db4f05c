"""Jobs that are suspended for one of high priority where that makes room: who, for whom, and how they go on."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import INSTANCE, SIZES, UNREACHABLE, Play, component, grid

from koalapy.engine import Engine
from koalapy.model.change import Change, Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import CancelAttempt, SetSuspended, SubmitAttempt
from koalapy.model.events import (
    BatchStatusSeen,
    CancelRequested,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    SubmissionFailed,
)
from koalapy.model.header import Outcome
from koalapy.model.identity import JobId, tag_of
from koalapy.model.settings import Preempt, PreemptBy
from koalapy.model.states import AttemptState, BatchState, JobState, ReportedEnding
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.runtime.load_policies import frees_when_suspended
from koalapy.scheduler.schedule import Policies
from koalapy.scheduler.vacating import MOST_SUSPENSIONS
from koalapy.views.explanation import explain, summary
from koalapy.views.history import sentence
from koalapy.views.metrics import Counting

W, C, R, S, D = JobState.WAITING, JobState.CLAIMING, JobState.RUNNING, JobState.STOPPING, JobState.DONE


class Pausing(Play):
    """A grid whose alpha and beta give the processors of suspended jobs to others, and gamma does not."""

    def __init__(self) -> None:
        clusters = [ClusterSettings(name=name, batch="any", frees_when_suspended=name != "gamma") for name in SIZES]
        super().__init__(grid(*clusters, preempt=Preempt(how=PreemptBy.SUSPEND)))
        self.begin(Snapshot(instance=INSTANCE))

    def begin(self, snapshot: Snapshot) -> None:
        """Start koalad, and connect it."""
        self.engine = Engine(self.settings, Policies(worst_fit, fpfs), snapshot)
        for cluster in SIZES:
            self.apply(ClusterConnected(cluster=cluster, version="1"))
        self.measure()

    def restart(self) -> None:
        self.hints.clear()
        jobs = tuple(each for each in self.jobs.values() if not each.state.final)
        self.begin(Snapshot(instance=INSTANCE, counters=self.counters, jobs=jobs))

    def measurement(self, cluster: str, others: int = 0, pending: Any = ()) -> ClusterMeasured:
        """A suspended attempt holds no processors there."""
        paused = [each for each in self.live() if each.cluster == cluster and each.state is AttemptState.SUSPENDED]
        found = super().measurement(cluster, others, pending)
        tags, free = {tag_of(INSTANCE, each.id) for each in paused}, sum(each.processors for each in paused)
        shown = tuple(tag for tag in found.state.allocated if tag not in tags)
        state = replace(found.state, idle=found.state.idle + free, ours=found.state.ours - free, allocated=shown)
        return replace(found, state=state)

    def obey_hints(self) -> list[tuple[JobId, bool]]:
        """Let every cluster suspend and resume as it was ordered; what that was, as (job, suspended)."""
        todo, self.hints = [each for each in self.hints if isinstance(each, SetSuspended)], []
        for each in todo:
            self.see(each.attempt.job, "suspended" if each.suspended else "running", each.cluster)
        self.measure()
        return [(each.attempt.job, each.suspended) for each in todo]

    def see(self, job: JobId, state: str, cluster: str = "") -> None:
        for each in self.job(job).live:
            if cluster in ("", each.cluster):
                seen = BatchStatusSeen(attempt=each.id, batch_id="1", state=BatchState(state), at=self.now)
                self.apply(seen)

    def running(self, *jobs: JobId) -> list[JobId]:
        for job in jobs:
            self.run(job)
        self.measure()
        return list(jobs)

    def preempt(self, processors: int, cluster: str | None = "alpha", **fields: object) -> JobId:
        job = self.submit(component(processors, cluster), priority=0, **fields)
        self.measure()
        return job

    def states(self, *jobs: JobId) -> list[JobState]:
        return [self.job(each).state for each in jobs]

    def paused(self, job: JobId) -> JobId | None:
        return self.job(job).suspended_for

    def finish(self, job: JobId) -> None:
        for attempt in self.attempts(job):
            self.end(attempt)
        self.obey()
        self.measure()


def full_alpha(play: Pausing) -> list[JobId]:
    """Four jobs of 8 processors each on alpha, the oldest first."""
    return play.running(*[play.submit(component(8, "alpha")) for _ in range(4)])


def sentences(play: Pausing, job: JobId) -> list[str]:
    return [sentence(each) for each in play.history if each.job == job]


def test_the_youngest_are_suspended_in_one_step_with_the_claim_and_go_on_after_it() -> None:
    play = Pausing()
    jobs = full_alpha(play)
    play.pending.clear()
    job = play.preempt(16)
    assert [play.paused(each) for each in jobs] == [None, None, job, job]
    assert play.states(job, *jobs) == [C, R, R, R, R]
    commands = [each for each in play.pending if isinstance(each, CancelAttempt | SubmitAttempt)]
    assert [(type(each), each.attempt.job) for each in commands] == [(SubmitAttempt, job)]
    assert play.obey_hints() == [(jobs[3], True), (jobs[2], True)]
    play.running(job)
    assert play.obey_hints() == []
    play.finish(job)
    assert play.obey_hints() == [(jobs[3], False), (jobs[2], False)]
    assert [play.paused(each) for each in jobs] == [None] * 4
    assert play.states(*jobs) == [R, R, R, R]
    for each in jobs:
        play.finish(each)
    assert play.states(*jobs) == [D, D, D, D]
    assert [each.number for each in play.attempts(jobs[3])] == [1]


def test_both_stories_and_the_metrics_report_it() -> None:
    play = Pausing()
    jobs = full_alpha(play)
    job = play.preempt(8)
    play.obey_hints()
    play.running(job)
    assert f"It did not fit, so job {jobs[3]} is suspended for it." in sentences(play, job)
    assert any(
        f"Job {job}, of priority 0, needs its processors, so it is suspended" in each
        for each in sentences(play, jobs[3])
    )
    explained = [summary(explain(play.engine, play.now, play.job(each), worst_fit)) for each in (jobs[3], job)]
    assert explained == [
        f"It is suspended for job {job}, and goes on as soon as that job has ended.",
        f"It is running. Job {jobs[3]} is suspended for it.",
    ]
    play.finish(job)
    assert any(f"Job {job} needs its processors no more" in each for each in sentences(play, jobs[3]))
    counting = Counting()
    counting.committed(Change(history=tuple(play.history)))
    assert (counting.counted().suspended, counting.counted().vacated) == (1, 0)


def test_a_job_is_vacated_where_suspending_makes_no_room() -> None:
    play = Pausing()
    there, here = play.running(play.submit(component(16, "gamma")), play.submit(component(16, "beta")))
    both = play.submit(component(16, "gamma"), component(16, "beta"), priority=0)
    play.measure()
    assert (play.job(there).outcome, play.paused(here)) == (Outcome.VACATED, both)
    (line,) = [each for each in play.history if each.kind == "job_preempts"]
    assert (line.details["jobs"], line.details["suspended"]) == ([there], [here])
    assert f"so job {here} is suspended and job {there} is vacated for it." in sentences(play, both)[1]


@pytest.mark.parametrize("state", ["partly elsewhere", "has not begun"])
def test_only_a_job_that_runs_and_whose_components_all_make_room_is_suspended(state: str) -> None:
    play = Pausing()
    elsewhere = state == "partly elsewhere"
    job = play.submit(component(32, "alpha"), component(16, "gamma" if elsewhere else "beta"))
    if elsewhere:
        play.running(job)
    play.preempt(32)
    assert (play.job(job).outcome, play.paused(job)) == (Outcome.VACATED, None)


def test_nothing_is_placed_anew_on_what_a_suspended_job_needs() -> None:
    play = Pausing()
    (job,) = play.running(play.submit(component(32, "alpha")))
    first = play.preempt(8)
    play.obey_hints()
    play.running(first)
    small, second = play.submit(component(8, "alpha")), play.preempt(8)
    play.measure()
    assert play.states(small, second) == [W, W]
    play.finish(first)
    assert play.states(small, second) == [W, W]
    assert play.obey_hints() == [(job, False)]
    assert play.paused(job) == second  # it goes on, and may be suspended again from then on
    assert play.states(small, second) == [W, C]


def test_a_job_that_was_suspended_often_runs_to_its_end() -> None:
    play = Pausing()
    (job,) = play.running(play.submit(component(32, "alpha")))
    for _ in range(MOST_SUSPENSIONS):
        urgent = play.preempt(8)
        assert play.paused(job) == urgent
        play.obey_hints()
        play.running(urgent)
        play.finish(urgent)
        play.obey_hints()
    urgent = play.preempt(8)
    assert (play.states(job, urgent), play.paused(job)) == ([R, W], None)
    play.finish(job)
    assert play.states(urgent) == [C]


def test_a_job_goes_on_when_the_claim_for_which_it_was_suspended_fails() -> None:
    play = Pausing()
    jobs = full_alpha(play)
    job = play.preempt(8)
    play.obey_hints()
    (attempt,) = play.attempts(job)
    play.apply(SubmissionFailed(cluster="alpha", attempt=attempt, reason=UNREACHABLE))
    play.obey()
    assert play.states(job, *jobs) == [W, R, R, R, R]
    assert play.obey_hints() == [(jobs[3], False)]
    assert play.states(job) == [W]  # others make room for a job once at most until it has started


def test_a_suspended_job_can_be_cancelled_and_its_end_leaves_the_other_job_alone() -> None:
    play = Pausing()
    jobs = full_alpha(play)
    job = play.preempt(8)
    play.obey_hints()
    play.running(job)
    play.apply(CancelRequested(work=jobs[3]))
    assert play.paused(jobs[3]) is None
    play.obey()
    assert play.states(jobs[3], job) == [JobState.CANCELLED, R]
    play.finish(job)
    assert play.obey_hints() == []


def test_koalads_and_a_kcms_restart_lose_nothing() -> None:
    play = Pausing()
    jobs = full_alpha(play)
    job = play.preempt(8)
    play.hints.clear()  # the link was down
    play.apply(ClusterLost(cluster="alpha", reason=UNREACHABLE))
    play.apply(ClusterConnected(cluster="alpha", version="1"))
    play.measure()
    assert play.obey_hints() == [(jobs[3], True)]
    play.restart()
    assert play.obey_hints() == [(jobs[3], True)]
    play.running(job)
    play.finish(job)
    play.hints.clear()  # koalad, or the KCM, ends before anything was resumed
    play.restart()
    play.see(jobs[3], "suspended")
    assert play.obey_hints() == [(jobs[3], False)]
    assert play.states(*jobs) == [R, R, R, R]


def test_what_a_batch_system_suspends_by_itself_is_not_resumed_where_that_makes_no_room() -> None:
    play = Pausing()
    (job,) = play.running(play.submit(component(16, "gamma")))
    play.see(job, "suspended")
    assert play.obey_hints() == []


def test_a_suspended_job_whose_pilot_ends_is_tried_again() -> None:
    play = Pausing()
    jobs = full_alpha(play)
    play.preempt(8)
    play.obey_hints()
    (attempt,) = play.attempts(jobs[3])
    play.apply(
        BatchStatusSeen(attempt=attempt, batch_id="1", state=BatchState.ENDED, ending=ReportedEnding.LOST, at=play.now)
    )
    play.obey()
    found = play.job(jobs[3])
    assert (found.state, found.suspended_for, found.suspensions) == (W, None, 0)


def test_the_dialect_states_whether_a_suspended_job_makes_room() -> None:
    found = {name: frees_when_suspended(name) for name in ("allocation", "slurm", "sge", "local", "unknown")}
    assert found == {"allocation": True, "slurm": False, "sge": False, "local": False, "unknown": False}


def test_a_second_urgent_job_gets_all_that_another_suspended_job_had() -> None:
    play = Pausing()
    older, younger = play.running(play.submit(component(16, "alpha")), play.submit(component(16, "alpha")))
    first = play.preempt(16)
    play.obey_hints()
    play.running(first)
    second = play.preempt(16)
    assert [play.paused(each) for each in (older, younger)] == [second, first]
    play.obey_hints()
    play.running(second)
    assert play.states(play.preempt(1)) == [W]


def test_what_an_urgent_job_leaves_of_other_processors_is_placed() -> None:
    play = Pausing()
    low, other = play.running(
        play.submit(component(16, "alpha"), priority=15), play.submit(component(16, "alpha"), priority=5)
    )
    urgent = play.preempt(8)
    play.obey_hints()
    play.running(urgent)
    play.finish(other)
    fitting, too_large = play.submit(component(16, "alpha")), play.submit(component(1, "alpha"))
    play.measure()
    assert (play.paused(low), play.states(fitting, too_large)) == (urgent, [C, W])
