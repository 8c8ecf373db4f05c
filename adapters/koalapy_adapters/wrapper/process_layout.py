"""How a component's processes are divided over the nodes of its allocation."""

from typing import List, Sequence

from koalapy_adapters.batch.protocol import Host
from koalapy_adapters.errors import ClusterError, UnreadableError
from koalapy_adapters.host.node_identity import find

PER_PROCESSOR, PER_NODE, ONCE, MPI = "per-processor", "per-node", "once", "mpi"


def divide(hosts: Sequence[Host], launch: str, processors: int, threads: int) -> List[int]:
    """The number of processes on each host, in order.

    Per processor, as for the ranks of an MPI program: exactly `processors / threads` in all, each host filled before
    the next. Where no host has room for another whole one (3 processors, 2 threads each), the rest goes to those with
    the most processors left over.
    Raises ClusterError if the allocation is smaller than what was asked for.
    """
    if launch == PER_NODE:
        return [1] * len(hosts)
    if launch == ONCE:
        return [1] + [0] * (len(hosts) - 1)
    if launch not in (PER_PROCESSOR, MPI):
        raise UnreadableError(
            "bad_launch", "The launch method %r is not known." % launch, "Use one of the same version."
        )
    given = sum(host.processors for host in hosts)
    if given < processors:
        raise ClusterError(
            "allocation_too_small",
            "The batch system gave %d processors where %d were asked for." % (given, processors),
            "Look at the queue's and the parallel environment's allocation rules.",
        )
    return _fill(hosts, max(1, processors // threads), threads)


def offsets(counts: Sequence[int]) -> List[int]:
    """The first rank within the component on each host."""
    return [sum(counts[:index]) for index in range(len(counts))]


def own_first(hosts: Sequence[Host], own: str) -> List[Host]:
    """The wrapper's own node first, which is where the batch system starts it; the others in their order."""
    index = find([host.name for host in hosts], [own])
    first = 0 if index is None else index
    return [hosts[first], *(host for position, host in enumerate(hosts) if position != first)]


def _fill(hosts: Sequence[Host], processes: int, threads: int) -> List[int]:
    counts: List[int] = []
    for host in hosts:
        counts.append(min(host.processors // threads, processes - sum(counts)))
    spare = [host.processors - count * threads for host, count in zip(hosts, counts)]
    while sum(counts) < processes:
        index = max(range(len(hosts)), key=lambda position: spare[position])
        counts[index] += 1
        spare[index] -= threads
    return counts
