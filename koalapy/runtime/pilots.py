"""Pilots: opened and closed by a person, and kept: each joins the grid while it runs, and ends when it is idle."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from koalapy.broker.fit import misfit
from koalapy.engine import Engine
from koalapy.model.change import Change
from koalapy.model.commands import JoinCluster, LeaveCluster
from koalapy.model.errors import Reason, RequestError
from koalapy.model.identity import JobId
from koalapy.model.lease import holds_lease
from koalapy.model.pilot import SHORTEST_WALLTIME, PilotRule, cluster_of_pilot, is_bound, job_of_pilot, pilot_request
from koalapy.model.request import ComponentRequest, Isolate, PilotTerms
from koalapy.model.units import MINUTE, Duration, Instant, format_duration
from koalapy.policies.pilots import PilotKeeper
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.grid_changes import GridChanges
from koalapy.runtime.no_such_cluster import no_such_cluster
from koalapy.runtime.service import Service
from koalapy.runtime.upkeep import Upkeep
from koalapy.views.clusters import LeftOn
from koalapy.views.pilots import Idle, PilotView, is_used, pilots, upkeep, wishes

_LOG = structlog.get_logger()
_LOOK_S = 1.0  # between looks while there are pilots
_RULES_S = 5.0  # without a pilot: a job that waits may want one
_CLOSED = Reason("pilot_closed", "request", "It was closed by its user.", "")


class Pilots:
    """The pilots of one koalad. Any thread may call it."""

    def __init__(
        self,
        service: Service,
        changes: GridChanges,
        loop: DriverThread,
        clock: SystemClock,
        owner: str,
        rules: Callable[[], Mapping[str, PilotRule]],
        isolated: Callable[[PilotTerms, str], PilotTerms],
    ) -> None:
        """`owner`: to whom the pilots' jobs belong. `rules`: those that koalapy opens by itself, by cluster.

        `isolated`: terms with the isolation that the grid file has for the pilots of a cluster.
        """
        self._isolated = isolated
        self._service, self._changes, self._loop, self._clock, self._owner = service, changes, loop, clock, owner
        self._rules, self._keepers = rules, dict[str, PilotKeeper]()
        self._idle: Mapping[JobId, Idle] = {}
        self.upkeep = Upkeep("pilots", self._keep)

    # ---- for the API

    def all(self, ended: bool = False) -> list[PilotView]:
        """Return the pilots, by job. `ended`: also those that are over and not pruned. Raises KoalaError."""
        if not ended:
            return self._loop.ask(pilots)
        own = [
            each for each in self._service.jobs() if each.request.pilot is not None and not holds_lease(each.request)
        ]
        over = [each for each in own if each.state.final]
        live = [each for each in self._loop.ask(pilots) if each.job.id not in {job.id for job in over}]
        return sorted([*live, *(PilotView(job, LeftOn(), False) for job in over)], key=lambda each: each.job.id)

    def named(self, name: str) -> PilotView:
        """Return one of them. Raises RequestError if there is none of that name."""
        found = next((each for each in self.all() if each.name == name), None)
        if found is None:
            raise RequestError("no_such_pilot", f"There is no pilot {name}.", "`koala pilots` lists them.")
        return found

    def open(
        self, component: ComponentRequest, terms: PilotTerms, key: str, isolate: Isolate | None = None
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
        self._loop.ask(lambda engine: _refuse_useless(engine, now, name, component))
        terms = self._isolated(terms, name)
        if isolate is not None:
            terms = replace(terms, isolate=isolate)
        job = self._service.submit(pilot_request(component, terms), self._owner, key)
        self.upkeep.look_soon()
        return PilotView(self._service.job(job), LeftOn(), False)

    def close(self, name: str, drain: bool, force: bool) -> PilotView:
        """Begin to end a pilot. `drain`: place nothing there any more, and end it when nothing is left there.

        `force`: end it although jobs are there; they are lost, so that each job's `retry_on` decides. Raises KoalaError
        if jobs are there and neither is given; then nothing has changed.
        """
        found = self.named(name)
        if not is_bound(found.job) or name not in self._changes.pilots:
            self._service.cancel([found.job.id], reason=_CLOSED)
            return self._now(found)
        was_draining = found.draining
        left = self._changes.drain(name, True)
        if drain:
            self.upkeep.look_soon()
            return replace(found, draining=True, left=left)
        if left and not force:
            if not was_draining:
                self._changes.drain(name, False)
            message = f"{name} cannot be closed because of {left}. Nothing was changed."
            raise RequestError("pilot_in_use", message, "`--drain` waits until nothing is left, `--force` gives it up.")
        self._service.cancel([found.job.id], reason=_CLOSED)
        return self._now(found)

    # ---- their upkeep

    def committed(self, change: Change) -> None:
        """Look after the pilots soon if one has changed."""
        if any(job.request.pilot is not None for job in change.jobs):
            self.upkeep.look_soon()

    def _keep(self) -> float | None:
        """Let pilots join, leave and end, and open those that are to be kept. Raises KoalaError.

        Returns the seconds until it is to be called again; None if nothing but a commit calls for that.
        """
        now, joined, idle, rules = self._clock.now(), self._changes.pilots, self._idle, self._rules()
        due, found = self._loop.ask(lambda engine: (upkeep(engine, now, joined, idle, rules), pilots(engine)))
        self._idle = due.idle
        views = {each.job.id: each for each in found}
        for name in due.leave:
            self._changes.carry_out(LeaveCluster(name))
        for job in due.join:
            self._changes.carry_out(JoinCluster(cluster_of_pilot(views[job].job)))
        for job, why in due.end.items():
            self._end_idle(views[job], why)
        self._open_kept(now, rules)
        if found or self._changes.pilots:
            return _LOOK_S
        return _RULES_S if rules else None

    def _open_kept(self, now: Instant, rules: Mapping[str, PilotRule]) -> None:
        """Open the pilots that the grid file requires now. Raises KoalaError."""
        self._keepers = {cluster: self._keepers.get(cluster, PilotKeeper()) for cluster in rules}
        if not rules:
            return
        for cluster, wish in self._loop.ask(lambda engine: wishes(engine, rules)).items():
            rule = rules[cluster]
            if self._keepers[cluster].step(now, rule, wish.kept, wish.waits_since):
                per_node = None if rule.nodes is None else rule.size // rule.nodes
                component = ComponentRequest(
                    processors=rule.size, executable="", cluster=cluster, walltime=rule.walltime,
                    processors_per_node=per_node,
                )  # fmt: skip
                view = self.open(component, PilotTerms(idle=rule.idle, shared=True, kept=True), "")
                _LOG.info("pilot_opened", cluster=view.name, on=cluster)

    def _end_idle(self, view: PilotView, why: str) -> None:
        """End a pilot that is not used, unless a job was placed there meanwhile."""
        self._changes.drain(view.name, True)
        if self._loop.ask(lambda engine: is_used(engine, view.name, view.draining)):
            if not view.draining:
                self._changes.drain(view.name, False)
            return
        self._service.cancel([view.job.id], reason=Reason("pilot_ended", "request", why, ""))

    def _now(self, found: PilotView) -> PilotView:
        return replace(found, job=self._service.job(found.job.id))


def _refuse_useless(engine: Engine, now: Instant, name: str, component: ComponentRequest) -> None:
    """Raises RequestError if no job could run on the pilot, or its cluster is missing or too small even when idle."""
    summaries = {each.name: each for each in engine.summaries(now)}
    if name not in summaries:
        raise no_such_cluster(name, summaries)
    shortest = Duration(engine.settings.barrier_timeout + MINUTE)
    if component.walltime <= shortest:
        message = f"A pilot of {format_duration(component.walltime)} is too short for any job."
        advice = (
            f"Give a longer --walltime: a job's own, the barrier's time-out and a minute ({format_duration(shortest)})"
        )
        raise RequestError("bad_walltime", message, f"{advice} must fit into it.")
    reason = misfit(component, summaries[name], now=False)
    if reason is not None and reason.whose == "request":
        raise RequestError(reason.code, f"{name} {reason.message}", reason.advice)
