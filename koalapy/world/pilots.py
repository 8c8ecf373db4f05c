"""Pilots of the simulated world: their insides live and die with their programs; koalad's upkeep is the real one.

The inside of a pilot is a cluster with one node. The byte stream that leads there is a connection like any other.
"""

from dataclasses import replace
from typing import Protocol

from koalapy.model.commands import JoinCluster, LeaveCluster
from koalapy.model.errors import Reason
from koalapy.model.events import CancelRequested
from koalapy.model.identity import InstanceId, JobId, Tag, attempt_of, is_tag
from koalapy.model.job import Job
from koalapy.model.lease import holds_lease
from koalapy.model.pilot import cluster_of_pilot, job_of_pilot, pilot_cluster, pilot_request
from koalapy.model.request import ComponentRequest, PilotTerms
from koalapy.model.units import SECOND, Duration
from koalapy.views.pilots import Idle, pilots, upkeep
from koalapy.world.agenda import Agenda
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.cluster.cluster import ClusterPlan, SimCluster
from koalapy.world.koalad.host import SimKoalad, pilot_settings
from koalapy.world.program_log import LogEntry, ProgramLog

_LOOK, _RARELY = Duration(2 * SECOND), Duration(20 * SECOND)
_POLL_S = 10.0


class Insides(Protocol):
    """The world, as far as pilots concern it."""

    agenda: Agenda
    program_log: ProgramLog
    koalad: SimKoalad
    instance: InstanceId
    clusters: dict[str, SimCluster]

    def add(self, plan: ClusterPlan) -> SimCluster:
        """Build a cluster that is no part of the grid yet."""
        ...


class SimPilots:
    """The pilots of one world. Nothing happens before the first is opened."""

    def __init__(self, world: Insides) -> None:
        self._world = world
        self._idle: dict[JobId, Idle] = {}
        self._starts = 0  # of koalad, for which `_idle` holds
        self._looks = False
        self._opened = False
        self._known: dict[JobId, Job] = {}

    def open(self, cluster: str, processors: int, program: Behaviour, terms: PilotTerms, key: str = "") -> None:
        """Submit a pilot with this program. The same key again opens no other one."""
        if not self._opened:
            self._opened = True
            self._world.program_log.subscribe(self._logged)
        walltime = Duration(program.runs + 60 * SECOND)
        component = ComponentRequest(processors=processors, executable="", cluster=cluster, walltime=walltime)
        request = pilot_request(component, terms)
        held = replace(request.components[0], executable=EXECUTABLE, arguments=arguments_of(program))
        self._world.koalad.submit(replace(request, components=(held,)), key)
        self._look_on()

    def close(self, name: str) -> None:
        """End a pilot, whatever is there."""
        job = job_of_pilot(name)
        if job is not None:
            self._world.koalad.request(CancelRequested(job))

    # ---- koalad's upkeep

    def _look_on(self, after: Duration = _LOOK) -> None:
        if not self._looks:
            self._looks = True
            self._world.agenda.after(after, self._look)

    def _look(self) -> None:
        self._looks = False
        koalad = self._world.koalad
        engine = koalad.engine
        if engine is None or not koalad.takes_requests:
            return self._look_on()
        if self._starts != koalad.starts:
            self._starts, self._idle = koalad.starts, {}
        found = pilots(engine)
        self._known |= {each.job.id: each.job for each in found}
        joined = [name for name in koalad.grid.names if job_of_pilot(name) is not None]
        due = upkeep(engine, koalad.now(), joined, self._idle)
        self._idle = dict(due.idle)
        for name in due.leave:
            koalad.grid.carry_out(LeaveCluster(name))
        for number in due.join:
            koalad.grid.carry_out(JoinCluster(cluster_of_pilot(self._known[number])))
        for number, why in due.end.items():
            koalad.request(CancelRequested(number, reason=Reason("pilot_ended", "request", why, "")))
        return self._look_on(_LOOK if joined or found else _RARELY)  # a koalad that starts may find some again

    # ---- their insides

    def _logged(self, entry: LogEntry) -> None:
        tag = entry.run.tag
        if not is_tag(tag) or attempt_of(Tag(tag))[0] != self._world.instance:
            return
        number = attempt_of(Tag(tag))[1].job
        name = pilot_cluster(number)
        if name in self._world.clusters:
            if entry.what == "ended" and not entry.run.running:
                self._world.clusters[name].die()
        elif entry.what == "started":
            engine = self._world.koalad.engine
            job = self._known.get(number) or (engine.job(number) if engine is not None else None)
            if job is not None and job.request.pilot is not None and not holds_lease(job.request):
                self._world.add(_plan_of(job))


def _plan_of(job: Job) -> ClusterPlan:
    settings, size = pilot_settings(cluster_of_pilot(job)), job.request.components[0].processors
    return ClusterPlan(settings=settings, nodes=1, processors_per_node=size, poll_s=_POLL_S)
