"""Jobs that wait for others, and flows: their turns, the failures that are passed on, and what acts on a whole flow."""

from typing import Any

import pytest
from engine_play import BUSY_QUEUE, Play, component, make

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.events import (
    AttemptCleanedUp,
    CancelRequested,
    ClusterConnected,
    HoldRequested,
    ReleaseRequested,
    SubmissionFailed,
    WorkSubmitted,
)
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import FOREVER, FlowJob, OnFailure, Request
from koalapy.model.sent import SentJob
from koalapy.model.states import JobState
from koalapy.model.work import Flow
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies

BLOCKED, CLAIMING, DONE, FAILED = JobState.BLOCKED, JobState.CLAIMING, JobState.DONE, JobState.FAILED
CANCELLED, HELD, WAITING, RUNNING = JobState.CANCELLED, JobState.HELD, JobState.WAITING, JobState.RUNNING


class Flows(Play):
    """A grid on which flows are submitted; their jobs are known by name."""

    def submit_flow(self, on_failure: OnFailure = OnFailure.CONTINUE, key: str = "", **after: tuple[str, ...]) -> JobId:
        """Submit a flow whose jobs have these names, each with the names of those that it waits for."""
        names = list(after)
        jobs = tuple(
            FlowJob(request=self.request(name), after=tuple(names.index(each) for each in waits))
            for name, waits in after.items()
        )
        whole = Request(name="flow", components=(), jobs=jobs, on_failure=on_failure)
        self.apply(WorkSubmitted(request=whole, owner="me", key=key))
        return max(self.flows)

    def request(self, name: str) -> Request:
        return Request(name=name, components=(component(4),))

    def named(self, name: str) -> Job | Flow | SentJob:
        return next(job for job in self.all_jobs.values() if job.request.name == name)

    def states(self, *names: str) -> list[JobState]:
        return [self.named(name).state for name in names]

    def finish(self, name: str, status: int = 0) -> None:
        """Run the job to its end."""
        job = self.named(name).id
        self.measure()
        self.run(job)
        for attempt in self.attempts(job):
            self.end(attempt, status)
        self.obey()
        self.measure()

    def restart(self) -> None:
        """Make a new engine of what was committed."""
        snapshot = Snapshot(instance=self.engine.records.instance, counters=self.counters, **self.unfinished())
        self.engine = Engine(self.settings, Policies(worst_fit, fpfs), snapshot)
        self.connect()

    def connect(self) -> None:
        for cluster in self.sizes:
            self.apply(ClusterConnected(cluster=cluster, version="22.05"))
        self.measure()


def counts(flow: Flow) -> tuple[int, int, int, int]:
    return flow.count, flow.done, flow.failed, flow.cancelled


@pytest.fixture
def grid() -> Flows:
    return Flows()


def test_a_job_is_blocked_and_claims_nothing_until_all_that_it_waits_for_is_done(grid: Flows) -> None:
    first, second = grid.submit(component(4)), grid.submit(component(4))
    third = grid.submit(component(4), after=(first, second))
    assert grid.job(third).state is BLOCKED
    for job, state in ((first, BLOCKED), (second, CLAIMING)):
        grid.run(job)
        for attempt in grid.attempts(job):
            grid.end(attempt)
        grid.obey()
        assert grid.job(third).state is state


def test_the_failure_of_a_job_is_passed_on_to_all_that_depends_on_it_with_the_chain_of_reasons(grid: Flows) -> None:
    grid.submit_flow(a=(), b=("a",), c=("b",), other=())
    grid.finish("a", status=3)
    assert grid.states("a", "b", "c") == [FAILED, FAILED, FAILED]
    assert grid.named("other").state is CLAIMING
    reason = grid.named("c").reason
    assert reason is not None
    assert reason.code == "prerequisite_failed"
    b, a = grid.named("b").id, grid.named("a").id
    assert f"It waited for job {b} (b), which waited for job {a} (a), which failed: " in reason.message
    assert "exit status 3" in reason.message
    failed = {each.job: dict(each.details) for each in grid.history if each.kind == "work_failed"}
    assert failed[grid.named("c").id]["chain"] == [b, a]
    assert failed[grid.named("c").id]["code"] == "prerequisite_failed"


@pytest.mark.parametrize("status", [0, 3], ids=["done", "failed"])
def test_after_a_restart_a_flow_takes_no_turn_itself_when_what_its_jobs_wait_for_ends(grid: Flows, status: int) -> None:
    first = grid.submit(component(4))
    jobs = (FlowJob(request=grid.request("a")), FlowJob(request=grid.request("b"), after=(0,)))
    grid.apply(WorkSubmitted(request=Request(name="flow", components=(), jobs=jobs, after=(first,)), owner="me"))
    grid.restart()
    grid.run(first)
    grid.end(grid.attempts(first)[0], status)
    grid.obey()
    grid.measure()
    ended = [FAILED, FAILED, FAILED] if status else [CLAIMING, BLOCKED, RUNNING]
    assert grid.states("a", "b", "flow") == ended


