"""Who has how many nodes where, while a fair-share policy hands them out one by one."""

from collections.abc import Callable, Iterable, Sequence

from koalapy.policies.shares import Claimant, Nodes, Site

# Runners that share one part: all of a user's, the oldest first; or one alone among its user's.
Party = tuple[Claimant, ...]
Rank = Callable[[Party], tuple[int, ...]]


def users(claimants: Sequence[Claimant]) -> list[Party]:
    """The runners of each user; the user of the oldest runner first."""
    parties: dict[str, list[Claimant]] = {}
    for each in claimants:
        parties.setdefault(each.user, []).append(each)
    return [tuple(each) for each in parties.values()]


def levels(parties: Sequence[Party]) -> list[list[Party]]:
    """What is evened out one after the other: the users, then each user's runners among themselves."""
    return [list(parties), *(alone(party) for party in parties if len(party) > 1)]


def alone(party: Party) -> list[Party]:
    return [(each,) for each in party]


def poorest_first(parties: Iterable[Party], rank: Rank) -> list[Party]:
    """By what they have; among equals the oldest first."""
    return sorted(parties, key=rank)


def richest_first(parties: Sequence[Party], rank: Rank) -> list[Party]:
    """By what they have; among equals the youngest first."""
    youngest_first = parties[::-1]  # a stable sort keeps equals as they are, a reversed one too
    return sorted(youngest_first, key=rank, reverse=True)


class Ledger:
    """`free`: nodes that nobody has yet, on each cluster that is not closed. On a closed one nothing changes hands."""

    def __init__(self, claimants: Iterable[Claimant], sites: Sequence[Site] = (), anew: bool = False) -> None:
        self._nodes = {each.sweep: dict(each.holds) for each in claimants}
        self._grid_wide = {sweep: sum(nodes.values()) for sweep, nodes in self._nodes.items()}
        self.free = {site.cluster: site.idle + anew * site.coming for site in sites if not site.closed}

    @property
    def nodes(self) -> Nodes:
        return {sweep: {cluster: count for cluster, count in on.items() if count} for sweep, on in self._nodes.items()}

    def on(self, party: Party, cluster: str) -> int:
        return sum([self._nodes[each.sweep].get(cluster, 0) for each in party])

    def grid_wide(self, party: Party) -> int:
        return sum([self._grid_wide[each.sweep] for each in party])

    def takers(self, party: Party, cluster: str) -> Party:
        """Those of it that have a use for a node there."""
        return tuple([each for each in party if cluster in self.free and self._has_use(each, cluster)])

    def holders(self, party: Party, cluster: str) -> Party:
        return tuple([each for each in party if self._nodes[each.sweep].get(cluster, 0)])

    def give(self, sweep: int, cluster: str) -> None:
        """One of the free nodes."""
        self.free[cluster] -= 1
        self._add(sweep, cluster, 1)

    def take(self, sweep: int, cluster: str) -> None:
        """One, for good."""
        self._add(sweep, cluster, -1)

    def move(self, giver: int, taker: int, cluster: str) -> None:
        self.take(giver, cluster)
        self._add(taker, cluster, 1)

    def _has_use(self, claimant: Claimant, cluster: str) -> bool:
        return cluster not in claimant.barred and self._grid_wide[claimant.sweep] < claimant.wants

    def _add(self, sweep: int, cluster: str, count: int) -> None:
        self._nodes[sweep][cluster] = self._nodes[sweep].get(cluster, 0) + count
        self._grid_wide[sweep] += count
