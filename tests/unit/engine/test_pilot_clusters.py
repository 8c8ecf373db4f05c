"""Pilots as the engine sees them: when their processors become a cluster, when it leaves, and when it is idle."""

from dataclasses import replace

import pytest
from engine_play import UNREACHABLE, Play, component

from koalapy.broker.fit import demand, misfit
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import Command, ForgetAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptForgotten,
    CancelRequested,
    ClusterChanged,
    ClusterConnected,
    ClusterJoined,
    ClusterLeft,
    ClusterLost,
    HoldRequested,
    PruneRequested,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.pilot import PilotState, job_of_pilot, pilot_cluster, pilot_request, pilot_state
from koalapy.model.request import PilotTerms, Request, RetryOn
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.views.pilots import REFUSED, UNUSABLE, Upkeep, clusters_held, pilots, upkeep

IDLE = Duration(2 * MINUTE)
INSIDE = ClusterSettings(name="pilot~1", batch="allocation", only_named=True)


class Held:
    """A grid with one pilot of four processors of alpha, job 1, which is kept as koalad does."""

    def __init__(self, **terms: object) -> None:
        self.play = Play()
        request = pilot_request(component(4, "alpha"), PilotTerms(idle=IDLE, **terms))  # type: ignore[arg-type]
        fields = {each: getattr(request, each) for each in ("when_busy", "retry_on", "pilot")}
        self.pilot = self.play.submit(*request.components, **fields)
        self.joined: list[str] = []
        self.last = Upkeep()

    def keep(self) -> Upkeep:
        self.last = upkeep(self.play.engine, self.play.now, self.joined, self.last.idle)
        return self.last

    def join(self) -> None:
        self.play.run(self.pilot)
        self.joined = ["pilot~1"]
        self.play.sizes = {**self.play.sizes, "pilot~1": 4}
        self.play.apply(ClusterJoined(settings=INSIDE))
        self.play.apply(ClusterConnected(cluster="pilot~1", version="1"))
        self.play.apply(self.play.measurement("pilot~1"))

    @property
    def job(self) -> Job:
        return self.play.job(self.pilot)


def test_it_joins_when_its_program_runs_and_leaves_after_its_batch_job() -> None:
    held = Held()
    assert held.keep() == Upkeep()
    assert pilot_state(held.job) is PilotState.BINDING
    held.play.run(held.pilot)
    assert held.keep().join == (held.pilot,)
    held.join()
    assert (held.keep().join, held.keep().leave) == ((), ())
    assert pilot_state(held.job) is PilotState.BOUND
    held.play.apply(CancelRequested(held.pilot))
    assert (held.keep().leave, pilot_state(held.job)) == ((), PilotState.CLOSING)
    held.play.obey()
    assert pilot_state(held.job) is PilotState.OVER
    assert held.keep().leave == ("pilot~1",)


def test_jobs_on_it_are_lost_with_it_and_not_before() -> None:
    held = Held()
    held.join()
    job = held.play.submit(component(2, "pilot~1"), retry_on=(RetryOn.LOST,))
    held.play.run(job)
    (attempt,) = held.play.attempts(held.pilot)
    held.play.end(attempt, None, "killed")
    assert held.play.job(job).state is JobState.RUNNING
    assert held.keep().leave == ()  # its batch job may still be there
    held.play.obey()
    assert held.keep().leave == ("pilot~1",)
    held.play.apply(ClusterLeft(name="pilot~1"))
    assert held.play.job(job).state is JobState.FAILED
    assert held.play.job(job).reason is not None
    assert held.play.job(job).reason.code == "no_such_cluster"  # type: ignore[union-attr]


def test_it_ends_after_its_idle_time_and_not_while_a_job_is_there() -> None:
    held = Held()
    held.join()
    assert held.keep().end == {}
    job = held.play.submit(component(2, "pilot~1"))
    held.play.run(job)
    held.play.apply(after=Duration(3 * IDLE))
    assert (held.keep().end, held.last.idle) == ({}, {})
    held.play.end(held.play.attempts(job)[0])
    held.play.obey()
    assert held.keep().end == {}
    held.play.apply(after=Duration(IDLE - SECOND))
    assert held.keep().end == {}
    held.play.apply(after=Duration(SECOND))
    assert held.keep().end == {held.pilot: "Nothing ran on it for 2m."}


