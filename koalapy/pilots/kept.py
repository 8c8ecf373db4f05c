"""The pilots that koalapy opens by itself, as the rules of the grid file require."""

from collections.abc import Iterable
from dataclasses import replace

from koalapy.broker.fit import misfit
from koalapy.coallocation.user_requests import on_work_submitted
from koalapy.core.core import Core
from koalapy.core.due import PASS
from koalapy.model.errors import Reason
from koalapy.model.events import WorkSubmitted
from koalapy.model.job import Job
from koalapy.model.pilot import PilotRule
from koalapy.model.request import ComponentRequest
from koalapy.model.units import Instant, format_duration
from koalapy.policies.pilots import OwnPilots, PilotKeeper


def step(core: Core, now: Instant) -> bool:
    """Open the pilots that are required now, when jobs or pilots have changed or the time has come.

    It is due in each batch if there are rules.
    """
    pilots, rules = core.pilots, core.settings.pilots
    is_due = pilots.keep_at is not None and now >= pilots.keep_at
    if rules and (core.due.steps & PASS or pilots.unsaved or is_due):
        _keep(core, now)
    return bool(rules)


def _keep(core: Core, now: Instant) -> None:
    pilots, rules = core.pilots, core.settings.pilots
    pilots.keep_at = None
    pilots.keepers = {cluster: pilots.keepers.get(cluster, PilotKeeper()) for cluster, _ in rules}
    for cluster, rule in rules:
        kept = {
            each.id: OwnPilots(each.state.is_cluster, bool(core.records.live(each.name)))
            for each in pilots.records.values()
            if each.options.automatic and each.host_cluster == cluster
        }
        is_full = len(kept) >= rule.most or any(not each.bound for each in kept.values())
        waits_since = None if is_full else _waits_since(core, rule)
        keeper = pilots.keepers[cluster]
        if keeper.step(now, rule, kept, waits_since):
            _open(core, now, cluster, rule)
        wanted = None if waits_since is None else Instant(waits_since + rule.waiting)
        later = [each for each in (keeper.paused_until, wanted, pilots.keep_at) if each is not None and each > now]
        pilots.keep_at = min(later, default=None)


def _open(core: Core, now: Instant, cluster: str, rule: PilotRule) -> None:
    component = replace(rule.request.components[0], cluster=cluster)
    if why_useless(core, now, component) is None:
        request = replace(rule.request, components=(component,))
        on_work_submitted(core, now, WorkSubmitted(request=request, owner=rule.owner))


def _waits_since(core: Core, rule: PilotRule) -> Instant | None:
    """Return since when the oldest job waits that a pilot of this rule could run; None if there is none."""
    waiting: Iterable[Job] = (each for each in core.records.jobs.values() if each.state.queued)
    since = [each.waiting_since for each in waiting if each.request.pilot is None and _could_run(core, rule, each)]
    return min(filter(None, since), default=None)


def _could_run(core: Core, rule: PilotRule, job: Job) -> bool:
    """Return whether a pilot of this rule could run the components of a waiting job that name no cluster."""
    margin, held = core.settings.beside_program, rule.request.components[0]
    free = [each for each in job.request.components if each.cluster is None]
    return bool(free) and all(
        each.processors <= held.processors
        and each.walltime + margin <= held.walltime
        and not (each.gpus or each.exclusive or each.queue or each.constraint)
        for each in free
    )


def why_useless(core: Core, now: Instant, component: ComponentRequest) -> Reason | None:
    """Return why no job could run on a pilot with the processors and walltime of this component, or it on its cluster.

    None if it is useful once its cluster has room. Its cluster must be one of the grid.
    """
    shortest = core.settings.beside_program
    if component.walltime <= shortest:
        message = f"A pilot of {format_duration(component.walltime)} is too short for any job."
        advice = "Give a longer --walltime: a job's own, the barrier's time-out and a minute"
        return Reason("bad_walltime", "request", message, f"{advice} ({format_duration(shortest)}) must fit into it.")
    found = {each.name: each for each in core.information.summaries(now)}.get(component.cluster or "")
    if found is None:
        return Reason("no_such_cluster", "request", f"There is no cluster {component.cluster}.", "")
    reason = misfit(component, found, now=False)
    if reason is None or reason.whose != "request":
        return None
    return replace(reason, message=f"{found.name} {reason.message}")