def test_a_flow_is_done_when_all_its_jobs_are(grid: Flows) -> None:
    flow = grid.submit_flow(a=(), b=("a",), c=("a", "b"))
    for name in "abc":
        assert grid.flows[flow].state is RUNNING
        grid.finish(name)
    assert grid.states("a", "b", "c", "flow") == [DONE] * 4
    assert grid.flows[flow].done == 3


def test_a_flow_with_a_failed_job_fails_at_its_last_end_and_names_the_job(grid: Flows) -> None:
    flow = grid.submit_flow(a=(), b=("a",), c=())
    grid.finish("a", status=1)
    assert grid.states("b", "c", "flow") == [FAILED, CLAIMING, RUNNING]
    grid.finish("c")
    whole = grid.flows[flow]
    assert whole.state is FAILED
    assert whole.reason is not None
    assert whole.reason.code == "flow_failed"
    assert f"Job {grid.named('a').id} (a) of the flow failed" in whole.reason.message


def test_a_flow_that_stops_on_a_failure_cancels_what_does_not_depend_on_it_too(grid: Flows) -> None:
    flow = grid.submit_flow(OnFailure.STOP, a=(), b=("a",), c=(), d=("c",))
    grid.run(grid.named("c").id)
    grid.finish("a", status=1)
    grid.obey()
    assert grid.states("a", "b", "c", "d") == [FAILED, FAILED, CANCELLED, CANCELLED]
    assert grid.flows[flow].state is FAILED


def test_jobs_that_end_in_one_commit_are_all_counted(grid: Flows) -> None:
    flow = grid.submit_flow(a=(), b=(), c=("a", "b"))
    for name in "ab":
        grid.run(grid.named(name).id)
    attempts = [attempt for name in "ab" for attempt in grid.attempts(grid.named(name).id)]
    for attempt in attempts:
        grid.end(attempt)
    grid.apply(*(AttemptCleanedUp(attempt=attempt) for attempt in attempts))
    grid.finish("c")
    assert grid.states("a", "b", "c", "flow") == [DONE] * 4
    assert counts(grid.flows[flow]) == (3, 3, 0, 0)


def test_a_flow_of_which_several_jobs_end_at_once_counts_all_of_them(grid: Flows) -> None:
    flow = grid.submit_flow(OnFailure.STOP, a=(), b=("a",), c=("b",), d=("a",))
    grid.apply(CancelRequested(grid.named("a").id))
    grid.obey()
    assert counts(grid.flows[flow]) == (4, 0, 3, 1)
    assert grid.flows[flow].state is FAILED


def test_the_cancel_of_a_flow_cancels_all_its_jobs(grid: Flows) -> None:
    flow = grid.submit_flow(a=(), b=("a",), c=("b",))
    grid.run(grid.named("a").id)
    grid.apply(CancelRequested(flow))
    assert grid.states("b", "c", "flow") == [CANCELLED, CANCELLED, JobState.STOPPING]
    grid.obey()
    assert grid.states("a", "b", "c", "flow") == [CANCELLED] * 4


def test_the_cancel_of_one_job_fails_what_waits_for_it(grid: Flows) -> None:
    grid.submit_flow(a=(), b=("a",), c=("b",))
    grid.apply(CancelRequested(grid.named("b").id))
    assert grid.states("a", "b", "c") == [CLAIMING, CANCELLED, FAILED]
    assert "was cancelled" in str(grid.named("c").reason)


def test_a_held_flow_goes_on_where_it_was_once_it_is_released(grid: Flows) -> None:
    flow = grid.submit_flow(a=(), b=("a",), c=("b",))
    grid.run(grid.named("a").id)
    grid.apply(HoldRequested(flow))
    assert grid.states("a", "b", "c") == [RUNNING, HELD, HELD]
    for attempt in grid.attempts(grid.named("a").id):
        grid.end(attempt)
    grid.obey()
    assert grid.states("a", "b", "c") == [DONE, HELD, HELD]
    grid.apply(ReleaseRequested(flow))
    assert grid.states("b", "c") == [CLAIMING, BLOCKED]


def test_a_held_job_fails_with_what_it_waits_for(grid: Flows) -> None:
    grid.submit_flow(a=(), b=("a",))
    grid.apply(HoldRequested(grid.named("b").id))
    grid.apply(CancelRequested(grid.named("a").id))
    grid.obey()
    assert grid.states("a", "b") == [CANCELLED, FAILED]


