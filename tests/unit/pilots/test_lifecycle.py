"""Pilots as the engine sees them: when their processors become a cluster, when it leaves, and when it is idle."""

from dataclasses import replace

import pytest
from engine_play import INSTANCE, UNREACHABLE, Play, alike, component

from koalapy.broker.fit import demand, misfit
from koalapy.engine import Engine
from koalapy.model.change import OutboxEntry, Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import CancelAttempt, Command, ForgetAttempt, GridHint
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
    PilotCloseRequested,
    PruneRequested,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job, job_value
from koalapy.model.pilot import Pilot, PilotRule, job_of_pilot, pilot_cluster, pilot_request, pilots_at_start
from koalapy.model.request import PilotOptions, RetryOn
from koalapy.model.states import JobState, PilotState
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.pilots.lifecycle import REFUSED, UNUSABLE
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.pilots import pilots

IDLE = Duration(2 * MINUTE)
INSIDE = ClusterSettings(name="pilot~1", batch="allocation", only_named=True)


class Held:
    """A grid with one pilot of four processors of alpha, job 1."""

    def __init__(self, play: Play | None = None, **terms: object) -> None:
        self.play = play or Play()
        request = pilot_request(component(4, "alpha"), PilotOptions(idle=IDLE, **terms))  # type: ignore[arg-type]
        fields = {each: getattr(request, each) for each in ("when_busy", "retry_on", "pilot")}
        self.pilot = self.play.submit(*request.components, **fields)

    def join(self) -> None:
        self.play.run(self.pilot)
        self.play.sizes = {**self.play.sizes, "pilot~1": 4}
        self.play.apply(ClusterJoined(settings=INSIDE))
        self.play.apply(ClusterConnected(cluster="pilot~1", version="1"))
        self.play.apply(self.play.measurement("pilot~1"))

    def leave(self) -> list[Command]:
        self.play.sizes = {name: size for name, size in self.play.sizes.items() if name != "pilot~1"}
        return self.play.apply(ClusterLeft(name="pilot~1"))

    @property
    def hints(self) -> list[str]:
        """The hints on its cluster so far."""
        grid = [each for each in self.play.hints if isinstance(each, GridHint)]
        assert all(each.name == "pilot~1" for each in grid)
        return [type(each).__name__ for each in grid]

    @property
    def record(self) -> Pilot:
        return self.play.pilot_records[self.pilot]

    @property
    def state(self) -> PilotState:
        return self.record.state

    @property
    def why(self) -> str:
        """Why it ends; "" as long as it does not."""
        reason = self.job.reason
        assert (self.state is PilotState.CLOSING) is (reason is not None)
        return "" if reason is None else reason.message

    @property
    def job(self) -> Job:
        return self.play.job(self.pilot)


def test_it_joins_when_its_program_runs_and_leaves_after_its_batch_job() -> None:
    held = Held()
    assert (held.hints, held.state) == ([], PilotState.BINDING)
    held.play.run(held.pilot)
    assert (held.hints, held.state) == (["JoinCluster"], PilotState.BOUND)
    held.join()
    held.play.measure()
    assert (held.hints, held.state) == (["JoinCluster"], PilotState.BOUND)
    held.play.apply(CancelRequested(held.pilot))
    assert (held.hints, held.state) == (["JoinCluster"], PilotState.CLOSING)
    held.play.obey()
    assert (held.hints, held.state) == (["JoinCluster", "LeaveCluster"], PilotState.CLOSING)
    held.leave()
    assert (held.hints, held.state) == (["JoinCluster", "LeaveCluster"], PilotState.ENDED)
    assert held.play.engine.core.pilots.records == {}


@pytest.mark.parametrize("close", [True, False], ids=["closed", "its job is cancelled"])
def test_one_that_never_ran_is_over_at_once_and_joins_nothing(close: bool) -> None:
    play = Play()
    play.down.add("alpha")
    play.lose("alpha")
    held = Held(play)
    assert (held.job.state, held.state) == (JobState.WAITING, PilotState.BINDING)
    held.play.apply(PilotCloseRequested(pilot=held.pilot) if close else CancelRequested(held.pilot))
    assert (held.job.state, held.state, held.hints) == (JobState.CANCELLED, PilotState.ENDED, [])


