"""Clusters that know nothing of each other: `condor`, with cycles of matchmaking, and `sep-c`, which starts at once."""

from collections import deque

from koalapy.experiments.interop.architectures.simulation import Stage
from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.tally import Kind

Queues = dict[str, deque[GridJob]]


def condor(stage: Stage) -> None:
    """At each matchmaking cycle jobs are considered in the order of arrival; nobody is passed (assumption 3)."""
    queues = _queues(stage)
    stage.arrived = lambda job: queues[job.home].append(job)

    def match(cluster: str) -> None:
        stage.tally.messages[Kind.NEGOTIATE] += 2 * len(queues[cluster])
        _start_first(stage, queues[cluster], cluster)

    for cluster in stage.system.clusters:
        stage.each(stage.options.matchmaking_interval, lambda cluster=cluster: match(cluster))  # type: ignore[misc]
    stage.run()


def sep_c(stage: Stage) -> None:
    """Jobs are pushed to their own cluster, which starts them first come, first served, as soon as they fit."""
    queues = _queues(stage)

    def arrived(job: GridJob) -> None:
        stage.tally.messages[Kind.NEGOTIATE] += 1
        queues[job.home].append(job)
        _start_first(stage, queues[job.home], job.home)

    stage.arrived = arrived
    stage.ended = lambda job, cluster: _start_first(stage, queues[cluster], cluster)
    stage.run()


def _queues(stage: Stage) -> Queues:
    return {cluster: deque() for cluster in stage.system.clusters}


def _start_first(stage: Stage, queue: deque[GridJob], cluster: str) -> None:
    while queue and queue[0].processors <= stage.free[cluster]:
        job = queue.popleft()
        stage.free[cluster] -= job.processors
        stage.start(job, cluster)
