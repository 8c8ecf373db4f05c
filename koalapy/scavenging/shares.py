"""The division of nodes among runners by the fair-share policy, and the nodes that others' jobs took from a runner."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.identity import JobId
from koalapy.model.sweep import Sweep
from koalapy.policies import call_policy
from koalapy.policies.shares import ClusterShare, FairShare, RunnerShare, share_error
from koalapy.policies.shares import Nodes as Answer
from koalapy.scavenging.idle_nodes import Nodes
from koalapy.scavenging.launchers import owner_of, slots_of, staying

MANY = 100_000  # nodes: more than any grid has


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A runner grows by `nodes` nodes on a cluster, or shrinks if they are negative."""

    sweep: JobId
    cluster: str
    nodes: int


class Shares:
    """The answers of a fair-share policy, which is pure: it is called again only if its input has changed."""

    def __init__(self, policy: FairShare) -> None:
        self._policy = policy
        self._asked: tuple[list[RunnerShare], list[ClusterShare], bool] | None = None
        self._found: tuple[list[NodeChange], str] = [], ""

    def node_changes(
        self, claimants: Sequence[RunnerShare], clusters: Sequence[ClusterShare], anew: bool
    ) -> tuple[list[NodeChange], str]:
        """Return the changes to make now, as far as nodes are idle, and the error in the policy's answer or ''."""
        asked = within(claimants, clusters), list(clusters), anew
        if asked != self._asked:
            self._asked, self._found = asked, _changes(*asked, self._policy)
        return self._found


def within(claimants: Sequence[RunnerShare], clusters: Sequence[ClusterShare]) -> list[RunnerShare]:
    """Limit what each runner wants to the nodes that exist, so that a further result does not change the shares."""
    there = sum(each.idle + each.coming for each in clusters) + sum(sum(each.holds.values()) for each in claimants)
    return [replace(each, wants=min(each.wants, there)) for each in claimants]


def holds(found: Iterable[Attempt]) -> dict[str, int]:
    """Return the nodes on each cluster of Launchers that were not asked to stop."""
    held: dict[str, int] = {}
    for launcher in staying(found):
        held[launcher.cluster] = held.get(launcher.cluster, 0) + 1
    return held


def runner_share(core: Core, sweep: Sweep, excluded: Sequence[str]) -> RunnerShare:
    return RunnerShare(
        sweep=sweep.id,
        user=str(sweep.id) if core.settings.scavenging.personal else sweep.owner,
        wants=nodes_wanted(core, sweep),
        holds=holds(core.launchers.of(owner_of(sweep.id))),
        reclaimed=dict(sweep.reclaimed),
        excluded=tuple(excluded),
    )


def nodes_wanted(core: Core, sweep: Sweep) -> int:
    """Return how many nodes the sweep could use. If node sizes differ, each node counts with the fewest slots."""
    slots = [found for size in core.node_sizes.values() if (found := slots_of(sweep.request.components[0], size))]
    return min(MANY, -(-sweep.remaining // min(slots))) if slots else 0


def cluster_share(name: str, nodes: Nodes, coming: int, paused: bool) -> ClusterShare:
    return ClusterShare(
        cluster=name, idle=0 if paused else len(nodes.idle), coming=coming, excluded=paused or bool(nodes.closed)
    )


def _changes(
    claimants: Sequence[RunnerShare], clusters: Sequence[ClusterShare], anew: bool, policy: FairShare
) -> tuple[list[NodeChange], str]:
    as_it_is: Answer = {each.sweep: dict(each.holds) for each in claimants}
    wanted, wrong = call_policy(
        lambda: policy.share(claimants, clusters, anew),
        lambda found: share_error(found, claimants, clusters, anew),
        as_it_is,
    )
    idle = {each.cluster: each.idle for each in clusters}
    found: list[NodeChange] = []
    for each in claimants:
        there = wanted.get(each.sweep, {})
        for cluster in dict.fromkeys((*there, *each.holds)):
            more = there.get(cluster, 0) - each.holds.get(cluster, 0)
            more = min(more, idle.get(cluster, 0)) if more > 0 else more
            if more:
                idle[cluster] = idle.get(cluster, 0) - max(0, more)
                found.append(NodeChange(JobId(each.sweep), cluster, more))
    return found, wrong


def note_reclaimed(core: Core, sweep: JobId, cluster: str, nodes: int) -> None:
    """Record that `nodes` nodes of the sweep on the cluster were taken for others' jobs."""
    found = core.records.sweeps[sweep]
    reclaimed = Counter(dict(found.reclaimed))
    reclaimed[cluster] += nodes
    core.records.change_work(found, reclaimed=(*reclaimed.items(),))


def note_given_back(core: Core, sweep: Sweep, cluster: str, nodes: int) -> None:
    """Record that the sweep has `nodes` more nodes there: as many of those that were taken are given back."""
    reclaimed = dict(sweep.reclaimed)
    if cluster in reclaimed:
        reclaimed[cluster] -= nodes
        left = tuple((name, count) for name, count in reclaimed.items() if count > 0)
        core.records.change_work(sweep, reclaimed=left)


def forget_reclaimed(core: Core, sweep: Sweep) -> None:
    """Forget which nodes were taken from the sweep, since all nodes are divided anew."""
    if sweep.reclaimed:
        core.records.change_work(sweep, reclaimed=())