def test_one_that_ends_before_it_has_joined_takes_its_hint_back() -> None:
    held = Held()
    held.play.run(held.pilot)
    held.play.end(held.play.attempts(held.pilot)[0], None, "killed")
    held.play.obey()
    assert (held.hints, held.state) == (["JoinCluster", "LeaveCluster"], PilotState.FAILED)
    held.play.apply(ClusterJoined(settings=INSIDE))  # its change was under way
    assert held.hints == ["JoinCluster", "LeaveCluster", "LeaveCluster"]


def test_jobs_on_it_are_lost_with_it_and_not_before() -> None:
    held = Held()
    held.join()
    job = held.play.submit(component(2, "pilot~1"), retry_on=(RetryOn.LOST,))
    held.play.run(job)
    (attempt,) = held.play.attempts(held.pilot)
    held.play.end(attempt, None, "killed")
    assert held.play.job(job).state is JobState.RUNNING
    assert held.hints == ["JoinCluster"]  # its batch job may still be there
    held.play.obey()
    assert held.hints == ["JoinCluster", "LeaveCluster"]
    held.leave()
    assert held.play.job(job).state is JobState.FAILED
    assert held.play.job(job).reason is not None
    assert held.play.job(job).reason.code == "no_such_cluster"  # type: ignore[union-attr]


def test_it_ends_after_its_idle_time_and_not_while_a_job_is_there() -> None:
    held = Held()
    held.join()
    assert held.record.idle_since is not None
    job = held.play.submit(component(2, "pilot~1"))
    held.play.run(job)
    assert held.record.used
    held.play.apply(after=Duration(3 * IDLE))
    held.play.end(held.play.attempts(job)[0])
    held.play.obey()
    assert held.record.idle_since == held.play.now
    held.play.apply(after=Duration(IDLE - SECOND))
    assert held.why == ""
    commands = held.play.apply(after=SECOND)
    assert held.why == "Nothing ran on it for 2m."
    assert [each.attempt.job for each in commands if isinstance(each, CancelAttempt)] == [held.pilot]
    late = held.play.submit(component(2, "pilot~1"))
    assert list(held.play.job(late).present) == []


def test_the_engine_is_woken_when_the_idle_time_is_over() -> None:
    held = Held()
    held.join()
    since = held.record.idle_since
    assert since is not None
    while held.why == "":
        held.play.measure()
        held.play.wake()
    assert held.play.now - since < IDLE + SECOND


def test_a_drained_one_ends_at_once_when_nothing_is_there() -> None:
    held = Held()
    held.join()
    job = held.play.submit(component(2, "pilot~1"))
    held.play.run(job)
    held.play.apply(ClusterChanged(settings=replace(INSIDE, draining=True)))
    assert held.state is PilotState.DRAINING
    assert [each.state for each in pilots(held.play.engine)] == [PilotState.DRAINING]
    held.play.apply(ClusterChanged(settings=INSIDE))
    assert [held.state] == [PilotState.BOUND]
    held.play.apply(ClusterChanged(settings=replace(INSIDE, draining=True)))
    held.play.end(held.play.attempts(job)[0])
    held.play.obey()
    assert held.why == "It was drained."


@pytest.mark.parametrize("force", [False, True])
def test_one_that_is_used_is_closed_by_force_only(force: bool) -> None:
    held = Held()
    held.join()
    job = held.play.submit(component(2, "pilot~1"))
    held.play.run(job)
    held.play.apply(PilotCloseRequested(pilot=held.pilot, force=force))
    assert held.why == ("It was closed by its user." if force else "")
    held.play.end(held.play.attempts(job)[0])
    held.play.obey()
    held.play.apply(PilotCloseRequested(pilot=held.pilot))
    assert held.why == "It was closed by its user."


def test_one_that_cannot_be_used_ends_with_the_reason() -> None:
    held = Held()
    held.join()
    held.play.lose("pilot~1")
    held.play.apply(after=Duration(IDLE - SECOND))
    held.play.reach("pilot~1")
    assert held.why == ""
    held.play.lose("pilot~1")
    held.play.apply(after=SECOND)
    assert held.why == "Nothing ran on it for 2m."  # it was usable, and idle since then
    held = Held()
    held.play.run(held.pilot)
    held.play.apply(ClusterJoined(settings=INSIDE))
    assert held.record.unusable_since == held.play.now
    held.play.apply(ClusterLost(cluster="pilot~1", reason=UNREACHABLE), after=Duration(UNUSABLE - SECOND))
    assert held.why == ""
    held.play.apply(after=SECOND)
    assert held.why == f"It could not be used: {UNREACHABLE.message}"


