"""A simulated grid with sweeps of several users, and other jobs.

The real koalad, KCMs, wrappers and Launchers run over simulated nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koalapy.experiments.sweeps.workload import GridJob
from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import OurError
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.records import Records
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Scavenging, Settings
from koalapy.model.sweep import Sweep
from koalapy.model.units import HOUR, MINUTE, Duration, Instant, format_duration
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.shares import FairShare
from koalapy.scheduler.schedule import Policies
from koalapy.world.agenda import Agenda
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.cluster.cluster import SimCluster, cluster_plan_of
from koalapy.world.koalad.host import Installation, SimKoalad
from koalapy.world.program_log import ProgramLog
from koalapy.world.random_sweeps import Parameter, sweep_of
from koalapy.world.world import memory_store

_BATCH = "sge"  # on every cluster of DAS-3
_SCAVENGING = Scavenging(walltime=Duration(2 * HOUR))  # no Launcher reaches its walltime within the hour


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPlan:
    """The plan of a grid. `local`: nodes of each cluster that local jobs hold all the time.

    `durations`: of the parameters of a sweep.
    """

    nodes: Mapping[str, int]
    local: Mapping[str, int]
    fairshare: FairShare
    durations: tuple[Duration, ...]
    users: int
    scavenging: Scavenging = _SCAVENGING


class SweepGrid:
    """A simulated grid. Nodes have one processor, so that a Launcher runs one parameter at a time."""

    def __init__(self, plan: GridPlan, seed: int) -> None:
        self.agenda, self.program_log, self._plan = Agenda(), ProgramLog(), plan
        self.began = self.agenda.now
        settings = Settings(
            clusters=tuple(
                ClusterSettings(name=name, batch=_BATCH, processors_per_node=1, exclusive=True) for name in plan.nodes
            ),
            scavenging=plan.scavenging,
        )
        self.clusters = {
            each.name: SimCluster(
                self.agenda,
                seed,
                cluster_plan_of(each, nodes=plan.nodes[each.name], processors_per_node=1),
                each.name,
                self.program_log,
            )
            for each in settings.clusters
        }
        installation = Installation(
            settings=settings,
            policies=Policies(worst_fit, fpfs),
            open_store=memory_store(InstanceId("cs009")),
            sweep_policies=ScavengingPolicies(fairshare=plan.fairshare),
        )
        self.koalad = SimKoalad(self.agenda, seed, installation, self.clusters)
        self.sweeps: list[JobId] = []

    def play(self, jobs: Iterable[GridJob], length: Duration) -> None:
        for name, nodes in self._plan.local.items():
            for _ in range(nodes):
                self.clusters[name].foreign_job("local", 1, Duration(length + HOUR))
        self.koalad.start()
        self._run_until(MINUTE)
        for _ in range(self._plan.users):
            self.koalad.submit(_sweep(self._plan.durations))
        for job in jobs:
            self.agenda.at(Instant(self.began + MINUTE + job.at), lambda job=job: self._submit(job))  # type: ignore[misc]
        self._run_until(Duration(2 * MINUTE))
        self.sweeps = list(self._records().sweeps)
        self._run_until(Duration(MINUTE + length))

    def play_out(self, requests: Sequence[Request], most: Duration) -> Instant:
        """Submit the requests at one instant, run until all have ended, and return the instant.

        Raises OurError if they have not ended after `most`.
        """
        self.koalad.start()
        self._run_until(MINUTE)
        submitted = self.agenda.now
        for request in requests:
            self.koalad.submit(request)
        looked = MINUTE
        while looked == MINUTE or self._records().all_work():  # records of final jobs are forgotten
            if looked > most:
                raise OurError("endless", f"Jobs of a simulated grid were not over after {format_duration(most)}.")
            looked = Duration(looked + MINUTE)
            self._run_until(looked)
        return submitted

    def sweep(self, identity: JobId) -> Sweep:
        return self._records().sweeps[identity]

    def _records(self) -> Records:
        engine = self.koalad.engine
        assert engine is not None
        return engine.records

    def _submit(self, job: GridJob) -> None:
        assert self.koalad.submit(_request(job))

    def _run_until(self, since_began: Duration) -> None:
        self.agenda.run(Instant(self.began + since_began))


def _sweep(durations: tuple[Duration, ...]) -> Request:
    return sweep_of([Parameter(runs) for runs in durations], HOUR)


def _request(job: GridJob) -> Request:
    component = ComponentRequest(
        processors=job.nodes,
        cluster=job.cluster,
        executable=EXECUTABLE,
        arguments=arguments_of(Behaviour(runs=job.lasts)),
        walltime=Duration(job.lasts + 2 * MINUTE),
    )
    return Request(name="grid", components=(component,))
