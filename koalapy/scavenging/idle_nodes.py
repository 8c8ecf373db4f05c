"""Nodes of clusters for sweeps: those wholly idle, how many of them sweeps may hold, and how many to expect."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from koalapy.core.core import Core
from koalapy.information.commitments import Commitments
from koalapy.information.kis import REFUSES, ClusterSummary, Known
from koalapy.model.attempt import OwnerKind
from koalapy.model.cluster import ClusterState
from koalapy.model.counts import counted_as
from koalapy.model.events import ClusterMeasured
from koalapy.model.hours import offset_at
from koalapy.model.learned import Learned
from koalapy.model.settings import DYNAMIC
from koalapy.model.units import Instant
from koalapy.policies import call_policy
from koalapy.policies.idleness import Allowance, ClusterNodes, IdlenessPolicy, allowance_error
from koalapy.scavenging.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The nodes of one cluster for sweeps.

    `idle`: the processors of each idle node that sweeps may take now. `allowed`: the number of nodes that sweeps may
    hold in all. `closed`: why no runner may grow there, even on a node that another runner leaves; '' if it may. `why`:
    why there are no more nodes for runners now. Both are ends of sentences.
    """

    idle: tuple[int, ...] = ()
    allowed: int = 0
    closed: str = ""
    why: str = ""


def on_measured(core: Core, now: Instant, event: ClusterMeasured) -> None:
    """Note the size of the cluster's nodes, and that a survey is due.

    Without sweeps, it does so only for dynamic admission, whose prediction learns from the nodes.
    """
    if core.records.sweeps or core.settings.scavenging.admission == DYNAMIC:
        known = core.information.clusters[event.cluster]
        core.node_sizes[event.cluster] = node_size(known, core.node_sizes.get(event.cluster, 0))
        core.mark_nodes_changed()


class IdleNodes:
    """The nodes of all clusters, as surveyed in this step, and the prediction that learns from them.

    `learned`: what a former koalad learned; clusters that are no longer in the grid are dropped.
    """

    def __init__(self, core: Core, policy: IdlenessPolicy, learned: Learned) -> None:
        self.nodes: dict[str, Nodes] = {}
        pasts = tuple(past for past in learned.pasts if past.cluster in core.information.clusters)
        offsets = core.settings.scavenging.offsets
        self.prediction = Prediction(offsets=offsets, learned=replace(learned, pasts=pasts))
        self._policy = policy

    def shown(self, core: Core) -> dict[str, int]:
        """Return the largest node size of each cluster, including nodes in the newest measurement.

        `core.node_sizes` may lack these while there are no sweeps.
        """
        clusters, sizes = core.information.clusters, core.node_sizes
        return {name: node_size(known, sizes.get(name, 0)) for name, known in clusters.items()}

    def survey(self, core: Core, now: Instant) -> None:
        """Survey the nodes of every cluster, and learn from them if one was measured since the last step."""
        summaries = {summary.name: summary for summary in core.information.summaries(now)}
        self.nodes = {name: self._look(core, now, summaries[name]) for name in core.information.clusters}
        if core.nodes_changed:
            core.nodes_changed = False
            for name, each in self.nodes.items():
                self.prediction.observe(now, name, each.allowed if name in core.information.reachable else 0)
            self.prediction.forget_all_but(self.nodes)

    @property
    def idle(self) -> Mapping[str, int]:
        """The number of idle nodes that sweeps may take now, for each cluster."""
        return {name: len(each.idle) for name, each in self.nodes.items()}

    def predicted(self, now: Instant) -> float:
        """Return the nodes that sweeps can expect to hold grid-wide.

        If the forecast is 0, as before the first observation, return the nodes that they may hold now.
        """
        return self.prediction.forecast(now) or float(sum(each.allowed for each in self.nodes.values()))

    def _look(self, core: Core, now: Instant, summary: ClusterSummary) -> Nodes:
        name = summary.name
        known, there = core.information.clusters[name], core.launchers.on(name, OwnerKind.SWEEP)
        sizes = [node_size(known, core.node_sizes.get(name, 0)), *(each.processors for each in there)]
        size = core.node_sizes[name] = max(sizes)
        return look(core, now, known, summary, len(there), size, self._policy)


