"""Equipartition-All and Equipartition-PerSite (CCGrid 2009, section 5.3).

Shares are among users, and a user's sweeps share that user's nodes by the same rules. Nodes go one by one to whoever
has fewest, the older first among equals; all is shared out anew by moving no more nodes than that takes.
"""

from collections.abc import Callable, Mapping, Sequence

from koalapy.policies.ledger import Ledger, Party, Rank, alone, levels, poorest_first, richest_first, users
from koalapy.policies.shares import Claimant, FairShare, Nodes, Site


def _share_all(claimants: Sequence[Claimant], sites: Sequence[Site], anew: bool) -> Nodes:
    """Equal numbers grid-wide. What was taken goes back to whom it was taken from before anything is shared."""
    ledger, parties = Ledger(claimants, sites, anew), users(claimants)
    owed = {} if anew else {each.sweep: dict(each.owed) for each in claimants}

    def rank(party: Party) -> tuple[int, ...]:
        """With what it is owed: whoever gets that back one day gets nothing in its place."""
        return (ledger.grid_wide(party) + sum(sum(owed.get(each.sweep, {}).values()) for each in party),)

    def hand_out() -> None:
        while grown := _growth(ledger, parties, rank):
            ledger.give(*grown)

    def even_out() -> None:
        for level in levels(parties):
            _even_out(ledger, level, rank, _where_it_holds(ledger))

    for cluster in ledger.free:
        _give_back(ledger, parties, cluster, owed)
    return _settled(ledger, hand_out, even_out, anew)


def _share_persite(claimants: Sequence[Claimant], sites: Sequence[Site], anew: bool) -> Nodes:
    """Equal numbers on every cluster. Nodes left over go to whoever has fewest grid-wide."""
    ledger, parties = Ledger(claimants, sites, anew), users(claimants)

    def hand_out() -> None:
        for cluster in ledger.free:
            _fill_equally(ledger, parties, cluster)
        for cluster in ledger.free:
            _fill(ledger, parties, cluster)

    def even_out() -> None:
        for level in levels(parties):
            for cluster in ledger.free:
                _even_out(ledger, level, _on(ledger, cluster), _only_where(ledger, cluster))
            _even_out(ledger, level, _grid_wide(ledger), _where_it_has_more(ledger))

    return _settled(ledger, hand_out, even_out, anew)


def _reclaim_all(claimants: Sequence[Claimant], cluster: str, nodes: int) -> Mapping[int, int]:
    """From whoever has most grid-wide, of those that have some here."""
    ledger = Ledger(claimants)
    return _taken(ledger, users(claimants), cluster, nodes, _grid_wide(ledger))


def _reclaim_persite(claimants: Sequence[Claimant], cluster: str, nodes: int) -> Mapping[int, int]:
    """From whoever has most on this cluster; among equals from whoever has most grid-wide."""
    ledger = Ledger(claimants)
    return _taken(ledger, users(claimants), cluster, nodes, _on(ledger, cluster))


EQUIPARTITION_ALL = FairShare(_share_all, _reclaim_all)
EQUIPARTITION_PERSITE = FairShare(_share_persite, _reclaim_persite)

Places = Callable[[Party, Party], list[str]]  # clusters on which the first could give the second a node, the best first


def _settled(ledger: Ledger, hand_out: Callable[[], None], even_out: Callable[[], None], anew: bool) -> Nodes:
    """Whoever gives up a node may have a use for a free one that was of none to it before."""
    hand_out()
    before = None
    while anew and before != ledger.free:
        before = dict(ledger.free)
        even_out()
        hand_out()
    return ledger.nodes


def _grid_wide(ledger: Ledger) -> Rank:
    return lambda party: (ledger.grid_wide(party),)


def _on(ledger: Ledger, cluster: str) -> Rank:
    return lambda party: (ledger.on(party, cluster), ledger.grid_wide(party))


def _give_back(ledger: Ledger, parties: Sequence[Party], cluster: str, owed: dict[int, dict[str, int]]) -> None:
    """Each node to whoever is owed most of them there."""
    while ledger.free[cluster]:
        creditors = [
            each.sweep for party in parties for each in ledger.takers(party, cluster) if _owed(owed, each, cluster)
        ]
        if not creditors:
            return
        sweep = max(creditors, key=lambda sweep: owed[sweep][cluster])
        owed[sweep][cluster] -= 1
        ledger.give(sweep, cluster)


