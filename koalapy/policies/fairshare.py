"""Equipartition-All and Equipartition-PerSite (CCGrid 2009, section 5.3).

Shares are among users, and a user's sweeps share that user's nodes by the same rules. Nodes go one by one to the user
with the fewest, the older first among equals. A full division moves no more nodes than it needs.
"""

from collections.abc import Callable, Mapping, Sequence

from koalapy.policies.node_counts import Group, NodeCounts, Rank, alone, levels, poorest_first, richest_first, users
from koalapy.policies.shares import ClusterShare, FairShare, Nodes, RunnerShare


def _share_all(runners: Sequence[RunnerShare], shares: Sequence[ClusterShare], anew: bool) -> Nodes:
    """Give equal numbers grid-wide. Nodes that others' jobs took go back to their former runners first."""
    counts, groups = NodeCounts(runners, shares, anew), users(runners)
    reclaimed = {} if anew else {each.sweep: dict(each.reclaimed) for each in runners}

    def rank(group: Group) -> tuple[int, ...]:
        """Count also the nodes that were taken from the group: it gets those back, and no others in their place."""
        return (counts.grid_wide(group) + sum(sum(reclaimed.get(each.sweep, {}).values()) for each in group),)

    def hand_out() -> None:
        while grown := _growth(counts, groups, rank):
            counts.give(*grown)

    def even_out() -> None:
        for level in levels(groups):
            _even_out(counts, level, rank, _where_it_holds(counts))

    for cluster in counts.free:
        _give_back(counts, groups, cluster, reclaimed)
    return _distribute(counts, hand_out, even_out, anew)


def _share_persite(runners: Sequence[RunnerShare], shares: Sequence[ClusterShare], anew: bool) -> Nodes:
    """Give equal numbers on every cluster. Nodes left over go to the runners with the fewest grid-wide."""
    counts, groups = NodeCounts(runners, shares, anew), users(runners)

    def hand_out() -> None:
        for cluster in counts.free:
            _fill_equally(counts, groups, cluster)
        for cluster in counts.free:
            _fill(counts, groups, cluster)

    def even_out() -> None:
        for level in levels(groups):
            for cluster in counts.free:
                _even_out(counts, level, _on(counts, cluster), _only_where(counts, cluster))
            _even_out(counts, level, _grid_wide(counts), _where_it_has_more(counts))

    return _distribute(counts, hand_out, even_out, anew)


def _reclaim_all(runners: Sequence[RunnerShare], cluster: str, nodes: int) -> Mapping[int, int]:
    """Take from the runner with most nodes grid-wide, among those that have some here."""
    counts = NodeCounts(runners)
    return _taken(counts, users(runners), cluster, nodes, _grid_wide(counts))


def _reclaim_persite(runners: Sequence[RunnerShare], cluster: str, nodes: int) -> Mapping[int, int]:
    """Take from the runner with most nodes on this cluster; among equals from the one with most grid-wide."""
    counts = NodeCounts(runners)
    return _taken(counts, users(runners), cluster, nodes, _on(counts, cluster))


EQUIPARTITION_ALL = FairShare(_share_all, _reclaim_all)
EQUIPARTITION_PERSITE = FairShare(_share_persite, _reclaim_persite)

Places = Callable[[Group, Group], list[str]]  # clusters on which the first could give the second a node, the best first


def _distribute(counts: NodeCounts, hand_out: Callable[[], None], even_out: Callable[[], None], anew: bool) -> Nodes:
    """Hand out and even out until nothing changes: a runner that gave up a node may use a free one elsewhere."""
    hand_out()
    before = None
    while anew and before != counts.free:
        before = dict(counts.free)
        even_out()
        hand_out()
    return counts.nodes


def _grid_wide(counts: NodeCounts) -> Rank:
    return lambda group: (counts.grid_wide(group),)


def _on(counts: NodeCounts, cluster: str) -> Rank:
    return lambda group: (counts.on(group, cluster), counts.grid_wide(group))


def _give_back(counts: NodeCounts, groups: Sequence[Group], cluster: str, reclaimed: dict[int, dict[str, int]]) -> None:
    """Give each free node to the runner from which most of them there were taken."""
    while counts.free[cluster]:
        takers = [
            each.sweep
            for group in groups
            for each in counts.takers(group, cluster)
            if _reclaimed(reclaimed, each, cluster)
        ]
        if not takers:
            return
        sweep = max(takers, key=lambda sweep: reclaimed[sweep][cluster])
        reclaimed[sweep][cluster] -= 1
        counts.give(sweep, cluster)


