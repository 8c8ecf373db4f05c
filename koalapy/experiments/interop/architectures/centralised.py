"""One queue for all clusters: `cern`, where sites pull jobs, and `central`, which pushes them by a monitor's report."""

from collections import deque

from koalapy.experiments.interop.architectures.simulation import Simulation
from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.tally import Kind


def cern(simulation: Simulation) -> None:
    """Run with sites that pull the oldest job if they have enough free processors.

    After an end, this is the site of the ended job; after an arrival, the site with most free processors.
    """
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
    """Run with a queue that pushes the oldest job to the site with most free processors by the monitor's last report.

    Released processors are known only from the next report on.
    """
    queue: deque[GridJob] = deque()
    assumed = dict(simulation.free)

    def push() -> None:
        while queue:
            cluster = max(assumed, key=assumed.__getitem__)
            if queue[0].processors > assumed[cluster]:
                return
            job = queue.popleft()
            assumed[cluster] -= job.processors
            simulation.free[cluster] -= job.processors
            simulation.tally.messages[Kind.NEGOTIATE] += 1
            simulation.start(job, cluster)

    def look() -> None:
        simulation.tally.messages[Kind.NOTIFY] += len(assumed)
        assumed.update(simulation.free)
        push()

    def arrived(job: GridJob) -> None:
        queue.append(job)
        push()

    simulation.arrived = arrived
    simulation.each(simulation.options.monitoring_interval, look)
    simulation.run()
