"""A grid of nodes played by hand, with sweeps on it: the events of their tests, and what they ask it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from engine_play import INSTANCE, SIZES, UNREACHABLE, Play, make

from koalapy.engine import Engine
from koalapy.model.attempt import Attempt, OwnerKind, fields_of
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import CancelAttempt, FeedSweep
from koalapy.model.events import (
    AttemptCleanedUp,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    WorkSubmitted,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.parameters import Axis, ParameterResult, Source, Space
from koalapy.model.request import ComponentRequest
from koalapy.model.settings import Scavenging, Settings
from koalapy.model.sweep import Sweep
from koalapy.model.units import HOUR, Duration
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scheduler.schedule import Policies

NODE = 4


def space(count: int) -> Space:
    axis = Axis(sources=(Source(names=("x",), loop=("1", str(count), "1")),), count=count)
    return Space(axes=(axis,))


class Sweeping(Play):
    """A grid with Launchers."""

    def launchers(self, sweep: JobId, cluster: str | None = None) -> list[Attempt]:
        """Return the Launchers that are not let go."""
        found = (each for each in self.pilots.values() if each.owner == (OwnerKind.SWEEP, sweep))
        return [each for each in found if not each.let_go and cluster in (None, each.cluster)]

    def staying(self, sweep: JobId, cluster: str | None = None) -> list[Attempt]:
        """Return the Launchers that were not asked to leave."""
        return [each for each in self.launchers(sweep, cluster) if not fields_of(each).stop_reason]

    def begin(self, launcher: Attempt) -> None:
        """Its batch job starts, and its Launcher runs."""
        self.come(launcher.id)
        self.apply(self.report(launcher.id, "running", released_at=self.now, started_at=self.now))

    def ran(self, launcher: Attempt, numbers: Iterable[int], status: int = 0, host: str = "n1") -> None:
        rows = tuple(result(number, status, host) for number in numbers)
        sweep, cluster = JobId(launcher.owner.id), launcher.cluster
        self.apply(ParametersEnded(cluster=cluster, sweep=sweep, attempt=launcher.id, results=rows))

    def back(self, sweep: JobId, cluster: str, numbers: Intervals, begun: Intervals = NONE) -> None:
        self.apply(ParametersReturned(cluster=cluster, sweep=sweep, numbers=numbers, begun=begun))

    def go(self) -> None:
        """Launchers that were asked to go do, and nothing is left of them."""
        todo, self.pending = self.pending, []
        for command in todo:
            if isinstance(command, CancelAttempt) and command.cluster not in self.down:
                self.apply(AttemptCleanedUp(attempt=command.attempt))
            elif isinstance(command, CancelAttempt):
                self.pending.append(command)


class SweepPlay(Sweeping):
    """Clusters of nodes of four processors. `busy`: nodes of local jobs; `wanted`: processors that others wait for."""

    def __init__(
        self,
        sizes: dict[str, int] = SIZES,
        policies: ScavengingPolicies | None = None,
        clusters: dict[str, ClusterSettings] | None = None,
        **scavenging: Any,
    ) -> None:
        self.busy: dict[str, int] = {}
        self.wanted: dict[str, int] = {}
        named = clusters or {}
        plain = {name: ClusterSettings(name=name, batch="slurm", processors_per_node=NODE) for name in sizes}
        settings = Settings(clusters=(*(plain | named).values(),), scavenging=Scavenging(**scavenging))
        self.policies = policies or ScavengingPolicies()
        super().__init__(settings, sizes=sizes)
        if policies is not None:
            self.restart()

    def restart(self) -> None:
        """koalad is started anew, of what it had committed."""
        jobs = tuple(job for job in self.jobs.values() if not job.state.final)
        pending_cancels = tuple(self.pending_cancels.values())
        snapshot = Snapshot(
            instance=INSTANCE,
            counters=self.counters,
            jobs=jobs,
            sweeps=tuple(sweep for sweep in self.sweeps.values() if not sweep.state.final),
            pending_cancels=pending_cancels,
            launchers=tuple(each for each in self.pilots.values() if not each.let_go),
            learned=self.learned,
        )
        self.engine = Engine(self.settings, Policies(worst_fit, fpfs), snapshot, self.policies)
        for cluster in self.sizes:
            if cluster in self.down:
                self.apply(ClusterLost(cluster=cluster, reason=UNREACHABLE))
            else:
                self.apply(ClusterConnected(cluster=cluster, version="22.05"))
        self.measure()

    def measurement(self, cluster: str, others: int = 0, pending: Iterable[AttemptId] = ()) -> ClusterMeasured:
        found = super().measurement(cluster, others + self.busy.get(cluster, 0) * NODE, pending).state
        free, wanted = found.idle // NODE, self.wanted.get(cluster, 0)
        nodes = ((NODE, free),) if free else ()
        state = replace(found, free_nodes=nodes, whole_nodes=nodes)
        state = replace(state, wanted_local=wanted, waiting_local=int(bool(wanted)))
        return ClusterMeasured(cluster=cluster, state=state)

    # ---- sweeps

    def sweep(
        self,
        count: int = 1000,
        processors: int = 1,
        cluster: str | None = None,
        owner: str = "me",
        walltime: Duration = HOUR,
        **request: Any,
    ) -> JobId:
        template = ComponentRequest(
            executable="./program",
            arguments=("{x}",),
            cluster=cluster,
            walltime=walltime,
            processors=processors,
            threads_per_process=processors,
        )
        self.apply(WorkSubmitted(request=make(template, parameters=space(count), **request), owner=owner))
        return max(self.sweeps)

    def record(self, sweep: JobId) -> Sweep:
        return self.sweeps[sweep]

    def holds(self, sweep: JobId) -> dict[str, int]:
        return {name: count for name in self.sizes if (count := len(self.staying(sweep, name)))}

    def start(self, *launchers: Attempt) -> None:
        """Their batch jobs start, and the next measurement shows it."""
        for launcher in launchers:
            self.begin(launcher)
        self.measure()

    def start_all(self, *sweeps: JobId) -> None:
        self.start(*(each for sweep in sweeps for each in self.staying(sweep) if each.started_at is None))

    # ---- parameters

    def want(self, sweep: JobId, cluster: str, wanted: int) -> Intervals:
        """Return the numbers that the KCM gets of those it asks for."""
        before = self.record(sweep).out_on(cluster)
        self.apply(ParametersWanted(cluster=cluster, sweep=sweep, wanted=wanted))
        return self.record(sweep).out_on(cluster) - before

    def feeds(self, cluster: str | None = None) -> list[FeedSweep]:
        feeds = [hint for hint in self.hints if isinstance(hint, FeedSweep)]
        return [each for each in feeds if cluster in (None, each.cluster)]

    def recorded(self, sweep: JobId) -> list[int]:
        return [each.number for batch in self.results if batch.sweep == sweep for each in batch.results]


def result(number: int, status: int = 0, host: str = "n1") -> ParameterResult:
    return ParameterResult(number, status, "exited", host, 0, 5, 6, 0, 1, 0, 1)
