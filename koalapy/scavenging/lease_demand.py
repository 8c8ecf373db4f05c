"""The processors that sweeps would borrow of other sites: for waiting parameters for which no node is idle here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.lease import Borrow, SweepDemand, wanted_for, why_kept
from koalapy.model.request import KeepOutput, Request
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.scavenging.idle_nodes import Nodes
from koalapy.scavenging.launchers import launcher_walltime, owner_of, slots_of, staying


def note_demand(
    core: Core,
    now: Instant,
    active: Sequence[Sweep],
    nodes: Mapping[str, Nodes],
    barred: Callable[[Sweep], Sequence[str]],
) -> None:
    """Note what the active sweeps would borrow, if the grid file has it so. `barred`: see feasibility.barred."""
    neighbours, borrow = core.neighbours, _borrow_rules(core)
    if borrow is None:
        forget(core)
        return
    lacking = {}
    for sweep in active:
        count = _waiting(core, sweep) if why_not_borrowed(sweep.request) is None else 0
        if count > 0 and not _has_idle(nodes, barred(sweep)):
            lacking[sweep.id] = _demand_of(core, sweep, count)
    before = neighbours.lacking_since
    neighbours.lacking_since = since = {each: before.get(each, now) for each in lacking}
    neighbours.sweep_demands = tuple([demand for each, demand in lacking.items() if now >= since[each] + borrow.after])


def forget(core: Core) -> None:
    """Note that no sweep would borrow anything."""
    core.neighbours.sweep_demands, core.neighbours.lacking_since = (), {}


def may_borrow(core: Core, request: Request) -> bool:
    """Return whether a sweep of this request may run on leases."""
    return _borrow_rules(core) is not None and why_not_borrowed(request) is None


def why_not_borrowed(request: Request) -> Reason | None:
    """Return why a sweep of this request never runs on a lease; None if it may."""
    if request.dttl == 0:
        return _unfit("It has the DTTL 0.")
    if request.stage_out or request.keep_output is KeepOutput.HOME:
        return _unfit("Its files are brought home when all parameters are done, and a lease may be over before.")
    return why_kept(request.components[0])


def _borrow_rules(core: Core) -> Borrow | None:
    """Return the rules by which the site borrows for sweeps; None if it does not, or has no neighbours."""
    borrow = core.settings.borrow
    return borrow if borrow is not None and borrow.sweeps and core.neighbours.records else None


def _unfit(what: str) -> Reason:
    return Reason("not_borrowed", "request", what, "")


def _waiting(core: Core, sweep: Sweep) -> int:
    """Return the parameters for which the sweep has no slot of a Launcher yet."""
    template = sweep.request.components[0]
    slots = sum(slots_of(template, each.processors) for each in staying(core.launchers.of(owner_of(sweep.id))))
    return sweep.remaining - slots


def _has_idle(nodes: Mapping[str, Nodes], barred: Sequence[str]) -> bool:
    return any(each.idle and not each.closed for name, each in nodes.items() if name not in barred)


def _demand_of(core: Core, sweep: Sweep, count: int) -> SweepDemand:
    template = sweep.request.components[0]
    launcher = replace(template, walltime=launcher_walltime(template, core.settings.scavenging))
    unit = max(1, template.processors)
    want = wanted_for(sweep.request, [launcher], count * unit, core.settings.barrier_timeout)
    return SweepDemand(sweep.id, replace(want, launchers=True), unit)