def _owed(owed: Mapping[int, Mapping[str, int]], claimant: Claimant, cluster: str) -> int:
    return owed.get(claimant.sweep, {}).get(cluster, 0)


def _growth(ledger: Ledger, parties: Sequence[Party], rank: Rank) -> tuple[int, str] | None:
    """Who gets a node next, and where; None: nobody can."""
    for party in poorest_first(parties, rank):
        for one in poorest_first(alone(party), rank):
            open_to_it = [cluster for cluster, free in ledger.free.items() if free and ledger.takers(one, cluster)]
            if open_to_it:
                return one[0].sweep, min(open_to_it, key=lambda cluster: _strangeness(ledger, one, parties, cluster))
    return None


def _strangeness(ledger: Ledger, one: Party, parties: Sequence[Party], cluster: str) -> tuple[int, bool, int]:
    """A runner grows where it is already, else where nobody is: its files then have to go to fewer clusters."""
    shared = any(ledger.on(party, cluster) for party in parties)
    return -ledger.on(one, cluster), shared, -ledger.free[cluster]


def _fill_equally(ledger: Ledger, parties: Sequence[Party], cluster: str) -> None:
    """A node to each of those that have fewest here, as long as there are enough for all of them."""
    while takers := [party for party in parties if ledger.takers(party, cluster)]:
        fewest = min(ledger.on(party, cluster) for party in takers)
        poor = [party for party in takers if ledger.on(party, cluster) == fewest]
        if len(poor) > ledger.free[cluster]:
            return
        for party in poor:
            ledger.give(_poorest_taker(ledger, party, cluster), cluster)


def _fill(ledger: Ledger, parties: Sequence[Party], cluster: str) -> None:
    while ledger.free[cluster]:
        takers = [party for party in parties if ledger.takers(party, cluster)]
        if not takers:
            return
        ledger.give(_poorest_taker(ledger, min(takers, key=_on(ledger, cluster)), cluster), cluster)


def _even_out(ledger: Ledger, parties: Sequence[Party], rank: Rank, places: Places) -> None:
    while move := _next_move(ledger, parties, rank, places):
        ledger.move(*move)


def _next_move(ledger: Ledger, parties: Sequence[Party], rank: Rank, places: Places) -> tuple[int, int, str] | None:
    """From the richest to the poorest that it can give a node to. A lead of one would only change hands."""
    for giver in richest_first(parties, rank):
        for taker in poorest_first(parties, rank):
            if rank(giver)[0] - rank(taker)[0] < 2:
                break
            for cluster in places(giver, taker):
                return _richest_holder(ledger, giver, cluster), _poorest_taker(ledger, taker, cluster), cluster
    return None


def _where_it_holds(ledger: Ledger) -> Places:
    """Best where the taker is already, then where the giver has most."""

    def places(giver: Party, taker: Party) -> list[str]:
        common = [each for each in ledger.free if ledger.holders(giver, each) and ledger.takers(taker, each)]
        return sorted(common, key=lambda cluster: (-ledger.on(taker, cluster), -ledger.on(giver, cluster)))

    return places


def _only_where(ledger: Ledger, cluster: str) -> Places:
    return lambda giver, taker: [cluster] if ledger.takers(taker, cluster) else []


def _where_it_has_more(ledger: Ledger) -> Places:
    """So that the two keep equal parts of the cluster: what changes hands is a node left over."""
    return lambda giver, taker: [
        each for each in ledger.free if ledger.on(giver, each) > ledger.on(taker, each) and ledger.takers(taker, each)
    ]


def _taken(ledger: Ledger, parties: Sequence[Party], cluster: str, nodes: int, rank: Rank) -> Mapping[int, int]:
    """One by one from the richest, the younger first among equals."""
    taken: dict[int, int] = {}
    for _ in range(nodes):
        holders = [party for party in parties if ledger.holders(party, cluster)]
        if not holders:
            break
        sweep = _richest_holder(ledger, richest_first(holders, rank)[0], cluster)
        ledger.take(sweep, cluster)
        taken[sweep] = taken.get(sweep, 0) + 1
    return taken


def _poorest_taker(ledger: Ledger, party: Party, cluster: str) -> int:
    return poorest_first(alone(ledger.takers(party, cluster)), _on(ledger, cluster))[0][0].sweep


def _richest_holder(ledger: Ledger, party: Party, cluster: str) -> int:
    return richest_first(list(alone(ledger.holders(party, cluster))), _on(ledger, cluster))[0][0].sweep
