"""A cluster's nodes as sweeps see them: which are wholly free, and how many of those its site lets them have."""

from dataclasses import dataclass

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

    `why`: the end of a sentence on why nothing may grow there; ''.
    """

    size: int
    total: int = 0
    idle: int = 0
    allowed: int = 0
    why: str = ""


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
    site, name = known.settings.scavenge, known.settings.name
    if site.off:
        return Nodes(size=size, why="the grid file keeps sweeps off it")
    state = known.state
    if view.trouble is not None or state is None:
        return Nodes(size=size, allowed=held, why=str(view.trouble or "it has not been measured"))
    if state.others_hidden and not site.native:
        return Nodes(size=size, why="it shows nobody others' jobs, so that sweeps could be in their way")
    if not size:
        return Nodes(size=size, why="it has shown no node that is wholly free")
    idle, total = _idle(state, promises, name, size), max(1, state.total // size)
    sight = Sight(
        total=total,
        idle=idle,
        held=held,
        waiting=state.waiting_local,
        now=now,
        utc_offset=offset_at(now, rules.offsets),
        rules=site,
    )
    allowed, wrong = answer(lambda: policy(sight), lambda found: wrong_allowance(found, sight), held)
    why = f"the idleness policy failed: {wrong}" if wrong else "" if allowed > held else _why(state, idle)
    return Nodes(size=size, total=total, idle=min(idle, max(0, allowed - held)), allowed=allowed, why=why)


def _why(state: ClusterState, idle: int) -> str:
    if state.waiting_local:
        return "local jobs wait there"
    return "its site's rules give sweeps no more of it" if idle else "no node of it is wholly free"


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
