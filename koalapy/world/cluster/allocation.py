"""Which nodes a batch job gets, and how many processors of each: all of them, where allocation is `exclusive`."""

from collections.abc import Iterable

from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.nodes import SimNode

Part = tuple[SimNode, int]


def fit(job: SimBatchJob, nodes: Iterable[SimNode], exclusive: bool) -> list[Part]:
    """The first that do for it; none if it does not fit now."""
    found: list[Part] = []
    missing = job.processors
    for node in nodes:
        usable = node.reachable and node.name not in job.avoid
        room = node.free if usable and not (exclusive and node.free < node.processors) else 0
        take = min(missing, room, job.per_node or room)
        if take and not (job.per_node and take < min(job.per_node, missing)):
            found.append((node, take))
            missing -= take
    return [] if missing else found


def take(parts: Iterable[Part], exclusive: bool) -> None:
    for node, processors in parts:
        node.free -= node.processors if exclusive else processors


def give_back(parts: Iterable[Part], exclusive: bool) -> None:
    for node, processors in parts:
        node.free += node.processors if exclusive else processors
