"""The engine as one machine: jobs in, commands out, told by a hand what happens on the clusters."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import (
    CancelComponent,
    CollectOutput,
    Command,
    ForgetComponent,
    ReleaseComponent,
    SubmitComponent,
    WatchCluster,
)
from koalapy.model.errors import Reason
from koalapy.model.events import (
    CancelRequested,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    ComponentGone,
    ComponentReported,
    ComponentSeen,
    ComponentSubmitted,
    Event,
    HoldRequested,
    JobSubmitted,
    OutputCollected,
    ReleaseRequested,
    SubmissionFailed,
)
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.job import Debt, History, Job
from koalapy.model.request import ComponentRequest, Request, RetryOn, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fcfs, fpfs
from koalapy.scheduler.schedule import Policies

INSTANCE = InstanceId("abcde")
SIZES = {"alpha": 32, "beta": 16, "gamma": 16}
UNREACHABLE = Reason("unreachable", "transient", "Its head node does not answer.", "Look at the network.")
BUSY_QUEUE = Reason("refused", "transient", "The batch system is busy.", "", command="sbatch", exit_status=1)


class Play:
    """A grid played by hand: keeps every job's last record, checks each step, and answers for idle clusters."""

    def __init__(self, settings: Settings | None = None, queueing: str = "fpfs", sizes: dict[str, int] = SIZES) -> None:
        self.now = Instant(1_000_000 * SECOND)
        self.sizes = sizes
        self.settings = settings or Settings(clusters=tuple(ClusterSettings(name=n, batch="slurm") for n in sizes))
        policy = {"fcfs": fcfs, "fpfs": fpfs}[queueing]
        self.engine = Engine(self.settings, Policies(worst_fit, policy), Snapshot(instance=INSTANCE))
        self.jobs: dict[JobId, Job] = {}
        self.debts: dict[AttemptId, Debt] = {}
        self.history: list[History] = []
        self.pending: list[Command] = []
        self.down: set[str] = set()
        for cluster in sizes:
            self.tell(ClusterConnected(cluster=cluster, version="22.05"))
        self.measure()

    def tell(self, *events: Event, after: Duration = Duration(1000)) -> list[Command]:
        """The commands that these events lead to, polling hints left out."""
        self.now = Instant(self.now + after)
        step = self.engine.handle(self.now, events)
        self.jobs |= {job.id: job for job in step.jobs}
        self.history += step.history
        self.debts |= {debt.attempt: debt for debt in step.debts}
        for attempt in step.settled:
            del self.debts[attempt]
        commands = [command for command in step.commands if not isinstance(command, WatchCluster)]
        self.pending += commands
        return commands

    def measure(self, **others: int) -> list[Command]:
        """Measurements of every reachable cluster: its allocated batch jobs are those with a started one."""
        return self.tell(*(self.measurement(name, others.get(name, 0)) for name in self.sizes if name not in self.down))

    def measurement(self, cluster: str, others: int = 0, pending: Iterable[AttemptId] = ()) -> ClusterMeasured:
        allocated = [
            (job.attempt_of(each), each.processors)
            for job in self.jobs.values()
            for each in job.live
            if each.cluster == cluster and each.allocated_at is not None
        ]
        ours = sum(processors for _, processors in allocated)
        state = ClusterState(
            measured_at=self.now,
            total=self.sizes[cluster],
            idle=self.sizes[cluster] - ours - others,
            ours=ours,
            others=others,
            waiting_local=0,
            allocated=tuple(tag_of(INSTANCE, attempt) for attempt, _ in allocated),
            pending=tuple(tag_of(INSTANCE, attempt) for attempt in pending),
        )
        return ClusterMeasured(cluster=cluster, state=state)

    def submit(self, *components: ComponentRequest, **request: object) -> JobId:
        self.tell(JobSubmitted(request=make(*components, **request), owner="me"))
        return max(self.jobs)

    def job(self, job: JobId) -> Job:
        return self.jobs[job]

    def attempts(self, job: JobId) -> list[AttemptId]:
        return [self.job(job).attempt_of(each) for each in self.job(job).components if each.cluster]

    def come(self, *attempts: AttemptId) -> None:
        """These attempts' batch jobs start and enter their barriers."""
        for attempt in attempts:
            self.tell(ComponentSubmitted(attempt=attempt, batch_id=str(attempt)))
            self.tell(self.report(attempt, "at_barrier", at_barrier_at=self.now))

    def report(self, attempt: AttemptId, phase: str, **facts: object) -> ComponentReported:
        processors = self.job(attempt.job).components[attempt.component].processors
        nodes = (Node(f"n{attempt.component}", f"10.0.0.{attempt.component}", processors),)
        return ComponentReported(attempt=attempt, batch_id=str(attempt), phase=phase, nodes=nodes, **facts)  # type: ignore[arg-type]

    def run(self, job: JobId) -> None:
        self.come(*self.attempts(job))
        for attempt in self.attempts(job):
            self.tell(self.report(attempt, "running", released_at=self.now, started_at=self.now))

    def end(self, attempt: AttemptId, status: int | None = 0, ending: str = "exited", **facts: object) -> list[Command]:
        return self.tell(self.report(attempt, "ended", exit_status=status, ending=ending, ended_at=self.now, **facts))

    def obey(self) -> None:
        """Every reachable cluster ends what it was told to end."""
        todo, self.pending = self.pending, []
        for command in todo:
            if isinstance(command, CancelComponent) and command.cluster not in self.down:
                self.tell(ComponentGone(attempt=command.attempt))
            elif isinstance(command, CancelComponent):
                self.pending.append(command)

    def lose(self, cluster: str) -> list[Command]:
        self.down.add(cluster)
        return self.tell(ClusterLost(cluster=cluster, reason=UNREACHABLE))

    def reach(self, cluster: str) -> list[Command]:
        self.down.discard(cluster)
        commands = self.tell(ClusterConnected(cluster=cluster, version="22.05"))
        self.obey()
        return commands + self.tell(self.measurement(cluster))

    def wake(self) -> list[Command]:
        """Let time pass until the engine asked to be woken."""
        moment = self.engine.next_wakeup()
        assert moment is not None, "the engine waits for nothing"
        return self.tell(after=Duration(max(1, moment - self.now)))

    @property
    def kinds(self) -> list[str]:
        return [each.kind for each in self.history]


