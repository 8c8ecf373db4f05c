"""The jobs of regular grid users while sweeps run: WBlock and WBurst (CCGrid 2009, section 6.3).

Both impose 40 % of the whole system, unevenly over its clusters. The paper does not give the clusters' shares or the
jobs' sizes. Both are chosen here, with jobs of a few nodes for a few minutes.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.random_streams import between, stream

_SIZES = (2, 4, 8)  # nodes of a job
_LASTS = Duration(60 * SECOND), Duration(4 * MINUTE)
_FIRST = 5 * MINUTE  # until then sweeps have the system for themselves
_BLOCK, _BLOCKS_APART = 10 * MINUTE, 20 * MINUTE
_BURST, _BURSTS_APART = 1 * MINUTE, 10 * MINUTE


class GridJob(NamedTuple):
    """A job of a regular user. `at`: when it is submitted, from the beginning of the experiment."""

    at: Duration
    cluster: str
    nodes: int
    lasts: Duration


def wblock(seed: int, nodes: Mapping[str, int], shares: Mapping[str, float], length: Duration) -> list[GridJob]:
    """Return a steady load for ten minutes, job after job, then none for ten minutes, repeatedly."""
    found = []
    for begin in range(_FIRST, length, _BLOCKS_APART):
        for cluster, wanted in _wanted(nodes, shares):
            rng = stream(seed, f"wblock/{begin}/{cluster}")
            for size in _sizes(rng, wanted):
                found += list(_chain(rng, cluster, size, begin, begin + _BLOCK))
    return sorted(found)


def wburst(seed: int, nodes: Mapping[str, int], shares: Mapping[str, float], length: Duration) -> list[GridJob]:
    """Return the same load, submitted within one minute of every ten minutes."""
    found = []
    for begin in range(_FIRST, length, _BURSTS_APART):
        for cluster, wanted in _wanted(nodes, shares):
            rng = stream(seed, f"wburst/{begin}/{cluster}")
            for size in _sizes(rng, wanted):
                at = Duration(begin + rng.randrange(_BURST))
                found.append(GridJob(at, cluster, size, between(rng, *_LASTS)))
    return sorted(found)


WORKLOADS = {"WBlock": wblock, "WBurst": wburst}


def _chain(rng: Random, cluster: str, size: int, begin: int, end: int) -> Iterator[GridJob]:
    """Return jobs that follow each other on the same number of nodes; the last one ends with the block."""
    at = begin + rng.randrange(20 * SECOND)
    while at < end:
        lasts = Duration(min(between(rng, *_LASTS), max(20 * SECOND, end - at)))
        yield GridJob(Duration(at), cluster, size, lasts)
        at += lasts


def _wanted(nodes: Mapping[str, int], shares: Mapping[str, float]) -> Iterator[tuple[str, int]]:
    for cluster, count in nodes.items():
        if wanted := round(count * shares[cluster]):
            yield cluster, wanted


def _sizes(rng: Random, nodes: int) -> Iterator[int]:
    while nodes > 0:
        size = min(nodes, rng.choice(_SIZES))
        yield size
        nodes -= size
