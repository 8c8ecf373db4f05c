"""The nodes of each runner on each cluster, while a fair-share policy hands them out one by one."""

from collections.abc import Callable, Iterable, Sequence

from koalapy.policies.shares import ClusterShare, Nodes, RunnerShare

# Runners that share one part: all of a user's, the oldest first; or one alone among its user's.
Group = tuple[RunnerShare, ...]
Rank = Callable[[Group], tuple[int, ...]]


def users(runners: Sequence[RunnerShare]) -> list[Group]:
    """Return the runners of each user, the user of the oldest runner first."""
    groups: dict[str, list[RunnerShare]] = {}
    for each in runners:
        groups.setdefault(each.user, []).append(each)
    return [tuple(each) for each in groups.values()]


def levels(groups: Sequence[Group]) -> list[list[Group]]:
    """Return the groups to even out, one list after the other: the users, then each user's runners."""
    return [list(groups), *(alone(group) for group in groups if len(group) > 1)]


def alone(group: Group) -> list[Group]:
    """Return each runner of a group as a group of its own."""
    return [(each,) for each in group]


def poorest_first(groups: Iterable[Group], rank: Rank) -> list[Group]:
    """Return the groups by ascending rank; among equals the oldest first."""
    return sorted(groups, key=rank)


def richest_first(groups: Sequence[Group], rank: Rank) -> list[Group]:
    """Return the groups by descending rank; among equals the youngest first."""
    youngest_first = groups[::-1]  # a stable sort keeps the order of equals, also with `reverse`
    return sorted(youngest_first, key=rank, reverse=True)


class NodeCounts:
    """The nodes of each runner, and `free`: the unassigned nodes on each cluster that is not excluded.

    No node on an excluded cluster is reassigned.
    """

    def __init__(self, runners: Iterable[RunnerShare], shares: Sequence[ClusterShare] = (), anew: bool = False) -> None:
        self._nodes = {each.sweep: dict(each.holds) for each in runners}
        self._grid_wide = {sweep: sum(nodes.values()) for sweep, nodes in self._nodes.items()}
        self.free = {share.cluster: share.idle + anew * share.coming for share in shares if not share.excluded}

    @property
    def nodes(self) -> Nodes:
        return {sweep: {cluster: count for cluster, count in on.items() if count} for sweep, on in self._nodes.items()}

    def on(self, group: Group, cluster: str) -> int:
        return sum([self._nodes[each.sweep].get(cluster, 0) for each in group])

    def grid_wide(self, group: Group) -> int:
        return sum([self._grid_wide[each.sweep] for each in group])

    def takers(self, group: Group, cluster: str) -> Group:
        """Return the runners of the group that can use a node there."""
        return tuple([each for each in group if cluster in self.free and self._has_use(each, cluster)])

    def holders(self, group: Group, cluster: str) -> Group:
        return tuple([each for each in group if self._nodes[each.sweep].get(cluster, 0)])

    def give(self, sweep: int, cluster: str) -> None:
        """Assign one of the free nodes to the sweep."""
        self.free[cluster] -= 1
        self._add(sweep, cluster, 1)

    def take(self, sweep: int, cluster: str) -> None:
        """Take one node from the sweep, without making it free."""
        self._add(sweep, cluster, -1)

    def move(self, giver: int, taker: int, cluster: str) -> None:
        self.take(giver, cluster)
        self._add(taker, cluster, 1)

    def _has_use(self, runner: RunnerShare, cluster: str) -> bool:
        return cluster not in runner.excluded and self._grid_wide[runner.sweep] < runner.wants

    def _add(self, sweep: int, cluster: str, count: int) -> None:
        self._nodes[sweep][cluster] = self._nodes[sweep].get(cluster, 0) + count
        self._grid_wide[sweep] += count
