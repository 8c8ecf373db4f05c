"""Queue fingerprint of Slurm, which changes when others' jobs begin or cease to wait for processors."""

import re
from typing import Iterable, Iterator, List, Match, NamedTuple, Optional, Union
from urllib.parse import unquote

from koalapy_adapters.batch import slurm_jobs, waiting_demand
from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.protocol import Argv, BatchSettings
from koalapy_adapters.batch.slurm_codes import WAITS_FOR_RESOURCES
from koalapy_adapters.batch.slurm_errors import UNREACHABLE
from koalapy_adapters.batch.slurm_jobs import Job
from koalapy_adapters.errors import Result

_WAITING = re.compile(r"(\d+),([^,]+),(\d+),([^,]*),(\d+),([^,]*)\Z")


class Waiting(NamedTuple):
    """A waiting job, as slurm_submit.pl prints it."""

    batch_id: str
    array: str
    processors: int
    reason: str
    user: str
    name: str


def queue_fingerprint_argv(cluster: BatchSettings) -> Argv:
    """The command that lists pending jobs of all partitions: only sinfo shows which of them share nodes with ours."""
    return ["squeue", "--local", "-h", "-a", "-t", "PENDING", "-O", slurm_jobs.SHAPES_FORMAT]


def parse_queue_fingerprint(cluster: BatchSettings, result: Result) -> List[str]:
    """A line for each of others' jobs that want processors now, sorted: id, array and processors.

    It has no reason, because Slurm changes by itself from one such reason to the next. Raises BatchError if the command
    failed or its answer cannot be read.
    """
    check(result, UNREACHABLE)
    return _seen(cluster, slurm_jobs.jobs(result, shaped=True))


def fingerprint_by_api(cluster: BatchSettings, jobs: List[str], uid: int) -> Optional[List[str]]:
    """The same lines from the jobs that slurm_submit.pl prints to this uid; None if one of them cannot be read."""
    matches = [_WAITING.match(job) for job in jobs]
    return None if None in matches else _seen(cluster, _waiting(cluster, filter(None, matches), uid))


def _seen(cluster: BatchSettings, jobs: Iterable[Union[Job, Waiting]]) -> List[str]:
    return sorted(
        "%s %s %d" % (job.batch_id, job.array, job.processors)
        for job in jobs
        if job.reason in WAITS_FOR_RESOURCES and waiting_demand.counts(cluster, job.user, job.name)
    )


def _waiting(cluster: BatchSettings, matches: Iterable[Match[str]], uid: int) -> Iterator[Waiting]:
    """The jobs, with a uid in place of each other user's name: it matters only whether a job is this user's."""
    for match in matches:
        number, array, processors, reason, user, name = map(unquote, match.groups())
        yield Waiting(number, array, int(processors), reason, cluster.user if user == str(uid) else user, name)