def test_one_whose_nodes_all_refuse_ends_after_a_few_tries() -> None:
    why = Reason("no_nodes", "cluster", "No node of pbs job 11.epsilon can be used (epsilon: no such file).", "")
    held = Held()
    held.play.run(held.pilot)
    held.play.apply(ClusterJoined(settings=INSIDE))
    held.play.apply(ClusterLost(cluster="pilot~1", reason=why))
    held.play.apply(after=Duration(REFUSED - SECOND))
    assert held.why == ""
    held.play.apply(after=SECOND)
    assert held.why == f"It could not be used: {why.message}"


def test_kept_ones_are_opened_for_waiting_jobs_and_end_when_they_are_idle() -> None:
    terms = PilotOptions(idle=IDLE, shared=True, automatic=True)
    rule = PilotRule(least=0, most=2, waiting=MINUTE, request=pilot_request(component(4), terms), owner="me")
    play = Play(alike(pilots=(("alpha", rule),)))
    play.measure(beta=16, gamma=16, alpha=30)
    play.submit(component(4, walltime=MINUTE))
    play.measure(beta=16, gamma=16, alpha=30)
    assert play.pilot_records == {}
    play.apply(after=Duration(MINUTE - SECOND))
    assert play.pilot_records == {}
    play.wake()
    (opened,) = play.pilot_records.values()
    assert (opened.options, opened.host_cluster, play.job(opened.id).owner) == (terms, "alpha", "me")
    play.apply(after=Duration(10 * MINUTE))
    assert list(play.pilot_records) == [opened.id]  # one in a batch queue at a time


@pytest.mark.parametrize("automatic", [False, True], ids=["a person's", "koalapy's own"])
def test_the_least_of_the_kept_ones_stay(automatic: bool) -> None:
    terms = PilotOptions(idle=IDLE, shared=True, automatic=True)
    rule = PilotRule(least=1, most=2, waiting=MINUTE, request=pilot_request(component(4), terms))
    play = Play(alike(pilots=(("alpha", rule),)))
    held = Held(play, shared=True, automatic=automatic)  # the second one: the first is kept
    (kept, other) = sorted(held.play.pilot_records)
    for number in (kept, other):
        held.play.run(number)
        held.play.sizes = {**held.play.sizes, f"pilot~{number}": 4}
        held.play.apply(ClusterJoined(settings=replace(INSIDE, name=f"pilot~{number}")))
        held.play.apply(ClusterConnected(cluster=f"pilot~{number}", version="1"))
    held.play.measure()
    held.play.apply(after=Duration(3 * IDLE))
    states = [held.play.pilot_records[number].state for number in (kept, other)]
    assert sorted(states) == [PilotState.BOUND, PilotState.CLOSING]
    assert automatic or states[0] is PilotState.BOUND


def test_a_pilot_whose_record_is_missing_is_known_by_its_job() -> None:
    held = Held()
    held.join()
    row = held.play.engine.core.records.jobs[held.pilot]
    snapshot = Snapshot(instance=INSTANCE, jobs=(job_value(row),), counters=held.play.counters)
    clusters = (*held.play.settings.clusters, INSIDE)
    engine = Engine(replace(held.play.settings, clusters=clusters), Policies(worst_fit, fpfs), snapshot)
    (found,) = engine.handle(held.play.now, []).pilots
    assert (found.id, found.state) == (held.pilot, PilotState.BOUND)


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
    request = pilot_request(component(4, "alpha"), PilotOptions())
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
    assert [held.state] == [PilotState.CLOSING]
    held.leave()
    assert [held.state] == [PilotState.FAILED]


@pytest.mark.parametrize(
    ("name", "job"),
    [("pilot~7", 7), ("pilot~", None), ("pilot~x", None), ("alpha", None), ("pilot7", None), ("pilot~-1", None)],
)
def test_the_job_of_a_cluster_is_known_by_its_name(name: str, job: int | None) -> None:
    assert job_of_pilot(name) == job
    assert pilot_cluster(JobId(7)) == "pilot~7"


def test_its_program_ends_before_its_walltime() -> None:
    request = pilot_request(component(4, "alpha", walltime=Duration(10 * MINUTE)), PilotOptions())
    (held,) = request.components
    assert (held.executable, held.arguments, held.processes(2)) == ("sleep", ("595",), 1)


