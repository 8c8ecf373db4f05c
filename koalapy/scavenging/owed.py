"""What others' jobs took of a runner's nodes is owed to it, and goes back there before anybody else may have it."""

from collections import Counter

from koalapy.core.core import Core
from koalapy.core.launchers import runner_of
from koalapy.model.identity import JobId
from koalapy.scavenging import parameters


def owe(core: Core, sweep: JobId, cluster: str, nodes: int) -> None:
    """So many that were taken from it there."""
    job = core.records.jobs[sweep]
    owed = Counter(dict(runner_of(job).owed))
    owed[cluster] += nodes
    parameters.put_runner(core, job, owed=(*owed.items(),))


def repay(core: Core, sweep: JobId, cluster: str, nodes: int) -> None:
    """So many that it has again there, as far as they were owed."""
    job = core.records.jobs[sweep]
    owed = dict(runner_of(job).owed)
    if cluster in owed:
        owed[cluster] -= nodes
        left = tuple((name, count) for name, count in owed.items() if count > 0)
        parameters.put_runner(core, job, owed=left)


def cancel(core: Core, sweep: JobId) -> None:
    """Nothing is owed any more: all is shared out anew."""
    job = core.records.jobs[sweep]
    if runner_of(job).owed:
        parameters.put_runner(core, job, owed=())
