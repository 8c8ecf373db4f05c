"""Pilots of the simulated world: their insides live and die with their programs.

The inside of a pilot is a cluster with one node. The byte stream that leads there is a connection like any other.
"""

from dataclasses import replace
from typing import Protocol

from koalapy.model.events import PilotCloseRequested
from koalapy.model.identity import InstanceId, Tag, attempt_of, is_tag, tag_of
from koalapy.model.pilot import Pilot, first_record, job_of_pilot, pilot_cluster, pilot_request
from koalapy.model.request import ComponentRequest, PilotOptions
from koalapy.model.units import SECOND, Duration
from koalapy.world.agenda import Agenda
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.cluster.cluster import ClusterPlan, SimCluster
from koalapy.world.koalad.host import SimKoalad, pilot_settings
from koalapy.world.program_log import LogEntry, ProgramLog

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
    """The pilots of one world."""

    def __init__(self, world: Insides) -> None:
        self._world = world
        world.program_log.subscribe(self._logged)
        world.koalad.build_filler = self._build_filler

    def open(self, cluster: str, processors: int, program: Behaviour, options: PilotOptions, key: str = "") -> None:
        """Submit a pilot with this program. The same key again opens no other one."""
        walltime = Duration(program.runs + 60 * SECOND)
        component = ComponentRequest(processors=processors, executable="", cluster=cluster, walltime=walltime)
        request = pilot_request(component, options)
        held = replace(request.components[0], executable=EXECUTABLE, arguments=arguments_of(program))
        self._world.koalad.submit(replace(request, components=(held,)), key)

    def close(self, name: str, force: bool = True) -> None:
        """Close a pilot. `force`: with whatever is there."""
        job = job_of_pilot(name)
        if job is not None:
            self._world.koalad.request(PilotCloseRequested(pilot=job, force=force))

    # ---- their insides

    def _logged(self, entry: LogEntry) -> None:
        tag = entry.run.tag
        if not is_tag(tag) or attempt_of(Tag(tag))[0] != self._world.instance:
            return
        number = attempt_of(Tag(tag))[1].job
        name = pilot_cluster(number)
        if name in self._world.clusters and number in self._world.koalad.pilots:
            if entry.what == "ended" and not entry.run.running:
                self._world.clusters[name].die()
        elif entry.what == "started":
            job = self._world.koalad.pilots.get(number)
            pilot = None if job is None else first_record(job)
            if job is not None and pilot is not None:
                settings, size = pilot_settings(pilot), job.request.components[0].processors
                self._world.add(ClusterPlan(settings=settings, nodes=1, processors_per_node=size, poll_s=_POLL_S))

    def _build_filler(self, pilot: Pilot) -> None:
        """Build the inside of a filler, which dies with the wrapper that waits at its barrier."""
        assert pilot.fills is not None
        before, host = self._world.clusters.get(pilot.name), self._world.clusters.get(pilot.host_cluster)
        if host is None or (before is not None and not before.dead):
            return
        tag = tag_of(self._world.instance, pilot.fills)
        for wrapper in host.wrappers:
            if wrapper.tag == tag and wrapper.alive:
                size = wrapper.job.processors
                plan = ClusterPlan(settings=pilot_settings(pilot), nodes=1, processors_per_node=size, poll_s=_POLL_S)
                wrapper.on_death(self._world.add(plan).die)
                return