def test_a_job_that_never_fits_fails_what_waits_for_it_in_the_same_commit(grid: Flows) -> None:
    jobs = (
        FlowJob(request=Request(name="large", components=(component(100),))),
        FlowJob(request=grid.request("b"), after=(0,)),
    )
    grid.apply(WorkSubmitted(request=Request(name="flow", components=(), jobs=jobs), owner="me"))
    assert grid.states("large", "b", "flow") == [FAILED] * 3


def test_a_job_may_wait_for_jobs_that_are_known_to_be_done(grid: Flows) -> None:
    first = grid.submit(component(4))
    grid.run(first)
    for attempt in grid.attempts(first):
        grid.end(attempt)
    grid.obey()
    grid.apply(WorkSubmitted(request=make(component(4), after=(first,)), owner="me", done=(first,)))
    assert grid.job(JobId(first + 1)).state is CLAIMING


def test_a_job_is_not_accepted_while_a_prerequisite_is_not_known(grid: Flows) -> None:
    grid.apply(WorkSubmitted(request=make(component(4), after=(JobId(17),)), owner="me"))
    assert not grid.all_jobs


def test_the_roots_of_a_flow_wait_for_what_the_flow_waits_for(grid: Flows) -> None:
    first = grid.submit(component(4))
    jobs = (FlowJob(request=grid.request("a")), FlowJob(request=grid.request("b"), after=(0,)))
    grid.apply(WorkSubmitted(request=Request(name="flow", components=(), jobs=jobs, after=(first,)), owner="me"))
    assert grid.states("a", "b", "flow") == [BLOCKED, BLOCKED, RUNNING]
    grid.apply(CancelRequested(first))
    grid.obey()
    assert grid.states("a", "b", "flow") == [FAILED] * 3


def test_a_flow_is_submitted_once_for_its_key(grid: Flows) -> None:
    first = grid.submit_flow(key="mine", a=(), b=("a",))
    assert grid.submit_flow(key="mine", a=(), b=("a",)) == first
    assert len(grid.all_jobs) == 3


def test_a_new_engine_goes_on_with_the_flow_at_every_commit(grid: Flows) -> None:
    grid.submit_flow(a=(), b=("a",), c=("a", "b"))
    for name in "abc":
        grid.restart()
        grid.finish(name)
        grid.restart()
    assert grid.states("a", "b", "c", "flow") == [DONE] * 4


def test_a_new_engine_knows_what_is_held_and_blocked(grid: Flows) -> None:
    flow = grid.submit_flow(a=(), b=("a",), c=("b",))
    grid.apply(HoldRequested(grid.named("b").id))
    grid.restart()
    grid.apply(ReleaseRequested(flow))
    assert grid.states("b", "c") == [BLOCKED, BLOCKED]
    grid.apply(CancelRequested(flow))
    grid.obey()
    assert grid.states("a", "b", "c", "flow") == [CANCELLED] * 4


def test_a_long_chain_has_a_short_reason(grid: Flows) -> None:
    names = [f"j{number}" for number in range(500)]
    waits: dict[str, Any] = {name: (names[place - 1],) if place else () for place, name in enumerate(names)}
    grid.submit_flow(**waits)
    grid.apply(CancelRequested(grid.named("j0").id))
    grid.obey()
    reason = str(grid.named("j499").reason)
    assert "(j0), which was cancelled" in reason
    assert len(reason) < 600
    assert grid.named("flow").state is FAILED


@pytest.mark.parametrize(("retrials", "tries"), [(0, 1), (2, 3)])
def test_a_claim_is_tried_again_as_often_as_the_job_allows(grid: Flows, retrials: int, tries: int) -> None:
    job = grid.submit(component(4, "alpha"), retrials=retrials)
    assert _failed_claims(grid, job, 20) == tries
    assert grid.job(job).state is FAILED


def test_a_claim_is_tried_again_for_ever(grid: Flows) -> None:
    job = grid.submit(component(4, "alpha"), retrials=FOREVER)
    assert _failed_claims(grid, job, 40) == 40


def _failed_claims(grid: Flows, job: JobId, most: int) -> int:
    for count in range(most):
        while grid.job(job).state is JobState.WAITING:
            grid.wake()
            grid.measure()
        if grid.job(job).state is not CLAIMING:
            return count
        grid.apply(SubmissionFailed(attempt=grid.attempts(job)[0], reason=BUSY_QUEUE))
        grid.obey()
    return most


def test_the_index_forgets_all_that_is_over(grid: Flows) -> None:
    grid.submit_flow(a=(), b=("a",), c=())
    grid.apply(CancelRequested(grid.named("flow").id))
    grid.obey()
    index: Any = grid.engine.core.prerequisites
    assert not any((index.ended, index.left, index._dependants, index._unmet))
