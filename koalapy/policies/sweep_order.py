"""The parameters that a sweep runs next on a cluster, and the clusters where it takes no nodes (CCGrid 2009, 5.4).

A user's own order is a `SweepOrder` of two pure functions, registered under `koalapy.sweep_order`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from koalapy.model.counts import counted_as
from koalapy.model.intervals import NONE, Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A sweep's parameters that may run now, by their numbers: `waiting` is all of them.

    `returned`: those that were begun or handed out before and came back, by the cluster that they came back from.
    `holds`: the nodes that the sweep has on each cluster.
    """

    waiting: Intervals
    returned: Mapping[str, Intervals] = field(default_factory=dict)
    holds: Mapping[str, int] = field(default_factory=dict)


# (pool, cluster, most) -> the numbers to run next there, of those that wait, `most` at most.
Feed = Callable[[Pool, str, int], Intervals]

# (pool, clusters) -> those of the clusters where the sweep takes no further nodes.
Exclude = Callable[[Pool, Sequence[str]], Sequence[str]]


def _none(pool: Pool, clusters: Sequence[str]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class SweepOrder:
    """The order of a sweep's parameters, and the clusters where it takes no further nodes."""

    feed: Feed
    exclude: Exclude = _none


def _in_order(pool: Pool, cluster: str, most: int) -> Intervals:
    """Feed parameters in the order of their numbers; returned ones come first, so that none is late at the end."""
    returned = NONE
    for numbers in pool.returned.values():
        returned |= numbers
    return _first(most, returned & pool.waiting, pool.waiting)


def _back_home(pool: Pool, cluster: str, most: int) -> Intervals:
    """Feed parameters that came back from this cluster first: its input files are there.

    Parameters that came back from other clusters go last, since their clusters may want them. They run here rather than
    leave slots empty.
    """
    elsewhere = NONE
    for other, numbers in pool.returned.items():
        if other != cluster and pool.holds.get(other):
            elsewhere |= numbers
    own = pool.returned.get(cluster, NONE)
    return _first(most, own & pool.waiting, pool.waiting - elsewhere, pool.waiting)


IN_ORDER = SweepOrder(_in_order)
BACK_HOME = SweepOrder(_back_home)
SHIPPED: Mapping[str, SweepOrder] = {"in-order": IN_ORDER, "back-home": BACK_HOME}


def feed_error(answer: Intervals, pool: Pool, most: int) -> str:
    """Return the error in the answer of a feed, as the end of a sentence; '' if it is valid."""
    if not isinstance(answer, Intervals):
        return f"it feeds {type(answer).__name__}, not Intervals"
    if strangers := answer - pool.waiting:
        return f"it feeds parameter {strangers.pairs[0][0]}, which does not wait"
    return f"it feeds {counted_as(len(answer), 'parameter')}, more than {most}" if len(answer) > most else ""


def exclusion_error(answer: Sequence[str], clusters: Sequence[str]) -> str:
    """Return the error in a list of excluded clusters, as the end of a sentence; '' if it is valid."""
    strangers = [each for each in answer if each not in clusters]
    return f"it avoids {strangers[0]}, which is not a cluster of the grid" if strangers else ""


def _first(most: int, *choices: Intervals) -> Intervals:
    """Return the first `most` numbers: all of the first choice, then of the next, and so on."""
    chosen = NONE
    for numbers in choices:
        if len(chosen) >= most:
            break
        chosen |= (numbers - chosen).lowest(most - len(chosen))
    return chosen