def look(
    core: Core,
    now: Instant,
    known: Known,
    summary: ClusterSummary,
    held: int,
    size: int,
    policy: IdlenessPolicy,
) -> Nodes:
    """Return the nodes of one cluster for sweeps.

    `held`: the number of nodes that sweeps hold or will soon get. `size`: the processors of the largest node seen there
    so far.
    """
    rules, state = known.settings.scavenge, known.state
    if rules.off:
        return _shut("the grid file keeps sweeps off it")
    if known.settings.draining:
        return _shut("it is being drained")
    if state is None or (summary.trouble is not None and not held):
        return _shut(str(summary.trouble or "it has not been measured").rstrip("."), held)
    refuses = summary.trouble is not None and summary.trouble.code == REFUSES
    seen = summary.trouble is None or refuses
    if seen and state.others_hidden and not rules.native:
        return _shut("others' jobs cannot be seen there, so that sweeps could be in their way")
    if not size:
        return _shut(f"no node of it was ever seen idle{_used_by_others(core, known.settings.name, state)}")
    idle = _idle(known, core.information.commitments) if seen and not refuses else []
    sight = ClusterNodes(
        total=max(1, state.total // size),
        idle=len(idle),
        held=held,
        waiting=state.waiting_local,
        now=now,
        utc_offset=offset_at(now, core.settings.scavenging.offsets),
        rules=rules,
    )
    if not seen:  # the hours of the rules may end while idle nodes are unknown
        return _shut(str(summary.trouble).rstrip("."), min(held, _ask(policy, sight)[0]))
    return _allowed(sight, idle, policy, _used_by_others(core, known.settings.name, state))


def _shut(why: str, held: int = 0) -> Nodes:
    return Nodes(allowed=held, closed=why, why=why)


def _used_by_others(core: Core, cluster: str, state: ClusterState) -> str:
    """Return how many processors are used by others, another koalad of this user among them; '' for none."""
    own = sum(each.processors for each in core.records.live(cluster) if each.allocated_at is not None)
    used = state.others + max(0, state.ours - own)
    are = "is" if used == 1 else "are"
    return f"; {used} of its {counted_as(state.total, 'processor')} {are} used by others" if used else ""


def _allowed(sight: ClusterNodes, idle: Sequence[int], policy: IdlenessPolicy, used: str) -> Nodes:
    """Return the nodes that the policy allows. `used`: by whom the other nodes are, as the end of a sentence.

    The cluster is closed if the policy would not let a runner take a node that another one gives up.
    """
    allowed, wrong = _ask(policy, sight)
    left = replace(sight, idle=sight.idle + 1, held=max(0, sight.held - 1))
    may_grow = _ask(policy, left)[0] > left.held
    why = f"the idleness policy failed: {wrong}" if wrong else _words(allowed)
    closed = why if wrong else "" if may_grow else why or "its rules forbid it now"
    found = tuple(idle[: max(0, allowed - sight.held)])
    nothing = "" if found else closed or why or f"none of its nodes is idle altogether{used}"
    return Nodes(idle=found, allowed=allowed, closed=closed, why=nothing)


def _words(allowed: int) -> str:
    return allowed.why if isinstance(allowed, Allowance) else ""


def _ask(policy: IdlenessPolicy, sight: ClusterNodes) -> tuple[int, str]:
    return call_policy(lambda: policy(sight), lambda found: allowance_error(found, sight), sight.held)


def _idle(known: Known, commitments: Commitments) -> list[int]:
    """Return the processors of each wholly idle node, the largest first.

    Nodes for committed processors and for waiting local jobs are left out, since these come first.
    """
    state, name = known.state, known.settings.name
    if state is None:
        return []
    scavenged = commitments.scavenged_on(name)
    sizes = sorted(_each((*_taken(known, state), *scavenged.freed)), reverse=True)
    spoken_for = commitments.on(name)[0] + scavenged.coming + state.wanted_local
    while sizes and spoken_for > 0:
        spoken_for -= sizes.pop(0)
    return sizes


def _taken(known: Known, state: ClusterState) -> list[tuple[int, int]]:
    """Return (processors, count) of the wholly idle nodes, within the grid file's `processors_per_node`."""
    most = known.settings.processors_per_node
    return [(min(size, most or size), count) for size, count in state.whole_nodes]


def _each(nodes: Iterable[tuple[int, int]]) -> list[int]:
    return [size for size, count in nodes for _ in range(count)]


def node_size(known: Known, before: int) -> int:
    """Return the largest number of processors on one node seen so far; `before`: the largest until now."""
    shown = _taken(known, known.state) if known.state is not None else []
    return max([before, *(size for size, count in shown if count)])