def test_a_drained_one_ends_at_once_when_nothing_is_there() -> None:
    held = Held()
    held.join()
    held.play.apply(ClusterChanged(settings=replace(INSIDE, draining=True)))
    assert held.keep().end == {held.pilot: "It was drained."}
    assert [each.draining for each in pilots(held.play.engine)] == [True]


def test_one_that_cannot_be_used_ends_with_the_reason() -> None:
    held = Held()
    held.join()
    held.play.lose("pilot~1")
    assert held.keep().end == {}
    held.play.apply(after=Duration(UNUSABLE - SECOND))
    assert held.keep().end == {}
    held.play.reach("pilot~1")
    assert held.keep().end == {}
    held.play.lose("pilot~1")
    held.play.apply(after=IDLE)
    assert list(held.keep().end) == [held.pilot]  # it was usable, and idle since then
    held = Held()
    held.play.run(held.pilot)
    held.joined = ["pilot~1"]
    held.play.apply(ClusterJoined(settings=INSIDE))
    assert held.keep().end == {}
    held.play.apply(ClusterLost(cluster="pilot~1", reason=UNREACHABLE), after=UNUSABLE)
    assert held.keep().end == {held.pilot: f"It could not be used: {UNREACHABLE.message}"}


def test_one_whose_nodes_all_refuse_ends_after_a_few_tries() -> None:
    why = Reason("no_nodes", "cluster", "No node of pbs job 11.epsilon can be used (epsilon: no such file).", "")
    held = Held()
    held.play.run(held.pilot)
    held.joined = ["pilot~1"]
    held.play.apply(ClusterJoined(settings=INSIDE))
    held.play.apply(ClusterLost(cluster="pilot~1", reason=why))
    assert held.keep().end == {}
    held.play.apply(after=Duration(REFUSED - SECOND))
    assert held.keep().end == {}
    held.play.apply(after=SECOND)
    assert held.keep().end == {held.pilot: f"It could not be used: {why.message}"}


def test_only_jobs_that_name_it_are_placed_there() -> None:
    held = Held()
    held.join()
    (summary,) = [each for each in held.play.engine.summaries(held.play.now) if each.name == "pilot~1"]
    refused = misfit(component(2), summary)
    assert isinstance(refused, Reason)
    assert refused.code == "only_named"
    assert demand(component(2), [summary]) == {}
    assert misfit(component(2, "pilot~1"), summary) is None
    others = [held.play.submit(component(16)) for _ in range(4)]
    assert {each.cluster for job in others for each in held.play.job(job).present} <= {"alpha", "beta", "gamma"}


def test_it_goes_into_a_busy_clusters_batch_queue_at_once() -> None:
    play = Play()
    play.measure(alpha=30)
    request = pilot_request(component(4, "alpha"), PilotTerms())
    pilot = play.submit(*request.components, when_busy=request.when_busy, retry_on=(), pilot=request.pilot)
    assert play.job(pilot).state is JobState.CLAIMING
    assert play.job(pilot).patient
    other = play.submit(component(4, "alpha"), when_busy=request.when_busy)
    assert play.job(other).state is JobState.WAITING


def test_it_is_never_tried_again_after_it_has_run() -> None:
    held = Held()
    held.join()
    (attempt,) = held.play.attempts(held.pilot)
    held.play.end(attempt, None, "killed")
    held.play.obey()
    assert held.job.state is JobState.FAILED
    assert pilot_state(held.job) is PilotState.FAILED


@pytest.mark.parametrize(
    ("name", "job"),
    [("pilot~7", 7), ("pilot~", None), ("pilot~x", None), ("alpha", None), ("pilot7", None), ("pilot~-1", None)],
)
def test_the_job_of_a_cluster_is_known_by_its_name(name: str, job: int | None) -> None:
    assert job_of_pilot(name) == job
    assert pilot_cluster(JobId(7)) == "pilot~7"


