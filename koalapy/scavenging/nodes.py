"""A cluster's nodes as sweeps see them: which are wholly free, and how many of those its site lets them have."""

from dataclasses import dataclass, replace

from koalapy.information.kis import Known, View
from koalapy.information.promises import Promises, processors_of
from koalapy.model.cluster import ClusterState
from koalapy.model.hours import offset_at
from koalapy.model.settings import Scavenging
from koalapy.model.units import Instant
from koalapy.policies.idleness import IdlenessPolicy, Sight, wrong_allowance
from koalapy.scavenging.asking import answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """`size`: processors of a node. `idle`: nodes that could be had now. `allowed`: that sweeps may hold in all.

    `closed`: why no runner may grow there, not even on what another leaves, as the end of a sentence; ''.
    """

    size: int
    total: int = 0
    idle: int = 0
    allowed: int = 0
    closed: str = ""


def look(
    now: Instant,
    known: Known,
    view: View,
    promises: Promises,
    held: int,
    size: int,
    policy: IdlenessPolicy,
    rules: Scavenging,
) -> Nodes:
    """`held`: nodes that sweeps hold or are about to get. `size`: the largest node seen there so far."""
    site, state = known.settings.scavenge, known.state
    if site.off:
        return Nodes(size=size, closed="the grid file keeps sweeps off it")
    if view.trouble is not None or state is None:
        return Nodes(size=size, allowed=held, closed=str(view.trouble or "it has not been measured"))
    if state.others_hidden and not site.native:
        return Nodes(size=size, closed="others' jobs cannot be seen there, so that sweeps could be in their way")
    if not size:
        return Nodes(size=size, closed="no node of it was ever seen free")
    sight = Sight(
        total=max(1, state.total // size),
        idle=_idle(state, promises, known.settings.name, size),
        held=held,
        waiting=state.waiting_local,
        now=now,
        utc_offset=offset_at(now, rules.offsets),
        rules=site,
    )
    return _allowed(sight, size, policy)


def _allowed(sight: Sight, size: int, policy: IdlenessPolicy) -> Nodes:
    """A node may change hands where one of them, given back, might be taken again."""
    allowed, wrong = _ask(policy, sight)
    left = replace(sight, idle=sight.idle + 1, held=max(0, sight.held - 1))
    may_grow = _ask(policy, left)[0] > left.held
    idle = max(0, min(sight.idle, allowed - sight.held))
    closed = f"the idleness policy failed: {wrong}" if wrong else "" if may_grow else "its site's rules forbid it now"
    return Nodes(size=size, total=sight.total, idle=idle, allowed=allowed, closed=closed)


def _ask(policy: IdlenessPolicy, sight: Sight) -> tuple[int, str]:
    return answer(lambda: policy(sight), lambda found: wrong_allowance(found, sight), sight.held)


def _idle(state: ClusterState, promises: Promises, cluster: str, size: int) -> int:
    """Wholly free, of whatever is promised to nobody: what waits is served first, on whichever nodes."""
    promised, _ = promises.on(cluster)
    scavenged = promises.of_sweeps(cluster)
    freed = processors_of(scavenged.freed)
    free = whole(state, size) + freed
    usable = min(free, (state.idle if state.largest_idle is None else min(state.idle, state.largest_idle)) + freed)
    return max(0, usable - promised - scavenged.coming - state.wanted_local) // size


def whole(state: ClusterState, size: int) -> int:
    """Processors of nodes that are wholly free."""
    if not state.free_nodes:
        return state.idle // size * size
    return sum(free // size * size * count for free, count in state.free_nodes)


def node_size(known: Known, before: int) -> int:
    """What one node has: as the grid file says, else the most that was ever seen free on one."""
    if known.settings.processors_per_node:
        return known.settings.processors_per_node
    shown = known.state.free_nodes if known.state is not None else ()
    return max([before, *(free for free, count in shown if count)])
