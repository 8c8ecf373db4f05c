"""What local jobs that wait for processors want of a cluster: how much must be idle for them to start.

A job that waits for two nodes is not served by as many processors here and there. So jobs are laid on what is free, one
after the other, as a batch system would, and of what does not fit whole nodes are lacking: scavenged ones are given
back whole. What koalapy's own users wait for counts too, but not that of the store that asks, which knows it by itself;
and no Launcher of anybody's sweep counts, or two that scavenge would chase each other.
"""

from collections import Counter
from typing import Dict, Iterable, List, NamedTuple

from koalapy_adapters.batch.protocol import ClusterSettings
from koalapy_adapters.batch.text import is_launcher, is_tag
from koalapy_adapters.batch.text import rounded_up as up


class Wish(NamedTuple):
    """A job that waits: processors in all, on so many nodes at least; `alone`: on nodes that it shares with nobody."""

    processors: int
    nodes: int = 1
    alone: bool = False
    picky: bool = False  # it asks for certain nodes: nobody knows whether those that are free will do
    tasks: int = 1  # of an array: so many of these, each on its own


def counts(cluster: ClusterSettings, user: str, name: str) -> bool:
    """Whether a job of this user and name that waits must not be scavenged over, as far as a cluster can tell."""
    if is_launcher(name):
        return False
    own = user == cluster.user and is_tag(name)
    return not own or (bool(cluster.instance) and not name.startswith("k" + cluster.instance))


def wanted(wishes: Iterable[Wish], free: Iterable[int], sizes: Iterable[int], idle: int) -> int:
    """Processors that must be idle for all of these to start: no more than are, where they can start on those; else
    `idle`, and in whole nodes what they lack.

    `free`: the processors on each node that local jobs may have at once; `sizes`: those of every node, in use or not;
    `idle`: as Capacity has it, of which own limits may have taken something.
    """
    all_sizes = list(sizes)
    room = _Room(list(free), max(all_sizes, default=0), len(all_sizes))
    for wish, times in _alike(wishes).items():
        room.take(wish, times)
    return idle + room.lacking if room.lacking else min(room.taken, idle)


def whole_nodes(free: Iterable[int], idle: int) -> List[List[int]]:
    """[processors, how many] of nodes on which nothing runs, as far as what is idle in all allows."""
    found: List[int] = []
    for processors in sorted(free, reverse=True):
        if 0 < processors <= idle - sum(found):
            found.append(processors)
    return [list(count) for count in sorted(Counter(found).items(), reverse=True)]


def _alike(wishes: Iterable[Wish]) -> Dict[Wish, int]:
    """How many there are of each kind, in the order in which a kind came first: there may be a million of one."""
    found: Dict[Wish, int] = {}
    for wish in wishes:
        kind = wish._replace(tasks=1)
        found[kind] = found.get(kind, 0) + wish.tasks
    return found


class _Room:
    """Nodes while jobs are laid on them: `free` ones, and of those in use, `most` in all, so many that must be given
    back, of `size` each.
    """

    def __init__(self, free: List[int], size: int, most: int) -> None:
        self.taken = 0
        self._free, self._size, self._most = sorted(free), size, most
        self._back: List[int] = []  # what is left of each node that has to be given back

    @property
    def lacking(self) -> int:
        return self._size * len(self._back)

    def take(self, wish: Wish, times: int) -> None:
        """Lay so many such jobs, each on nodes of its own, the fullest that will do first."""
        nodes = min(max(wish.nodes, up(wish.processors, max(self._size, 1)), 1), self._most)
        each = self._size if wish.alone else min(up(wish.processors, max(nodes, 1)), self._size)
        while times > 0 and nodes and each:
            if nodes == 1 and not wish.picky:
                self._take_many(each, times)
                return
            self._take_one(each, nodes, wish.picky)
            times = times - 1 if len(self._back) < self._most else 0

    def _take_one(self, each: int, nodes: int, picky: bool) -> None:
        left = nodes
        if not picky:
            left -= _lay(self._free, each, nodes)
            self.taken += each * (nodes - left)
            left -= _lay(self._back, each, left)
        self._give_back([self._size - each] * left)

    def _take_many(self, each: int, times: int) -> None:
        """Of one node each: as many on a node as it has room for."""
        fitted = _fill(self._free, each, times)
        self.taken += each * fitted
        left = times - fitted
        left -= _fill(self._back, each, left)
        full, rest = divmod(left, self._size // each)
        self._give_back([self._size % each] * min(full, self._most) + ([self._size - each * rest] if rest else []))

    def _give_back(self, more: List[int]) -> None:
        self._back += more[: self._most - len(self._back)]
        self._back.sort()


def _lay(nodes: List[int], each: int, wanted_nodes: int) -> int:
    """Take `each` of so many of these nodes, as far as they have it; on how many of them."""
    fitting = [place for place, free in enumerate(nodes) if free >= each][:wanted_nodes]
    for place in fitting:
        nodes[place] -= each
    nodes.sort()
    return len(fitting)


def _fill(nodes: List[int], each: int, times: int) -> int:
    """Take `each` so many times, of any of these nodes and of one again and again; how often there was enough."""
    left = times
    for place, free in enumerate(nodes):
        fits = min(left, free // each)
        nodes[place] -= fits * each
        left -= fits
    nodes.sort()
    return times - left