def component(processors: int, cluster: str | None = None, **fields: object) -> ComponentRequest:
    return ComponentRequest(processors=processors, executable="./program", cluster=cluster, **fields)  # type: ignore[arg-type]


def make(*components: ComponentRequest, **fields: object) -> Request:
    return Request(name="job", components=components, **fields)  # type: ignore[arg-type]


@pytest.fixture
def play() -> Iterator[Play]:
    game = Play()
    yield game
    for job in game.jobs.values():
        over = job.state.final and any(not each.gone for each in job.components)
        assert not over, f"job {job.id} is {job.state} and something of it is left"


def test_an_unordered_job_goes_to_the_emptiest_clusters_and_starts_only_when_all_have_come(play: Play) -> None:
    job = play.submit(component(4), component(4), component(4))
    assert [each.cluster for each in play.job(job).components] == ["alpha", "beta", "gamma"]
    first, second, third = play.attempts(job)
    play.come(first, second)
    assert not any(isinstance(command, ReleaseComponent) for command in play.pending)
    play.come(third)
    released = [command for command in play.pending if isinstance(command, ReleaseComponent)]
    assert [command.first_rank for command in released] == [0, 4, 8]
    assert len(released[0].hosts) == 12
    assert play.job(job).state is JobState.RUNNING


def test_a_job_is_done_when_nothing_of_it_is_left(play: Play) -> None:
    job = play.submit(component(4), component(4))
    play.run(job)
    for attempt in play.attempts(job):
        play.end(attempt)
    assert play.job(job).state is JobState.STOPPING
    play.obey()
    assert play.job(job).state is JobState.DONE
    assert play.job(job).held > 0