def test_a_starting_koalad_knows_those_that_run_or_have_run() -> None:
    held = Held()
    assert pilots_at_start([held.record]) == []
    held.join()
    assert pilots_at_start([held.record]) == [held.record]
    closing = replace(held.record, state=PilotState.CLOSING)
    assert pilots_at_start([closing]) == [closing]


def over(held: Held) -> list[Command]:
    """The pilot ends, and its cluster leaves."""
    held.play.apply(CancelRequested(held.pilot))
    held.play.obey()
    return held.leave()


def test_the_directory_of_a_job_is_removed_by_the_cluster_around_a_pilot_that_is_over() -> None:
    held = Held()
    held.join()
    job = held.play.submit(component(2, "pilot~1"))
    held.play.run(job)
    (attempt,) = held.play.attempts(job)
    held.play.end(attempt)
    held.play.obey()
    assert held.play.job(job).present[0].host_cluster == "alpha"
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


def test_a_job_is_pruned_though_koalad_starts_again_while_the_pilot_under_it_is_closing() -> None:
    held = Held()
    held.join()
    job = held.play.submit(component(2, "pilot~1"))
    held.play.run(job)
    (attempt,) = held.play.attempts(job)
    held.play.end(attempt)
    held.play.obey()
    wanted = PruneRequested(work=(held.play.job(job),), before=held.play.now, records=True)
    (asked,) = held.play.apply(wanted)
    held.play.apply(CancelRequested(held.pilot))
    assert held.state is PilotState.CLOSING
    start_again(held, asked)
    assert held.hints == ["JoinCluster"]  # its batch job may still be there
    held.play.obey()
    assert held.hints == ["JoinCluster", "LeaveCluster"]
    held.leave()
    assert [held.state] == [PilotState.ENDED]
    again = [each for each in held.play.apply(wanted) if isinstance(each, ForgetAttempt)]
    assert again == [ForgetAttempt(cluster="alpha", attempt=attempt)]


def start_again(held: Held, *unconfirmed: Command) -> None:
    """Another koalad goes on with what the former one has stored, and reaches the clusters that are no pilots."""
    play = held.play
    living = [job_value(each) for each in play.engine.core.records.jobs.values()]
    pilots = (held.record,)
    outbox = tuple(OutboxEntry(number, each) for number, each in enumerate(unconfirmed, start=1))
    snapshot = Snapshot(instance=INSTANCE, jobs=(*living,), counters=play.counters, pilots=pilots, outbox=outbox)
    clusters = (*play.settings.clusters, *(replace(INSIDE, name=each.name) for each in pilots_at_start(pilots)))
    play.engine = Engine(replace(play.settings, clusters=clusters), Policies(worst_fit, fpfs), snapshot)
    play.apply(*(ClusterConnected(cluster=each.name, version="22.05") for each in play.settings.clusters))


@pytest.mark.parametrize("why", ["held", "unusable", "drained", "ended there"])
def test_a_job_that_only_names_it_keeps_no_pilot_if_it_cannot_run_there(why: str) -> None:
    held = Held()
    held.join()
    if why != "ended there":
        held.play.lose("beta")
    job = held.play.submit(component(1, "beta"), component(2, "pilot~1"))
    assert held.record.idle_since is None
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
    since = held.record.idle_since or held.record.unusable_since
    assert since is not None or held.state is PilotState.CLOSING


def drains(held: Held) -> bool:
    return held.play.engine.core.information.clusters["pilot~1"].settings.draining


def test_nothing_is_placed_on_it_from_the_commit_that_ends_it() -> None:
    held = Held()
    held.join()
    assert not drains(held)
    held.play.apply(after=IDLE)
    assert held.state is PilotState.CLOSING
    assert drains(held)


def test_one_that_is_cancelled_before_it_runs_is_closing_at_once() -> None:
    held = Held()
    assert held.job.state is JobState.CLAIMING
    held.play.apply(CancelRequested(held.pilot))
    assert (held.job.state, held.state) == (JobState.STOPPING, PilotState.CLOSING)


def test_one_that_was_out_of_reach_and_is_used_again_has_all_of_its_time_afterwards() -> None:
    held = Held()
    held.join()
    held.play.lose("pilot~1")
    held.play.apply()
    held.play.reach("pilot~1")
    job = held.play.submit(component(2, "pilot~1"))
    held.play.run(job)
    assert (held.record.idle_since, held.record.unusable_since) == (None, None)