def test_its_program_ends_before_its_walltime() -> None:
    request = pilot_request(component(4, "alpha", walltime=Duration(10 * MINUTE)), PilotTerms())
    (held,) = request.components
    assert (held.executable, held.arguments, held.processes(2)) == ("sleep", ("595",), 1)


def test_a_starting_koalad_knows_those_that_run_and_those_with_attempts() -> None:
    held = Held()
    held.join()
    job = held.play.submit(component(2, "pilot~1"))
    attempts = held.play.job(job).present
    assert clusters_held([held.job], []) == [held.pilot]
    assert clusters_held([], attempts) == [held.pilot]
    assert clusters_held([replace(held.job, request=Request(name="other", components=()))], []) == []


def over(held: Held) -> list[Command]:
    """The pilot ends, and its cluster leaves."""
    held.play.apply(CancelRequested(held.pilot))
    held.play.obey()
    held.play.sizes = {name: size for name, size in held.play.sizes.items() if name != "pilot~1"}
    return held.play.apply(ClusterLeft(name="pilot~1"))


def test_the_directory_of_a_job_is_removed_by_the_cluster_around_a_pilot_that_is_over() -> None:
    held = Held()
    held.join()
    job = held.play.submit(component(2, "pilot~1"))
    held.play.run(job)
    (attempt,) = held.play.attempts(job)
    held.play.end(attempt)
    held.play.obey()
    assert held.play.job(job).present[0].around == "alpha"
    wanted = PruneRequested(work=(held.play.job(job),), before=held.play.now, records=True)
    asked = [each for each in held.play.apply(wanted) if isinstance(each, ForgetAttempt)]
    assert asked == [ForgetAttempt(cluster="pilot~1", attempt=attempt)]
    again = [each for each in over(held) if isinstance(each, ForgetAttempt)]
    assert again == [ForgetAttempt(cluster="alpha", attempt=attempt)]
    assert held.play.engine.core.pruning.under_way([job])
    held.play.apply(AttemptForgotten(cluster="alpha", attempt=attempt))
    assert not held.play.engine.core.pruning.under_way([job])


def test_what_is_pruned_after_a_pilot_is_over_and_what_is_tried_again_leaves_no_directory() -> None:
    held = Held()
    held.join()
    done = held.play.submit(component(1, "pilot~1"))
    tried = held.play.submit(component(1), component(1, "pilot~1"), retry_on=(RetryOn.LOST,))
    held.play.run(done)
    held.play.run(tried)
    held.play.end(held.play.attempts(done)[0])
    held.play.obey()
    there = held.play.attempts(tried)[1]
    over(held)
    held.play.obey()
    assert ForgetAttempt(cluster="alpha", attempt=there) in held.play.pending
    wanted = PruneRequested(work=(held.play.job(done),), before=held.play.now, records=False)
    (asked,) = [each for each in held.play.apply(wanted) if isinstance(each, ForgetAttempt)]
    assert asked == ForgetAttempt(cluster="alpha", attempt=AttemptId(done, 0, 1))


@pytest.mark.parametrize("why", ["held", "unusable", "drained", "ended there"])
def test_a_job_that_only_names_it_keeps_no_pilot_if_it_cannot_run_there(why: str) -> None:
    held = Held()
    held.join()
    if why != "ended there":
        held.play.lose("beta")
    job = held.play.submit(component(1, "beta"), component(2, "pilot~1"))
    assert held.keep().idle == {}
    if why == "held":
        held.play.apply(HoldRequested(job))
    elif why == "unusable":
        held.play.lose("pilot~1")
    elif why == "drained":
        held.play.apply(ClusterChanged(settings=replace(INSIDE, draining=True)))
    else:
        held.play.run(job)
        held.play.end(held.play.attempts(job)[1])
        held.play.obey()
    assert list(held.keep().idle) == [held.pilot]
