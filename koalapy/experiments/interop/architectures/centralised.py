"""One queue for all: `cern`, from which sites pull, and `central`, which pushes by what a monitor last told it."""

from collections import deque

from koalapy.experiments.interop.architectures.simulation import Stage
from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.tally import Kind


def cern(stage: Stage) -> None:
    """Sites pull the oldest job whenever they have room for it: the one that has got room, else the emptiest."""
    queue: deque[GridJob] = deque()

    def arrived(job: GridJob) -> None:
        queue.append(job)
        pull()

    def pull() -> None:
        while queue:
            stage.tally.messages[Kind.NEGOTIATE] += 1
            cluster = max(stage.system.clusters, key=lambda name: stage.free[name])
            if not start(cluster):
                return

    def start(cluster: str) -> bool:
        if queue[0].processors > stage.free[cluster]:
            return False
        job = queue.popleft()
        stage.free[cluster] -= job.processors
        stage.start(job, cluster)
        return True

    def ended(_: GridJob, cluster: str) -> None:
        while queue:
            stage.tally.messages[Kind.NEGOTIATE] += 1
            if not start(cluster):
                return

    stage.arrived, stage.ended = arrived, ended
    stage.run()


def central(stage: Stage) -> None:
    """The oldest job goes to the emptiest site that is believed to have room; releases are known with the next look."""
    queue: deque[GridJob] = deque()
    believed = dict(stage.free)

    def push() -> None:
        while queue:
            cluster = max(believed, key=believed.__getitem__)
            if queue[0].processors > believed[cluster]:
                return
            job = queue.popleft()
            believed[cluster] -= job.processors
            stage.free[cluster] -= job.processors
            stage.tally.messages[Kind.NEGOTIATE] += 1
            stage.start(job, cluster)

    def look() -> None:
        stage.tally.messages[Kind.NOTIFY] += len(believed)
        believed.update(stage.free)
        push()

    def arrived(job: GridJob) -> None:
        queue.append(job)
        push()

    stage.arrived = arrived
    stage.each(stage.options.monitoring_interval, look)
    stage.run()
