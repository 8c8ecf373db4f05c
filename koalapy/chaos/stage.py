"""The stage of a run: one grid or several sites, with the watch of each, as a run of chaos drives them."""

from typing import Protocol

from koalapy.chaos.fault_schedule import perform
from koalapy.chaos.plan import Action
from koalapy.chaos.promises.sites import SitesWatch
from koalapy.chaos.promises.watch import Note, Watch
from koalapy.chaos.site_actions import perform_at_sites
from koalapy.chaos.violation import Promise
from koalapy.model.events import CancelRequested
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.agenda import Agenda
from koalapy.world.random_streams import between, stream
from koalapy.world.sites import SimSites
from koalapy.world.world import World

_DOWN = (Duration(SECOND), Duration(3 * MINUTE))  # how long koalad is down after a kill
_PATIENT = Duration(
    15 * MINUTE
)  # after the end of faults, until waiting jobs are cancelled, for which no site may have room


class Watching(Protocol):
    """The checkers of a stage. `check`, `check_without_faults` and `quiescent` raise Violation."""

    @property
    def jobs(self) -> int: ...

    @property
    def programs(self) -> int: ...

    @property
    def parameters(self) -> int: ...

    def check(self) -> None: ...

    def check_without_faults(self) -> None: ...

    def quiescent(self) -> None: ...


class Stage(Protocol):
    """A stage, with its agenda and its watch."""

    agenda: Agenda

    @property
    def watch(self) -> Watching: ...

    def perform(self, action: Action) -> None: ...

    def restart(self) -> None:
        """Let each koalad that was killed start again, some time later."""
        ...

    def end_faults(self) -> None:
        """End all faults."""
        ...

    def wind_down(self) -> None:
        """Do what people do so that everything comes to its end."""
        ...

    def quiescent(self) -> bool: ...

    def unfinished(self) -> tuple[Promise, str]:
        """Describe what keeps the stage from becoming quiescent, and the promise that breaks."""
        ...


class _Restarts:
    """Starts a killed koalad again."""

    def __init__(self, world: World) -> None:
        self._world, self._rng = world, stream(world.seed, "chaos/restarts")
        self._starts = 0  # of koalad, as of its last seen end

    def look(self) -> None:
        koalad = self._world.koalad
        if not koalad.alive and koalad.starts > self._starts:
            self._starts = koalad.starts
            self._world.agenda.after(between(self._rng, *_DOWN), koalad.start)


class GridStage:
    """One grid."""

    def __init__(self, world: World, note: Note) -> None:
        self.agenda = world.agenda
        self.watch = Watch(world, note)
        self._world, self._restarts = world, _Restarts(world)

    def perform(self, action: Action) -> None:
        perform(self._world, action)

    def restart(self) -> None:
        self._restarts.look()

    def end_faults(self) -> None:
        self._world.end_faults()

    def wind_down(self) -> None:
        self._world.release_held()
        self._world.resume_clusters()

    def quiescent(self) -> bool:
        return self._world.quiescent()

    def unfinished(self) -> tuple[Promise, str]:
        return Promise.ENDS, self.watch.unfinished()


class SitesStage:
    """Several sites. Their jobs get leases for a while after all faults have ended; then waiting ones are cancelled."""

    def __init__(self, sites: SimSites, note: Note) -> None:
        self.agenda = sites.agenda
        self.watch = SitesWatch(sites, note)
        self._sites, self._restarts = sites, [_Restarts(world) for world in sites.worlds.values()]
        self._faults_ended_at = self.agenda.now

    def perform(self, action: Action) -> None:
        perform_at_sites(self._sites, action)

    def restart(self) -> None:
        for each in self._restarts:
            each.look()

    def end_faults(self) -> None:
        self._faults_ended_at = self.agenda.now
        self._sites.end_faults()

    def wind_down(self) -> None:
        for world in self._sites.worlds.values():
            world.release_held()
            world.resume_clusters()
            if self.agenda.now > self._faults_ended_at + _PATIENT:
                _cancel_waiting(world)

    def quiescent(self) -> bool:
        return self._sites.quiescent()

    def unfinished(self) -> tuple[Promise, str]:
        return self.watch.unfinished()


def _cancel_waiting(world: World) -> None:
    engine = world.koalad.engine
    for job in [] if engine is None else engine.records.jobs.values():
        if job.state is JobState.WAITING:
            world.koalad.request(CancelRequested(job.id))
