"""Random sites of one simulated world: their grids, what each lends and borrows, and who is whose neighbour."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from koalapy.model.cluster import ClusterSettings, Scavenge
from koalapy.model.lease import Borrow, Delegation, Lend
from koalapy.model.neighbour import Relation
from koalapy.model.request import Isolate
from koalapy.model.settings import Settings
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.random_streams import stream
from koalapy.world.sites import SimSites, SitePair
from koalapy.world.world import draw_cluster, draw_settings

MOST = 5
_NAMES = ("amsterdam", "berlin", "cordoba", "delft", "evora")
_WIDE = 0.4  # of all sites have a cluster of large nodes
_PASS_ON, _STRANGERS = 0.7, 0.8
_ISOLATION = 0.3  # of all sites lend nodes that isolate programs
_RING = 0.5  # of all pairs of siblings are neighbours
_ONE_DIALS = 0.3
_NEAR = 0.5  # of all neighbours' nodes are reached
_SWEEPS = 0.5  # of all sites have nodes for sweeps, and borrow more for them


def draw_sites(seed: int, rng: Random, count: int) -> SimSites:
    """Draw a world of so many sites: a tree, and links between the children of one parent."""
    names = _NAMES[:count]
    parents = {name: rng.choice(names[:at]) for at, name in enumerate(names) if at}
    pairs = [_pair(rng, parent, name, Relation.CHILD) for name, parent in parents.items()]
    for at, one in enumerate(names):
        siblings = [other for other in names[at + 1 :] if one in parents and parents[other] == parents[one]]
        pairs += [_pair(rng, one, other, Relation.SIBLING) for other in siblings if rng.random() < _RING]
    if count > 2 and len(pairs) < count:  # else no request would ever come by two ways
        one, other = names[-1], rng.choice([each for each in names[:-1] if each != parents[names[-1]]])
        pairs.append(_pair(rng, one, other, Relation.SIBLING))
    wide = [rng.random() < _WIDE for _ in names]
    wide[rng.randrange(count)] = True
    settings = {name: _settings(rng, name, pairs, wide[at]) for at, name in enumerate(names)}
    near = _with_networks(stream(seed, "sites/networks"), settings)
    settings = _with_isolation(stream(seed, "sites/isolation"), _with_sweeps(stream(seed, "sites/sweeps"), near))
    return SimSites(seed, settings, pairs)


def _pair(rng: Random, one: str, other: str, relation: Relation) -> SitePair:
    dial = frozenset((rng.choice((one, other)),)) if rng.random() < _ONE_DIALS else frozenset[str]()
    return SitePair(one, other, relation, dial)


def _settings(rng: Random, name: str, pairs: list[SitePair], wide: bool) -> Settings:
    neighbours = [pair.other if pair.one == name else pair.one for pair in pairs if name in (pair.one, pair.other)]
    clusters = [_narrow(draw_cluster(rng, f"{name}1"))]
    if wide:
        clusters.append(replace(draw_cluster(rng, f"{name}2"), processors_per_node=12, exclusive=False))
    lend = Lend(
        to=tuple(neighbours), processors=rng.choice((24, 48)), pass_on=rng.random() < _PASS_ON,
        strangers=rng.random() < _STRANGERS, lost_after=Duration(rng.choice((1, 3)) * MINUTE),
    )  # fmt: skip
    borrow = Borrow(
        after=Duration(rng.choice((0, 5, 20)) * SECOND), processors=rng.choice((None, None, 60)),
        idle=Duration(rng.choice((10, 40)) * SECOND), again=Duration(rng.choice((10, 90)) * SECOND),
    )  # fmt: skip
    delegation = Delegation(dttl=rng.choice((1, 2, 4)), interval=Duration(rng.choice((0, 0, 5)) * SECOND))
    drawn = draw_settings(rng)
    return replace(drawn, clusters=tuple(clusters), lend=lend, borrow=borrow, delegation=delegation)


def _with_networks(rng: Random, settings: Mapping[str, Settings]) -> dict[str, Settings]:
    """Draw which neighbours' nodes are reached, from a stream of their own."""
    found = {}
    for name, each in settings.items():
        assert each.borrow is not None
        assert each.lend is not None
        near = [neighbour for neighbour in each.lend.to if rng.random() < _NEAR]
        networks = tuple([(neighbour, rng.choice(each.clusters).network) for neighbour in near])
        found[name] = replace(each, borrow=replace(each.borrow, networks=networks))
    return found


def _with_sweeps(rng: Random, settings: Mapping[str, Settings]) -> dict[str, Settings]:
    """Draw which sites have sweeps, from a stream of their own."""
    found = dict(settings)
    for name, each in settings.items():
        if rng.random() < _SWEEPS and each.borrow is not None:
            clusters = tuple([replace(cluster, scavenge=Scavenge()) for cluster in each.clusters])
            found[name] = replace(each, clusters=clusters, borrow=replace(each.borrow, sweeps=True))
    return found


def _with_isolation(rng: Random, settings: Mapping[str, Settings]) -> dict[str, Settings]:
    """Draw which sites lend only nodes that isolate programs, from a stream of their own."""
    found = dict(settings)
    for name, each in settings.items():
        if rng.random() < _ISOLATION and each.lend is not None:
            found[name] = replace(each, lend=replace(each.lend, isolate=Isolate.AUTO))
    return found


def _narrow(cluster: ClusterSettings) -> ClusterSettings:
    return replace(cluster, processors_per_node=2, scavenge=Scavenge(off=True))
