"""One queue for all: `cern`, from which sites pull, and `central`, which pushes by a monitor's last report."""

from collections import deque

from koalapy.experiments.interop.architectures.simulation import Simulation
from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.tally import Kind


def cern(simulation: Simulation) -> None:
    """Sites pull the oldest job whenever they have room for it: the one that has got room, else the emptiest."""
    queue: deque[GridJob] = deque()

    def arrived(job: GridJob) -> None:
        queue.append(job)
        pull()

    def pull() -> None:
        while queue:
            simulation.tally.messages[Kind.NEGOTIATE] += 1
            cluster = max(simulation.system.clusters, key=lambda name: simulation.free[name])
            if not start(cluster):
                return

    def start(cluster: str) -> bool:
        if queue[0].processors > simulation.free[cluster]:
            return False
        job = queue.popleft()
        simulation.free[cluster] -= job.processors
        simulation.start(job, cluster)
        return True

    def ended(_: GridJob, cluster: str) -> None:
        while queue:
            simulation.tally.messages[Kind.NEGOTIATE] += 1
            if not start(cluster):
                return

    simulation.arrived, simulation.ended = arrived, ended
    simulation.run()


def central(simulation: Simulation) -> None:
    """The oldest job goes to the emptiest site that is believed to have room; releases are known with the next look."""
    queue: deque[GridJob] = deque()
    believed = dict(simulation.free)

    def push() -> None:
        while queue:
            cluster = max(believed, key=believed.__getitem__)
            if queue[0].processors > believed[cluster]:
                return
            job = queue.popleft()
            believed[cluster] -= job.processors
            simulation.free[cluster] -= job.processors
            simulation.tally.messages[Kind.NEGOTIATE] += 1
            simulation.start(job, cluster)

    def look() -> None:
        simulation.tally.messages[Kind.NOTIFY] += len(believed)
        believed.update(simulation.free)
        push()

    def arrived(job: GridJob) -> None:
        queue.append(job)
        push()

    simulation.arrived = arrived
    simulation.each(simulation.options.monitoring_interval, look)
    simulation.run()
