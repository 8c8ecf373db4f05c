"""A grid played by hand: the events of the engine's tests, and what they ask it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import CancelAttempt, Command, Hint, WatchCluster
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    Event,
    WorkSubmitted,
    WrapperReported,
)
from koalapy.model.history import History
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.job import Counters, Job
from koalapy.model.learned import Learned
from koalapy.model.lease import Lease
from koalapy.model.neighbour import Neighbour
from koalapy.model.parameters import ResultBatch
from koalapy.model.pilot import Pilot
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.sent import SentJob
from koalapy.model.settings import Settings
from koalapy.model.states import ReportedEnding, WrapperPhase
from koalapy.model.sweep import Sweep
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.model.work import Flow
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fcfs, fpfs
from koalapy.scheduler.schedule import Policies

INSTANCE = InstanceId("abcde")
SIZES = {"alpha": 32, "beta": 16, "gamma": 16}
UNREACHABLE = Reason("unreachable", "transient", "Its head node does not answer.", "Look at the network.")
BUSY_QUEUE = Reason("refused", "transient", "The batch system is busy.", "", command="sbatch", exit_status=1)


def present(job: Job, component: int = 0) -> Attempt:
    """The present attempt of a component, which has one."""
    found = job.attempt(component)
    assert found is not None
    return found


class Play:
    """A grid played by hand: keeps every job's last record, checks each step, and answers for idle clusters."""

    def __init__(
        self,
        settings: Settings | None = None,
        queueing: str = "fpfs",
        sizes: dict[str, int] = SIZES,
        neighbours: tuple[Neighbour, ...] = (),
        leases: tuple[Lease, ...] = (),
    ) -> None:
        """`neighbours`, `leases`: those that the store knows already."""
        self.now = Instant(1_000_000 * SECOND)
        self.sizes = sizes
        self.settings = settings or Settings(clusters=tuple(ClusterSettings(name=n, batch="slurm") for n in sizes))
        policy = {"fcfs": fcfs, "fpfs": fpfs}[queueing]
        snapshot = Snapshot(instance=INSTANCE, neighbours=neighbours, leases=leases)
        self.engine = Engine(self.settings, Policies(worst_fit, policy), snapshot)
        self.jobs: dict[JobId, Job] = {}
        self.sweeps: dict[JobId, Sweep] = {}
        self.flows: dict[JobId, Flow] = {}
        self.sent_jobs: dict[JobId, SentJob] = {}
        self.pilots: dict[AttemptId, Attempt] = {}
        self.pilot_records: dict[JobId, Pilot] = {}
        self.pending_cancels: dict[AttemptId, Attempt] = {}
        self.history: list[History] = []
        self.pending: list[Command] = []
        self.hints: list[Hint] = []  # those about polling left out
        self.results: list[ResultBatch] = []
        self.counters = Counters()
        self.learned = Learned()
        self.down: set[str] = set()
        self.urgent: dict[str, bool] = {}  # the last polling hint for each cluster
        for cluster in sizes:
            self.apply(ClusterConnected(cluster=cluster, version="22.05"))
        self.measure()

    def apply(self, *events: Event, after: Duration = Duration(1000)) -> list[Command]:
        """The commands that these events lead to, polling hints left out."""
        self.now = Instant(self.now + after)
        step = self.engine.handle(self.now, [from_its_own(self.engine, event) for event in events])
        self.jobs |= {job.id: job for job in step.jobs}
        self.sweeps |= {sweep.id: sweep for sweep in step.sweeps}
        self.flows |= {flow.id: flow for flow in step.flows}
        self.sent_jobs |= {job.id: job for job in step.sent_jobs}
        self.history += step.history
        self.pilot_records |= {each.id: each for each in step.pilots}
        for each in step.attempts:
            self.pending_cancels.pop(each.id, None)
            if each.launcher is not None:
                self.pilots[each.id] = each
            if each.is_pending_cancel:
                self.pending_cancels[each.id] = each
        self.hints += [hint for hint in step.hints if not isinstance(hint, WatchCluster)]
        self.results += step.results
        self.counters = step.counters or self.counters
        self.learned = step.learned or self.learned
        urgencies = [hint for hint in step.hints if isinstance(hint, WatchCluster)]
        self.urgent |= {hint.cluster: hint.urgent for hint in urgencies}
        commands = list(step.commands)
        self.pending += commands
        return commands

    def measure(self, **others: int) -> list[Command]:
        """Measurements of every reachable cluster: its allocated batch jobs are those with a started one."""
        return self.apply(
            *(self.measurement(name, others.get(name, 0)) for name in self.sizes if name not in self.down)
        )

    def measurement(self, cluster: str, others: int = 0, pending: Iterable[AttemptId] = ()) -> ClusterMeasured:
        allocated = [
            (each.id, each.processors)
            for each in self.live()
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

    def live(self) -> list[Attempt]:
        """The attempts of all jobs and pilots that are neither cleaned up nor detached."""
        of_jobs = [each for job in self.jobs.values() for each in job.live]
        return [*of_jobs, *(each for each in self.pilots.values() if not each.let_go)]

    def submit(self, *components: ComponentRequest, **request: object) -> JobId:
        self.apply(WorkSubmitted(request=make(*components, **request), owner="me"))
        return max(self.all_jobs)

    def job(self, job: JobId) -> Job:
        return self.jobs[job]

    @property
    def all_jobs(self) -> dict[JobId, Job | Flow | SentJob]:
        """The jobs, flows and sent jobs, by id."""
        found: dict[JobId, Job | Flow | SentJob] = {**self.jobs, **self.flows, **self.sent_jobs}
        return dict(sorted(found.items()))

    def unfinished(self) -> dict[str, Any]:
        """The same that are not final, as a snapshot has them."""
        kinds: dict[str, dict[JobId, Any]] = {"jobs": self.jobs, "flows": self.flows, "sent_jobs": self.sent_jobs}
        return {
            name: tuple(each for _, each in sorted(found.items()) if not each.state.final)
            for name, found in kinds.items()
        }

    def attempts(self, job: JobId) -> list[AttemptId]:
        return [each.id for each in self.job(job).attempts if each is not None]

    def come(self, *attempts: AttemptId) -> None:
        """These attempts' batch jobs start and enter their barriers."""
        for attempt in attempts:
            self.apply(AttemptSubmitted(attempt=attempt, batch_id=str(attempt)))
            self.apply(self.report(attempt, "at_barrier", at_barrier_at=self.now))

    def report(self, attempt: AttemptId, phase: str, **facts: object) -> WrapperReported:
        pilot = self.pilots.get(attempt)
        request = pilot.request if pilot else self.job(attempt.job).request.components[attempt.component]
        nodes = (Node(f"n{attempt.component}", f"10.0.0.{attempt.component}", request.processes(1)),)
        facts["ending"] = ReportedEnding(str(facts.get("ending", "")))
        return WrapperReported(attempt=attempt, batch_id=str(attempt), phase=WrapperPhase(phase), nodes=nodes, **facts)  # type: ignore[arg-type]

    def run(self, job: JobId) -> None:
        self.come(*self.attempts(job))
        for attempt in self.attempts(job):
            self.apply(self.report(attempt, "running", released_at=self.now, started_at=self.now))

    def end(self, attempt: AttemptId, status: int | None = 0, ending: str = "exited", **facts: object) -> list[Command]:
        return self.apply(self.report(attempt, "ended", exit_status=status, ending=ending, ended_at=self.now, **facts))

    def lose_claim(self, job: JobId) -> None:
        """The first batch job of a claim is killed: a submission failure."""
        self.end(self.attempts(job)[0], None, "killed")
        self.obey()

    def obey(self) -> None:
        """Every reachable cluster ends what it was ordered to end."""
        todo, self.pending = self.pending, []
        for command in todo:
            if isinstance(command, CancelAttempt) and command.cluster not in self.down:
                self.apply(AttemptCleanedUp(attempt=command.attempt))
            elif isinstance(command, CancelAttempt):
                self.pending.append(command)

    def lose(self, cluster: str) -> list[Command]:
        self.down.add(cluster)
        return self.apply(ClusterLost(cluster=cluster, reason=UNREACHABLE))

    def reach(self, cluster: str) -> list[Command]:
        self.down.discard(cluster)
        commands = self.apply(ClusterConnected(cluster=cluster, version="22.05"))
        self.obey()
        return commands + self.apply(self.measurement(cluster))

    def wake(self) -> list[Command]:
        """Let time pass until the engine asked to be woken."""
        moment = self.engine.next_wakeup()
        assert moment is not None, "the engine waits for nothing"
        return self.apply(after=Duration(max(1, moment - self.now)))

    @property
    def kinds(self) -> list[str]:
        return [each.kind for each in self.history]


def component(processors: int, cluster: str | None = None, **fields: object) -> ComponentRequest:
    return ComponentRequest(processors=processors, executable="./program", cluster=cluster, **fields)  # type: ignore[arg-type]


def make(*components: ComponentRequest, **fields: object) -> Request:
    return Request(name="job", components=components, **fields)  # type: ignore[arg-type]


def grid(*clusters: ClusterSettings, **fields: object) -> Settings:
    return Settings(clusters=clusters, **fields)  # type: ignore[arg-type]


def alike(**fields: object) -> Settings:
    return grid(*(ClusterSettings(name=name, batch="slurm") for name in SIZES), **fields)


def check(game: Play) -> None:
    """Check what must hold at the end of every test."""
    for job in game.jobs.values():
        over = job.state.final and bool(job.live)
        assert not over, f"job {job.id} is {job.state} and something of it is left"


def from_its_own(engine: Engine, event: Event) -> Event:
    """The event as reported by the cluster of its attempt, where it has no cluster itself."""
    if getattr(event, "cluster", None) != "":
        return event
    attempt: AttemptId = event.attempt  # type: ignore[union-attr]
    found = engine.records.attempt_or_pending_cancel(attempt)
    return replace(event, cluster=found.cluster if found is not None else "")  # type: ignore[arg-type]
