"""Leases for sweeps: they are asked for after all jobs, and given up for jobs that cannot borrow beside them."""

from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.job import Job
from koalapy.model.lease import Borrow
from koalapy.model.request import MAX_PROCESSORS
from koalapy.model.units import Instant
from koalapy.sites import asking
from koalapy.sites.asking import Ask
from koalapy.sites.delegating import delegate, refused_lately, target_of
from koalapy.sites.returning import give_back, place_nothing
from koalapy.sites.targets import borrowed_processors, free_there


def ask_for_sweeps(core: Core, now: Instant, borrow: Borrow) -> None:
    """Ask for nodes for sweeps, while no job waits for an answer: never for more than a neighbour reported."""
    ours = [each for each in core.leases.borrowed.values() if each.beyond is None]
    if any(each.state.asked and not each.sweeps for each in ours):
        return
    for demand in core.neighbours.sweep_demands:
        held = [each for each in ours if each.job == demand.sweep and each.state.wanted]
        if any(each.state.asked for each in held):
            continue
        excluded = refused_lately(core, now, demand.sweep, borrow)
        free = {name: free_there(core, name) or 0 for name in core.neighbours.connected if name not in excluded}
        left = MAX_PROCESSORS if borrow.processors is None else borrow.processors - borrowed_processors(core)
        coming = sum(each.processors for each in held if not core.records.live(each.cluster))
        count = min(demand.want.processors - coming, left, max(free.values(), default=0)) // demand.unit
        ask = Ask(replace(demand.want, processors=count * demand.unit))
        target = target_of(core, now, demand.sweep, ask, excluded) if count > 0 else None
        if target is not None:
            delegate(core, now, core.records.sweeps[demand.sweep], ask, target, borrow)


def is_served_in_place_of_sweeps(
    core: Core, job: Job, asks: list[Ask] | Reason, excluded: set[str], borrow: Borrow
) -> bool:
    """Return whether neighbours may serve a job once sweeps have given up what they have borrowed."""
    if isinstance(asks, Reason):
        least, present = job.request.processors, borrowed_processors(core)
        for_sweeps = sum(_for_sweeps(core, name) for name in core.neighbours.records)
        fits = borrow.processors is not None and present - for_sweeps + least <= borrow.processors
        return asks.code == asking.LIMIT and fits
    free = {name: free_there(core, name) for name in core.neighbours.connected if name not in excluded}
    return any(
        name in free and (there := free[name]) is not None and there + _for_sweeps(core, name) >= ask.want.processors
        for ask in asks
        for name in (free if ask.targets is None else ask.targets)
    )


def make_way(core: Core, now: Instant) -> None:
    """Give up the youngest lease of a sweep, for a job that cannot borrow beside it; one at a time."""
    of_sweeps = [each for each in core.leases.borrowed.values() if each.sweeps]
    clusters = [core.information.clusters.get(each.cluster) for each in of_sweeps]
    held = [each for each in of_sweeps if each.state.wanted]
    if len(held) < len(of_sweeps) or any(each is not None and each.settings.draining for each in clusters):
        return  # one is on its way back
    for lease in sorted(held, key=lambda each: -each.asked_at)[:1]:
        if lease.state.asked:
            give_back(core, now, lease)
        else:
            place_nothing(core, now, lease)


def _for_sweeps(core: Core, neighbour: str) -> int:
    """Return the processors that sweeps have borrowed of a neighbour."""
    return sum(each.processors for each in core.leases.borrowed_of(neighbour) if each.sweeps)