def test_what_is_promised_is_not_promised_again(play: Play) -> None:
    first = play.submit(component(32, "alpha"), component(16, "beta"))
    second = play.submit(component(16, "beta"), component(32, "alpha"))
    assert play.job(first).state is JobState.CLAIMING
    assert play.job(second).state is JobState.WAITING
    play.measure()
    assert play.job(second).state is JobState.WAITING
    play.run(first)
    for attempt in play.attempts(first):
        play.end(attempt)
    play.obey()
    play.measure()
    assert play.job(second).state is JobState.CLAIMING
    assert play.job(second).submission_failures == 0


def test_a_claim_time_out_gives_everything_back_and_counts_once(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    play.come(play.attempts(job)[0])
    play.wake()
    assert play.job(job).state is JobState.STOPPING
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "claim_timeout"  # type: ignore[union-attr]
    place = play.job(job).place
    play.obey()
    again = play.job(job)
    assert again.submission_failures == 1
    assert again.place > place
    assert again.held >= 4 * play.settings.claim_timeout


def test_at_the_maximum_of_submission_failures_the_job_is_removed_with_the_reason(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    for _ in range(play.settings.max_submission_failures):
        assert play.job(job).state is JobState.CLAIMING
        play.tell(SubmissionFailed(attempt=play.attempts(job)[0], reason=BUSY_QUEUE))
        play.measure()
    assert play.job(job).state is JobState.FAILED
    assert "busy" in str(play.job(job).reason)


def test_completion_failures_are_bounded_and_reset_the_submission_count(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.tell(SubmissionFailed(attempt=play.attempts(job)[0], reason=BUSY_QUEUE))
    for count in range(play.settings.max_completion_failures + 1):
        assert play.job(job).state is JobState.CLAIMING
        play.run(job)
        play.end(play.attempts(job)[0], 137, "killed")
        play.obey()
        assert play.job(job).completion_failures == count + 1
        assert play.job(job).submission_failures == 0
        play.measure()
    assert play.job(job).state is JobState.FAILED


@pytest.mark.parametrize(
    ("retry_on", "state"), [((RetryOn.LOST,), JobState.FAILED), ((RetryOn.EXIT,), JobState.CLAIMING)]
)
def test_an_exit_status_is_the_answer_unless_the_job_says_otherwise(
    play: Play, retry_on: tuple[RetryOn, ...], state: JobState
) -> None:
    job = play.submit(component(4), retry_on=retry_on)
    play.run(job)
    play.end(play.attempts(job)[0], 3)
    play.obey()
    play.measure()
    assert play.job(job).state is state


def test_a_missing_executable_fails_at_once(play: Play) -> None:
    job = play.submit(component(4), component(4))
    reason = Reason("no_executable", "request", "There is no ./program.", "Stage it in.")
    play.tell(ComponentSubmitted(attempt=play.attempts(job)[0], batch_id="1"))
    play.end(play.attempts(job)[0], ending="failed", reason=reason)
    play.obey()
    assert play.job(job).state is JobState.FAILED
    assert "no_executable" in play.job(job).reason.code  # type: ignore[union-attr]


def test_a_cluster_that_refuses_is_left_out_and_the_next_choice_is_tried(play: Play) -> None:
    job = play.submit(component(4))
    refused = Reason("no_such_queue", "request", "No queue.", "", command="sbatch", exit_status=1)
    play.tell(SubmissionFailed(attempt=play.attempts(job)[0], reason=refused))
    assert play.job(job).components[0].cluster == "beta"
    assert play.job(job).submission_failures == 0


def test_an_unreachable_cluster_costs_no_retry(play: Play) -> None:
    play.lose("gamma")
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    play.measure()
    assert play.job(job).state is JobState.WAITING
    play.reach("gamma")
    assert play.job(job).state is JobState.CLAIMING
    assert play.job(job).submission_failures == 0


def test_what_cannot_be_reached_is_a_debt_until_it_can_be(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    first, lost = play.attempts(job)
    play.come(first)
    play.lose("gamma")
    play.wake()
    play.obey()
    assert play.job(job).state is JobState.WAITING
    assert list(play.debts) == [lost]
    play.reach("gamma")
    assert not play.debts
    play.measure()
    assert play.job(job).state is JobState.CLAIMING


def test_a_component_running_out_of_reach_is_unknown_until_its_cluster_answers(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    attempt = play.attempts(job)[0]
    play.lose("alpha")
    assert play.job(job).components[0].state is ComponentState.UNKNOWN
    assert play.job(job).state is JobState.RUNNING
    play.reach("alpha")
    play.tell(play.report(attempt, "running", released_at=play.now, started_at=play.now))
    assert play.job(job).components[0].state is ComponentState.RUNNING
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_only_force_ends_a_job_that_runs_out_of_reach(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.tell(CancelRequested(job))
    assert play.job(job).state is JobState.STOPPING
    play.tell(CancelRequested(job, force=True))
    assert play.job(job).state is JobState.CANCELLED
    assert play.debts
    play.reach("alpha")
    assert not play.debts


def test_the_release_waits_for_a_cluster_that_cannot_be_told(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    first, second = play.attempts(job)
    play.come(first)
    play.tell(ComponentSubmitted(attempt=second, batch_id="2"))
    play.lose("alpha")
    play.tell(play.report(second, "at_barrier", at_barrier_at=play.now))
    assert play.job(job).state is JobState.CLAIMING
    play.reach("alpha")
    assert play.job(job).state is JobState.RUNNING


def test_fcfs_lets_nobody_pass() -> None:
    play = Play(queueing="fcfs")
    play.measure(alpha=32)
    first = play.submit(component(32, "alpha"))
    second = play.submit(component(4, "beta"))
    assert [play.job(job).state for job in (first, second)] == [JobState.WAITING, JobState.WAITING]


def test_fpfs_lets_the_first_waiting_job_be_passed_so_often_and_no_more() -> None:
    settings = alike(max_overtakes=3)
    play = Play(settings)
    play.measure(alpha=32)
    first = play.submit(component(32, "alpha"))
    passing = [play.submit(component(1, "beta")) for _ in range(5)]
    states = [play.job(job).state for job in passing]
    assert states == [JobState.CLAIMING] * 3 + [JobState.WAITING] * 2
    assert play.job(first).overtaken == 3


def test_a_job_out_of_reach_does_not_hold_up_the_others() -> None:
    settings = alike(max_overtakes=0)
    play = Play(settings)
    play.lose("gamma")
    play.submit(component(4, "gamma"))
    job = play.submit(component(4, "beta"))
    assert play.job(job).state is JobState.CLAIMING


def test_priority_comes_before_arrival(play: Play) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    low = play.submit(component(32), priority=15)
    high = play.submit(component(32), priority=5)
    play.measure()
    assert play.job(high).state is JobState.CLAIMING
    assert play.job(low).state is JobState.WAITING


def test_a_circle_of_holding_and_waiting_is_broken_at_once_and_uncounted(play: Play) -> None:
    settings = replace(play.settings, queue_after=Duration(0))
    play = Play(settings)
    play.measure(alpha=32, beta=16)
    older = play.submit(component(32, "alpha"), component(16, "beta"), when_busy=WhenBusy.QUEUE)
    younger = play.submit(component(16, "beta"), component(32, "alpha"), when_busy=WhenBusy.QUEUE)
    assert [play.job(job).state for job in (older, younger)] == [JobState.CLAIMING] * 2
    a_alpha, a_beta = play.attempts(older)
    b_beta, b_alpha = play.attempts(younger)
    for attempt in (a_alpha, a_beta, b_beta, b_alpha):
        play.tell(ComponentSubmitted(attempt=attempt, batch_id=str(attempt)))
    play.come(a_alpha)
    play.come(b_beta)
    play.tell(play.measurement("alpha", pending=[b_alpha]), play.measurement("beta", pending=[a_beta]))
    assert play.job(younger).state is JobState.STOPPING
    assert play.job(older).state is JobState.CLAIMING
    play.obey()
    assert play.job(younger).submission_failures == 0


def test_an_optional_component_may_be_missing(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma", optional=True))
    needed, late = play.attempts(job)
    play.come(needed)
    play.tell(ComponentSubmitted(attempt=late, batch_id="late"))
    play.wake()
    assert play.job(job).state is JobState.RUNNING
    assert play.job(job).components[1].state is ComponentState.CANCELLED
    play.end(needed)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_a_held_job_waits_for_its_user(play: Play) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    job = play.submit(component(4))
    play.tell(HoldRequested(job))
    play.measure()
    assert play.job(job).state is JobState.HELD
    play.tell(ReleaseRequested(job))
    assert play.job(job).state is JobState.CLAIMING


def test_a_job_that_never_fits_fails_with_what_to_change(play: Play) -> None:
    job = play.submit(component(100))
    assert play.job(job).state is JobState.FAILED
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "too_large"  # type: ignore[union-attr]
    assert "alpha has 32" in str(play.job(job).reason)


def test_output_is_brought_before_the_job_is_done(play: Play) -> None:
    job = play.submit(component(4), stage_out=("result.npy",))
    play.run(job)
    commands = play.end(play.attempts(job)[0])
    assert [type(command) for command in commands] == [CancelComponent, CollectOutput]
    play.obey()
    assert play.job(job).state is JobState.RUNNING
    play.tell(OutputCollected(job=job))
    assert play.job(job).state is JobState.DONE


def test_a_batch_job_killed_by_an_administrator_is_a_completion_failure(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    play.run(job)
    first, second = play.attempts(job)
    play.tell(ComponentSeen(attempt=first, batch_id="1", at=play.now, state="ended", ending="cancelled"))
    assert play.job(job).state is JobState.STOPPING
    play.obey()
    play.end(second, 143, "cancelled")
    assert play.job(job).completion_failures == 1


@pytest.mark.parametrize(("ending", "status"), [("killed", 143), ("restarted", None), ("left_barrier", None)])
def test_what_the_wrapper_says_of_a_lost_attempt_does_not_make_it_final(
    play: Play, ending: str, status: int | None
) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    said = Reason("signalled", "site", "The batch system told the job to stop (SIGTERM).", "Ask it why.")
    play.end(play.attempts(job)[0], status, ending, reason=said)
    play.obey()
    play.measure()
    assert play.job(job).completion_failures == 1
    assert play.job(job).state is JobState.CLAIMING


def test_forgotten_is_not_finished(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    attempt = play.attempts(job)[0]
    play.tell(ComponentSeen(attempt=attempt, batch_id="1", at=play.now, state="missing"))
    assert play.job(job).components[0].state is ComponentState.UNKNOWN
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_unknown_has_an_end(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.tell(ComponentSeen(attempt=play.attempts(job)[0], batch_id="1", at=play.now, state="missing"))
    play.wake()
    play.obey()
    play.measure()
    assert play.job(job).completion_failures == 1


def test_the_directories_of_past_tries_are_forgotten(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    attempt = play.attempts(job)[0]
    play.end(attempt, 137, "killed")
    (cancel,) = [command for command in play.pending if isinstance(command, CancelComponent)]
    commands = play.tell(ComponentGone(attempt=cancel.attempt))
    assert ForgetComponent(cluster="alpha", attempt=attempt) in commands


def test_the_same_key_makes_one_job(play: Play) -> None:
    request = make(component(4))
    play.tell(JobSubmitted(request=request, owner="me", key="k"))
    play.tell(JobSubmitted(request=request, owner="me", key="k"))
    assert len(play.jobs) == 1


def test_a_job_may_go_into_the_shortest_queue_when_it_has_waited_long_enough(play: Play) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    job = play.submit(component(4), when_busy=WhenBusy.QUEUE)
    assert play.job(job).state is JobState.WAITING
    play.wake()
    commands = play.measure(alpha=32, beta=16, gamma=16)
    assert any(isinstance(command, SubmitComponent) for command in commands)
    assert play.job(job).patient


def test_two_cancels_in_one_batch_are_one(play: Play) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    job = play.submit(component(4))
    play.tell(CancelRequested(job), CancelRequested(job))
    assert play.job(job).state is JobState.CANCELLED


def test_a_key_is_known_beyond_the_end_of_its_job(play: Play) -> None:
    request = make(component(4000))
    play.tell(JobSubmitted(request=request, owner="me", key="k"))
    assert play.job(JobId(1)).state is JobState.FAILED
    play.tell(JobSubmitted(request=request, owner="me", key="k"))
    play.tell(JobSubmitted(request=request, owner="somebody", key="k"))
    assert [job.owner for job in play.jobs.values()] == ["me", "somebody"]


def test_the_directory_of_a_debt_is_forgotten_when_it_is_settled(play: Play) -> None:
    job = play.submit(component(4, "gamma"))
    (lost,) = play.attempts(job)
    play.lose("gamma")
    assert ForgetComponent(cluster="gamma", attempt=lost) not in play.wake()
    assert list(play.debts) == [lost]
    play.down.clear()
    play.tell(CancelRequested(job))
    commands = play.tell(ComponentGone(attempt=lost))
    assert commands == [ForgetComponent(cluster="gamma", attempt=lost)]
    assert not play.debts


def test_the_last_attempts_of_a_job_that_is_over_are_kept_for_its_output(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.tell(CancelRequested(job, force=True))
    play.reach("alpha")
    assert not play.debts
    assert not [command for command in play.pending if isinstance(command, ForgetComponent)]


def test_nothing_is_forgotten_before_its_cancel_is_done(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    first, second = play.attempts(job)
    play.tell(SubmissionFailed(attempt=first, reason=BUSY_QUEUE))
    commands = play.tell(SubmissionFailed(attempt=second, reason=BUSY_QUEUE))
    assert not commands
    assert play.job(job).state is JobState.STOPPING
    commands = play.tell(ComponentGone(attempt=second))
    assert ForgetComponent(cluster="beta", attempt=second) in commands
    assert play.job(job).submission_failures == 1


def test_an_optional_component_that_ends_early_is_cancelled_once(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta", optional=True))
    early = play.attempts(job)[1]
    play.come(early)
    commands = play.end(early, 137, "killed")
    assert [command for command in commands if isinstance(command, CancelComponent)] == [
        CancelComponent(cluster="beta", attempt=early, batch_id=str(early))
    ]


def test_what_is_told_late_of_a_past_try_changes_nothing(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    (attempt,) = play.attempts(job)
    play.measure(alpha=32)
    play.tell(SubmissionFailed(attempt=attempt, reason=BUSY_QUEUE))
    before = play.job(job)
    play.tell(ComponentSubmitted(attempt=attempt, batch_id="7"))
    assert play.job(job) == before


def grid(*clusters: ClusterSettings, **fields: object) -> Settings:
    return Settings(clusters=clusters, **fields)  # type: ignore[arg-type]


def alike(**fields: object) -> Settings:
    return grid(*(ClusterSettings(name=name, batch="slurm") for name in SIZES), **fields)


def test_whole_nodes_are_promised_where_allocation_is_exclusive() -> None:
    alpha = ClusterSettings(name="alpha", batch="slurm", processors_per_node=4, exclusive=True)
    play = Play(grid(alpha), sizes={"alpha": 8})
    jobs = [play.submit(component(1)) for _ in range(3)]
    assert [play.job(job).state for job in jobs] == [JobState.CLAIMING] * 2 + [JobState.WAITING]


def test_siblings_in_one_queue_fit_there_together() -> None:
    clusters = (ClusterSettings(name=name, batch="slurm", backlog=100) for name in ("alpha", "beta"))
    play = Play(grid(*clusters, queue_after=Duration(0)), sizes={"alpha": 8, "beta": 8})
    busy = play.measurement("beta", others=8)
    play.tell(play.measurement("alpha", others=8), replace(busy, state=replace(busy.state, waiting_local=3)))
    job = play.submit(component(6), component(6), when_busy=WhenBusy.QUEUE)
    assert [each.cluster for each in play.job(job).components] == ["alpha", "beta"]


def test_what_is_missing_out_of_reach_is_not_lost(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    missing = ComponentSeen(attempt=attempt, batch_id="1", at=play.now, state="missing")
    play.tell(missing)
    play.lose("alpha")
    assert play.engine.next_wakeup() is None
    play.tell(after=Duration(2 * play.settings.orphan_timeout))
    play.reach("alpha")
    assert play.job(job).state is JobState.RUNNING
    play.tell(missing)
    play.tell(after=Duration(play.settings.orphan_timeout))
    assert play.job(job).state is JobState.RUNNING
    play.wake()
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "lost"  # type: ignore[union-attr]


def test_a_koalad_that_slept_takes_nothing_for_lost(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.tell(ComponentSeen(attempt=attempt, batch_id="1", at=play.now, state="missing"))
    play.engine = Engine(
        play.settings, Policies(worst_fit, fpfs), Snapshot(instance=INSTANCE, jobs=tuple(play.jobs.values()))
    )
    play.tell(after=Duration(2 * play.settings.orphan_timeout))
    play.tell(ClusterConnected(cluster="alpha", version="22.05"))
    assert play.job(job).state is JobState.RUNNING
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_what_the_queue_lists_again_is_not_missing(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    for state in ("missing", "running"):
        play.tell(ComponentSeen(attempt=attempt, batch_id="1", at=play.now, state=state))
    assert play.job(job).components[0].state is ComponentState.RUNNING
    assert play.engine.next_wakeup() is None
    for state in ("missing", "suspended"):
        play.tell(ComponentSeen(attempt=attempt, batch_id="1", at=play.now, state=state))
    assert play.job(job).components[0].state is ComponentState.SUSPENDED
    assert play.engine.next_wakeup() is None


def test_a_cluster_out_of_reach_is_told_once(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.tell(ClusterLost(cluster="alpha", reason=BUSY_QUEUE))
    assert play.kinds.count("component_unknown") == 1


def test_nobody_is_released_after_the_barrier_is_over(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    first, second = play.attempts(job)
    play.come(first)
    play.tell(ComponentSubmitted(attempt=second, batch_id="2"), play.report(second, "started"))
    late = Duration(play.settings.barrier_timeout * 2)
    commands = play.tell(play.report(second, "at_barrier", at_barrier_at=Instant(play.now + late)), after=late)
    assert not any(isinstance(command, ReleaseComponent) for command in commands)
    assert play.job(job).state is JobState.STOPPING


@pytest.mark.parametrize("minutes", [1, 5, 60])
def test_koalad_gives_a_barrier_up_before_any_wrapper_leaves_it(minutes: int) -> None:
    play = Play(alike(barrier_timeout=Duration(minutes * 60 * SECOND)))
    for _ in range(20):
        job = play.submit(component(1, "alpha"), component(1, "beta"))
        first, second = play.attempts(job)
        submits = [each for each in play.pending if isinstance(each, SubmitComponent) and each.attempt == first]
        play.come(first)
        play.tell(play.report(second, "started"))
        ends = play.engine.next_wakeup()
        assert ends is not None
        assert ends + 5 * SECOND < play.job(job).components[0].at_barrier_at + submits[0].barrier_timeout  # type: ignore[operator]
        play.tell(CancelRequested(job))
        play.obey()


def test_at_the_claim_time_out_only_what_has_not_started_is_late(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma", optional=True))
    needed, late = play.attempts(job)
    play.tell(play.report(needed, "started"), ComponentSubmitted(attempt=late, batch_id="late"))
    play.wake()
    assert play.job(job).state is JobState.CLAIMING
    assert play.job(job).components[1].state is ComponentState.CANCELLED
    play.tell(play.report(needed, "at_barrier", at_barrier_at=play.now))
    assert play.job(job).state is JobState.RUNNING


def test_what_has_started_and_never_comes_is_not_awaited_for_ever(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.tell(play.report(play.attempts(job)[0], "started"))
    play.lose("alpha")
    play.wake()
    assert play.job(job).submission_failures == 1
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "barrier_timeout"  # type: ignore[union-attr]


def test_all_circles_are_broken_in_the_step_in_which_they_are_seen() -> None:
    sizes = dict.fromkeys(("a", "b", "c", "d"), 4)
    clusters = (ClusterSettings(name=name, batch="slurm") for name in sizes)
    play = Play(grid(*clusters, queue_after=Duration(0)), sizes=sizes)
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    play.measure(a=4, b=4, c=4, d=4)
    jobs = [play.submit(component(4, x), component(4, y), when_busy=WhenBusy.QUEUE) for x, y in pairs[::2]]
    play.come(*(play.attempts(job)[0] for job in jobs))
    jobs += [play.submit(component(4, x), component(4, y), when_busy=WhenBusy.QUEUE) for x, y in pairs[1::2]]
    play.come(*(play.attempts(job)[0] for job in jobs[2:]))
    waits = [play.attempts(job)[1] for job in jobs]
    play.tell(*(ComponentSubmitted(attempt=attempt, batch_id=str(attempt)) for attempt in waits))
    play.tell()
    play.tell(*(play.measurement(name, pending=waits) for name in sizes))
    assert [play.job(job).state for job in jobs] == [JobState.CLAIMING] * 2 + [JobState.STOPPING] * 2


def test_a_refusal_is_final_where_no_other_cluster_is_large_enough(play: Play) -> None:
    job = play.submit(component(32))
    refused = Reason("no_such_queue", "request", "No queue.", "", command="sbatch", exit_status=1)
    play.tell(SubmissionFailed(attempt=play.attempts(job)[0], reason=refused))
    assert play.job(job).state is JobState.FAILED


def test_the_next_try_does_not_wait_for_a_cluster_where_the_program_has_ended(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.end(attempt, 137, "killed")
    play.lose("alpha")
    assert play.job(job).state is JobState.WAITING
    assert list(play.debts) == [attempt]


def test_what_was_held_counts_for_those_that_left_their_barriers_too(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(2, "beta"))
    first, _ = play.attempts(job)
    play.come(first)
    began = play.job(job).components[0].at_barrier_at
    assert began is not None
    play.tell(after=Duration(7 * SECOND))
    play.end(first, ending="left_barrier")
    ended = play.job(job).components[0].ended_at
    assert ended is not None
    assert play.job(job).held == 4 * (ended - began)
    play.obey()
    assert play.job(job).held == 4 * (ended - began)


def test_what_was_told_to_end_has_not_failed(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.tell(CancelRequested(job))
    (attempt,) = play.attempts(job)
    play.tell(ComponentSeen(attempt=attempt, batch_id="1", at=play.now, state="ended", ending="cancelled"))
    assert play.job(job).components[0].state is ComponentState.CANCELLED
    (ended,) = [each for each in play.history if each.kind == "component_ended"]
    assert "message" not in ended.details


def test_all_components_of_a_job_on_a_cluster_out_of_reach_are_unknown(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    assert [each.state for each in play.job(job).components] == [ComponentState.UNKNOWN] * 2


def test_the_next_try_waits_for_what_was_only_taken_for_lost(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.tell(ComponentSeen(attempt=attempt, batch_id="1", at=play.now, state="missing"))
    play.wake()
    assert play.job(job).state is JobState.STOPPING
    play.lose("alpha")
    assert play.job(job).state is JobState.STOPPING
    play.reach("alpha")
    assert play.job(job).completion_failures == 1


def test_a_koalad_that_comes_late_leaves_nobody_out(play: Play) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma", optional=True))
    needed, late = play.attempts(job)
    play.come(needed)
    play.tell(play.report(late, "started"))
    commands = play.tell(after=Duration(2 * play.settings.barrier_timeout))
    assert not any(isinstance(command, ReleaseComponent) for command in commands)
    assert play.job(job).state is JobState.STOPPING
