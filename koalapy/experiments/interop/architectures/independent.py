"""Independent clusters: `condor`, with cycles of matchmaking, and `sep-c`, which starts jobs at once."""

from collections import deque

from koalapy.experiments.interop.architectures.simulation import Simulation
from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.tally import Kind

Queues = dict[str, deque[GridJob]]


def condor(simulation: Simulation) -> None:
    """Run with matchmaking cycles that try jobs in order of arrival; no job passes another (assumption 3)."""
    queues = _queues(simulation)
    simulation.arrived = lambda job: queues[job.home].append(job)

    def match(cluster: str) -> None:
        simulation.tally.messages[Kind.NEGOTIATE] += 2 * len(queues[cluster])
        _start_first(simulation, queues[cluster], cluster)

    for cluster in simulation.system.clusters:
        simulation.each(simulation.options.matchmaking_interval, lambda cluster=cluster: match(cluster))  # type: ignore[misc]
    simulation.run()


def sep_c(simulation: Simulation) -> None:
    """Run with jobs pushed to their own cluster, which starts them first come, first served, as soon as they fit."""
    queues = _queues(simulation)

    def arrived(job: GridJob) -> None:
        simulation.tally.messages[Kind.NEGOTIATE] += 1
        queues[job.home].append(job)
        _start_first(simulation, queues[job.home], job.home)

    simulation.arrived = arrived
    simulation.ended = lambda job, cluster: _start_first(simulation, queues[cluster], cluster)
    simulation.run()


def _queues(simulation: Simulation) -> Queues:
    return {cluster: deque() for cluster in simulation.system.clusters}


def _start_first(simulation: Simulation, queue: deque[GridJob], cluster: str) -> None:
    while queue and queue[0].processors <= simulation.free[cluster]:
        job = queue.popleft()
        simulation.free[cluster] -= job.processors
        simulation.start(job, cluster)
