"""Pilots as people open, list and close them. The engine decides everything else."""

from collections.abc import Callable
from dataclasses import replace

from koalapy.engine import Engine
from koalapy.model.errors import RequestError
from koalapy.model.events import PilotCloseRequested
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.lease import holds_lease
from koalapy.model.pilot import SHORTEST_WALLTIME, job_of_pilot, pilot_request
from koalapy.model.request import ComponentRequest, Isolate, PilotOptions
from koalapy.model.units import Instant, format_duration
from koalapy.pilots.kept import why_useless
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.current_grid import no_such_cluster
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.grid_changes import GridChanges
from koalapy.runtime.service import Service
from koalapy.views.pilots import PilotView, pilots


class Pilots:
    """The pilots of one koalad. Any thread may call it."""

    def __init__(
        self,
        service: Service,
        changes: GridChanges,
        loop: DriverThread,
        clock: SystemClock,
        owner: str,
        isolated: Callable[[PilotOptions, str], PilotOptions],
    ) -> None:
        """`owner`: to whom the pilots' jobs belong.

        `isolated`: terms with the isolation that the grid file has for the pilots of a cluster.
        """
        self._isolated = isolated
        self._service, self._changes, self._loop, self._clock, self._owner = service, changes, loop, clock, owner

    def all(self, ended: bool = False) -> list[PilotView]:
        """Return the pilots, by job. `ended`: also those that have ended and are not pruned. Raises KoalaError."""
        live = self._loop.ask(pilots)
        if not ended:
            return live
        jobs = [each for each in self._service.jobs() if each.request.pilot is not None]
        final = [PilotView(each) for each in jobs if each.state.final and not holds_lease(each.request)]
        known = {each.job.id for each in final}
        return sorted([*final, *(each for each in live if each.job.id not in known)], key=lambda each: each.job.id)

    def named(self, name: str) -> PilotView:
        """Return one of them. Raises RequestError if there is none of that name."""
        found = next((each for each in self.all() if each.name == name), None)
        if found is None:
            raise RequestError("no_such_pilot", f"There is no pilot {name}.", "`koala pilots` lists them.")
        return found

    def open(
        self, component: ComponentRequest, options: PilotOptions, key: str, isolate: Isolate | None = None
    ) -> PilotView:
        """Submit a pilot with the processors, cluster, walltime and options of this component. Returns at once.

        `isolate`: in place of what the grid file has for the cluster. The same key again gives the same pilot. Raises
        KoalaError; then there is no new one.
        """
        name = component.cluster or ""
        if job_of_pilot(name) is not None:
            raise RequestError("pilot", f"{name} is a pilot itself.", "Name a cluster of the grid file.")
        if component.walltime < SHORTEST_WALLTIME:
            message = f"A pilot lasts {format_duration(SHORTEST_WALLTIME)} at least."
            raise RequestError("bad_walltime", message, "Give a longer --walltime.")
        now = self._clock.now()
        self._loop.ask(lambda engine: _refuse_useless(engine, now, component))
        options = self._isolated(options, name)
        if isolate is not None:
            options = replace(options, isolate=isolate)
        return self._view(self._service.submit(pilot_request(component, options), self._owner, key))

    def close(self, name: str, drain: bool, force: bool) -> PilotView:
        """Begin to end a pilot. `drain`: place nothing there any more, and end it when nothing is left there.

        `force`: end it although jobs are there; they are lost, so that each job's `retry_on` decides. Raises KoalaError
        if jobs are there and neither is given; then nothing has changed.
        """
        found = self.named(name)
        if drain and name in self._changes.pilots:
            self._changes.drain(name, True)
        else:
            self._service.do(PilotCloseRequested(pilot=found.job.id, force=force))
        after = self._view(found.job.id)
        if after.pilot is not None and after.pilot.state.is_cluster and not drain:
            message = f"{name} cannot be closed because of {after.remaining}. Nothing was changed."
            raise RequestError("pilot_in_use", message, "`--drain` waits until nothing is left, `--force` gives it up.")
        return after

    def _view(self, job: JobId) -> PilotView:
        """Return a pilot, also one that has ended. Raises KoalaError."""
        found = next((each for each in self._loop.ask(pilots) if each.job.id == job), None)
        if found is not None:
            return found
        ended = self._service.work(job)
        assert isinstance(ended, Job), "it was a pilot before"
        return PilotView(ended)


def _refuse_useless(engine: Engine, now: Instant, component: ComponentRequest) -> None:
    """Raises RequestError if no job could run on the pilot, or its cluster is missing or too small even when idle."""
    if component.cluster not in engine.core.information.clusters:
        raise no_such_cluster(component.cluster or "", engine.core.information.clusters)
    if (reason := why_useless(engine.core, now, component)) is not None:
        raise RequestError(reason.code, reason.message, reason.advice)
