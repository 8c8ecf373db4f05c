"""The demand of local jobs that wait for processors: how many processors must be idle for them to start.

A job that waits for two nodes cannot use as many processors scattered over others. Therefore jobs are laid on the free
nodes one after the other, as a batch system would place them. Jobs that do not fit lack whole nodes, because sweeps are
shrunk by whole nodes.

Jobs of other stores of koalapy count too, but not those of the store that asks, which knows them itself. No Launcher
counts, whoever its user is: otherwise two users' sweeps would reclaim nodes from each other without end.
"""

from collections import Counter
from typing import Dict, Iterable, List, NamedTuple

from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.batch.text import is_launcher, is_tag
from koalapy_adapters.batch.text import rounded_up as up


class WaitingJob(NamedTuple):
    """A job that waits for `processors` in all, on at least `nodes`. `alone`: it shares its nodes with no other job."""

    processors: int
    nodes: int = 1
    alone: bool = False
    picky: bool = False  # it asks for certain nodes: nobody knows whether those that are free will do
    tasks: int = 1  # of an array: so many of these, each on its own


def counts(cluster: BatchSettings, user: str, name: str) -> bool:
    """Return whether a waiting job of this user and name is local demand, for which sweeps leave processors idle.

    Launchers are not, nor are jobs of the store that asks. Without `cluster.instance`, no tagged job of this user is.
    """
    if is_launcher(name):
        return False
    own = user == cluster.user and is_tag(name)
    return not own or (bool(cluster.instance) and not name.startswith("k" + cluster.instance))


def wanted(jobs: Iterable[WaitingJob], free: Iterable[int], sizes: Iterable[int], idle: int) -> int:
    """The number of processors that must be idle for all of these jobs to start.

    If the jobs can start on the free nodes, it is at most `idle`. Otherwise it is `idle` and, in whole nodes, what they
    lack.

    `free` has the processors on each node that local jobs may have at once. `sizes` has those of every node, in use or
    not. `idle` is that of Capacity, which the user's own limits may have reduced.
    """
    all_sizes = list(sizes)
    room = _Room(list(free), max(all_sizes, default=0), len(all_sizes))
    for job, times in _count_alike(jobs).items():
        room.take(job, times)
    return idle + room.lacking if room.lacking else min(room.taken, idle)


def whole_nodes(free: Iterable[int], idle: int) -> List[List[int]]:
    """Pairs [processors, number of nodes], largest first, of nodes on which nothing runs, with at most `idle`
    processors in all.

    `free` has the processors of each node on which nothing runs.
    """
    found: List[int] = []
    for processors in sorted(free, reverse=True):
        if 0 < processors <= idle - sum(found):
            found.append(processors)
    return [list(count) for count in sorted(Counter(found).items(), reverse=True)]


def _count_alike(jobs: Iterable[WaitingJob]) -> Dict[WaitingJob, int]:
    """The number of jobs of each kind, in the order in which kinds first occur. One kind may have a million jobs."""
    found: Dict[WaitingJob, int] = {}
    for job in jobs:
        kind = job._replace(tasks=1)
        found[kind] = found.get(kind, 0) + job.tasks
    return found


class _Room:
    """Nodes on which waiting jobs are laid.

    `free` has the free processors of each node. Up to `most` nodes of `size` processors each are added as lacking.
    """

    def __init__(self, free: List[int], size: int, most: int) -> None:
        self.taken = 0
        self._free, self._size, self._most = sorted(free), size, most
        self._back: List[int] = []  # what is left of each node that has to be given back

    @property
    def lacking(self) -> int:
        return self._size * len(self._back)

    def take(self, job: WaitingJob, times: int) -> None:
        """Lay `times` jobs of this kind, the parts of one job on different nodes. The fullest nodes that suffice come
        first.

        A picky job always adds lacking nodes.
        """
        nodes = min(max(job.nodes, up(job.processors, max(self._size, 1)), 1), self._most)
        each = self._size if job.alone else min(up(job.processors, max(nodes, 1)), self._size)
        while times > 0 and nodes and each:
            if nodes == 1 and not job.picky:
                self._take_many(each, times)
                return
            self._take_one(each, nodes, job.picky)
            times = times - 1 if len(self._back) < self._most else 0

    def _take_one(self, each: int, nodes: int, picky: bool) -> None:
        left = nodes
        if not picky:
            left -= _lay(self._free, each, nodes)
            self.taken += each * (nodes - left)
            left -= _lay(self._back, each, left)
        self._give_back([self._size - each] * left)

    def _take_many(self, each: int, times: int) -> None:
        """Lay `times` jobs of one node each, as many on a node as it has room for."""
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
    """Take `each` processors from up to `wanted_nodes` of the nodes that have as many. Returns the number of these
    nodes.
    """
    fitting = [place for place, free in enumerate(nodes) if free >= each][:wanted_nodes]
    for place in fitting:
        nodes[place] -= each
    nodes.sort()
    return len(fitting)


def _fill(nodes: List[int], each: int, times: int) -> int:
    """Take `each` processors up to `times` times, repeatedly from a node before the next. Returns how often there were
    enough.
    """
    left = times
    for place, free in enumerate(nodes):
        fits = min(left, free // each)
        nodes[place] -= fits * each
        left -= fits
    nodes.sort()
    return times - left