def _reclaimed(reclaimed: Mapping[int, Mapping[str, int]], runner: RunnerShare, cluster: str) -> int:
    return reclaimed.get(runner.sweep, {}).get(cluster, 0)


def _growth(counts: NodeCounts, groups: Sequence[Group], rank: Rank) -> tuple[int, str] | None:
    """Return the runner that gets the next node, and its cluster; None if no runner can use one."""
    for group in poorest_first(groups, rank):
        for one in poorest_first(alone(group), rank):
            open_to_it = [cluster for cluster, free in counts.free.items() if free and counts.takers(one, cluster)]
            if open_to_it:
                return one[0].sweep, min(open_to_it, key=lambda cluster: _growth_cost(counts, one, groups, cluster))
    return None


def _growth_cost(counts: NodeCounts, one: Group, groups: Sequence[Group], cluster: str) -> tuple[int, bool, int]:
    """Return a sort key: a runner grows where it already has nodes, else where no other runner has any.

    Its files then go to fewer clusters.
    """
    shared = any(counts.on(group, cluster) for group in groups)
    return -counts.on(one, cluster), shared, -counts.free[cluster]


def _fill_equally(counts: NodeCounts, groups: Sequence[Group], cluster: str) -> None:
    """Give one node to each group with the fewest nodes here, while there are enough for all of these."""
    while takers := [group for group in groups if counts.takers(group, cluster)]:
        fewest = min(counts.on(group, cluster) for group in takers)
        poor = [group for group in takers if counts.on(group, cluster) == fewest]
        if len(poor) > counts.free[cluster]:
            return
        for group in poor:
            counts.give(_poorest_taker(counts, group, cluster), cluster)


def _fill(counts: NodeCounts, groups: Sequence[Group], cluster: str) -> None:
    while counts.free[cluster]:
        takers = [group for group in groups if counts.takers(group, cluster)]
        if not takers:
            return
        counts.give(_poorest_taker(counts, min(takers, key=_on(counts, cluster)), cluster), cluster)


def _even_out(counts: NodeCounts, groups: Sequence[Group], rank: Rank, places: Places) -> None:
    while move := _next_move(counts, groups, rank, places):
        counts.move(*move)


def _next_move(counts: NodeCounts, groups: Sequence[Group], rank: Rank, places: Places) -> tuple[int, int, str] | None:
    """Return the next move (giver, taker, cluster) of a node from the richest to the poorest group; None if done.

    A difference of one node is not worth a move.
    """
    for giver in richest_first(groups, rank):
        for taker in poorest_first(groups, rank):
            if rank(giver)[0] - rank(taker)[0] < 2:
                break
            for cluster in places(giver, taker):
                return _richest_holder(counts, giver, cluster), _poorest_taker(counts, taker, cluster), cluster
    return None


def _where_it_holds(counts: NodeCounts) -> Places:
    """Order clusters by the nodes that the taker has there, then by those of the giver, most first."""

    def places(giver: Group, taker: Group) -> list[str]:
        common = [each for each in counts.free if counts.holders(giver, each) and counts.takers(taker, each)]
        return sorted(common, key=lambda cluster: (-counts.on(taker, cluster), -counts.on(giver, cluster)))

    return places


def _only_where(counts: NodeCounts, cluster: str) -> Places:
    return lambda giver, taker: [cluster] if counts.takers(taker, cluster) else []


def _where_it_has_more(counts: NodeCounts) -> Places:
    """List clusters where the giver has more nodes: only a node left over moves, and the parts stay equal."""
    return lambda giver, taker: [
        each for each in counts.free if counts.on(giver, each) > counts.on(taker, each) and counts.takers(taker, each)
    ]


def _taken(counts: NodeCounts, groups: Sequence[Group], cluster: str, nodes: int, rank: Rank) -> Mapping[int, int]:
    """Return the nodes that each runner gives up: one by one from the richest, the younger first among equals."""
    taken: dict[int, int] = {}
    for _ in range(nodes):
        holders = [group for group in groups if counts.holders(group, cluster)]
        if not holders:
            break
        sweep = _richest_holder(counts, richest_first(holders, rank)[0], cluster)
        counts.take(sweep, cluster)
        taken[sweep] = taken.get(sweep, 0) + 1
    return taken


def _poorest_taker(counts: NodeCounts, group: Group, cluster: str) -> int:
    return poorest_first(alone(counts.takers(group, cluster)), _on(counts, cluster))[0][0].sweep


def _richest_holder(counts: NodeCounts, group: Group, cluster: str) -> int:
    return richest_first(list(alone(counts.holders(group, cluster))), _on(counts, cluster))[0][0].sweep
