"""What others' jobs took of a runner's nodes is owed to it, and goes back there before anybody else may have it."""

from collections import Counter

from koalapy.model.identity import JobId
from koalapy.model.records import Records
from koalapy.scavenging import parameters
from koalapy.scavenging.launchers import runner_of


def owe(records: Records, sweep: JobId, cluster: str, nodes: int) -> None:
    """So many that were taken from it there."""
    job = records.jobs[sweep]
    owed = Counter(dict(runner_of(job).owed))
    owed[cluster] += nodes
    parameters.put_runner(records, job, owed=(*owed.items(),))


def repay(records: Records, sweep: JobId, cluster: str, nodes: int) -> None:
    """So many that it has again there, as far as they were owed."""
    job = records.jobs[sweep]
    owed = dict(runner_of(job).owed)
    if cluster in owed:
        owed[cluster] -= nodes
        left = tuple((name, count) for name, count in owed.items() if count > 0)
        parameters.put_runner(records, job, owed=left)


def cancel(records: Records, sweep: JobId) -> None:
    """Nothing is owed any more: all is shared out anew."""
    job = records.jobs[sweep]
    if runner_of(job).owed:
        parameters.put_runner(records, job, owed=())
