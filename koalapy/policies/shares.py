"""The input and answer of a fair-share policy, and the checks of an answer. All counts are nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from koalapy.model.counts import counted_as


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerShare:
    """An active runner.

    `wants`: the nodes that it can use grid-wide, including those that it holds. `holds`: its Launchers' nodes on each
    cluster, without those that were asked to stop. `reclaimed`: nodes that others' jobs took from it there since the
    last full division. It takes no further nodes on `excluded` clusters.
    """

    sweep: int
    user: str
    wants: int
    holds: Mapping[str, int] = field(default_factory=dict)
    reclaimed: Mapping[str, int] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShare:
    """A cluster's nodes that runners may have besides those that they hold, as its idleness policy allows.

    `idle`: available now. `coming`: will be free after Launchers stopped to make way for other runners. They count only
    in a full division, so that no further Launcher is stopped for the same node. `excluded`: no runner may grow there,
    so none has to shrink there for another.
    """

    cluster: str
    idle: int
    coming: int = 0
    excluded: bool = False


Nodes = Mapping[int, Mapping[str, int]]  # of each sweep, on each cluster

# (runners, clusters, anew) -> the nodes that each runner should have, on every cluster where it should have any.
# `anew`: the set of runners has changed, and some may have to shrink; else no runner gets fewer than it holds.
Share = Callable[[Sequence[RunnerShare], Sequence[ClusterShare], bool], Nodes]

# (runners, cluster, nodes) -> how many nodes each runner gives up there, for jobs that are not sweeps.
Reclaim = Callable[[Sequence[RunnerShare], str, int], Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class FairShare:
    """A fair-share policy: two pure functions. Both see the runners with the oldest first."""

    share: Share
    reclaim: Reclaim


def share_error(answer: Nodes, runners: Sequence[RunnerShare], shares: Sequence[ClusterShare], anew: bool) -> str:
    """Return the error in the answer of a `share`, as the end of a sentence; '' if it is valid."""
    by_sweep = {each.sweep: each for each in runners}
    for sweep, nodes in answer.items():
        if sweep not in by_sweep:
            return f"it names sweep {sweep}, which is not active"
        if wrong := _nodes_error(nodes, by_sweep[sweep], {share.cluster for share in shares}):
            return f"it gives sweep {sweep} {wrong}"
    if not anew and (less := [each.sweep for each in runners if _shrinks(each, answer.get(each.sweep, {}))]):
        return f"it shrinks sweep {less[0]}, though the runners are the same"
    return next(filter(None, (_overfull(answer, runners, share, anew) for share in shares)), "")


def reclaim_error(answer: Mapping[int, int], runners: Sequence[RunnerShare], cluster: str, nodes: int) -> str:
    """Return the error in the answer of a `reclaim`, as the end of a sentence; '' if it is valid."""
    held = {each.sweep: each.holds.get(cluster, 0) for each in runners}
    for sweep, count in answer.items():
        if not _is_count(count) or count > held.get(sweep, 0):
            return (
                f"it takes {counted_as(count, 'node')} of sweep {sweep} on {cluster}, which holds {held.get(sweep, 0)}"
            )
    enough = min(nodes, sum(held.values()))
    taken = sum(answer.values())
    return "" if taken == enough else f"it takes {counted_as(taken, 'node')} on {cluster}, where {enough} must be taken"


def _nodes_error(nodes: Mapping[str, int], runner: RunnerShare, clusters: set[str]) -> str:
    for cluster, count in nodes.items():
        if not _is_count(count) or (count and cluster not in clusters | set(runner.holds)):
            return f"{counted_as(count, 'node')} on {cluster}"
        if cluster in runner.excluded and count > runner.holds.get(cluster, 0):
            return f"{counted_as(count, 'node')} on {cluster}, where it may not grow"
    total, most = sum(nodes.values()), max(runner.wants, sum(runner.holds.values()))
    return f"{counted_as(total, 'node')}, where it has a use for {most}" if total > most else ""


def _shrinks(runner: RunnerShare, nodes: Mapping[str, int]) -> bool:
    return any(nodes.get(cluster, 0) < held for cluster, held in runner.holds.items())


def _overfull(answer: Nodes, runners: Sequence[RunnerShare], share: ClusterShare, anew: bool) -> str:
    there = sum(nodes.get(share.cluster, 0) for nodes in answer.values())
    held = sum(each.holds.get(share.cluster, 0) for each in runners)
    most = held if share.excluded else held + share.idle + (share.coming if anew else 0)
    return f"it gives away {counted_as(there, 'node')} on {share.cluster}, which has {most}" if there > most else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
