"""The least that tells whether others have begun or ceased to wait for Slurm's processors."""

import re
from typing import Iterable, Iterator, List, Match, NamedTuple, Optional, Union
from urllib.parse import unquote

from koalapy_adapters.batch import slurm_jobs, waiting_demand
from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.protocol import Argv, ClusterSettings
from koalapy_adapters.batch.slurm_codes import WAITS_FOR_RESOURCES
from koalapy_adapters.batch.slurm_errors import UNREACHABLE
from koalapy_adapters.batch.slurm_jobs import Job
from koalapy_adapters.errors import Result

_WAITING = re.compile(r"(\d+),([^,]+),(\d+),([^,]*),(\d+),([^,]*)\Z")


class Waiting(NamedTuple):
    """A job that waits, as slurm_submit.pl writes it."""

    batch_id: str
    array: str
    processors: int
    reason: str
    user: str
    name: str


def queue_fingerprint_argv(cluster: ClusterSettings) -> Argv:
    """In whatever partition: which of them share nodes with ours only sinfo says."""
    return ["squeue", "--local", "-h", "-a", "-t", "PENDING", "-O", slurm_jobs.SHAPES_FORMAT]


def parse_queue_fingerprint(cluster: ClusterSettings, result: Result) -> List[str]:
    """Not which of the reasons for which processors are wanted now: Slurm goes from one to the next by itself."""
    check(result, UNREACHABLE)
    return _seen(cluster, slurm_jobs.jobs(result, shaped=True))


def fingerprint_by_api(cluster: ClusterSettings, jobs: List[str], uid: int) -> Optional[List[str]]:
    """The same, from what slurm_submit.pl says to this user; None if that cannot be read."""
    matches = [_WAITING.match(job) for job in jobs]
    return None if None in matches else _seen(cluster, _waiting(cluster, filter(None, matches), uid))


def _seen(cluster: ClusterSettings, jobs: Iterable[Union[Job, Waiting]]) -> List[str]:
    return sorted(
        "%s %s %d" % (job.batch_id, job.array, job.processors)
        for job in jobs
        if job.reason in WAITS_FOR_RESOURCES and waiting_demand.counts(cluster, job.user, job.name)
    )


def _waiting(cluster: ClusterSettings, matches: Iterable[Match[str]], uid: int) -> Iterator[Waiting]:
    """Whose a job is, is only asked as far as it is ours or not."""
    for match in matches:
        number, array, processors, reason, user, name = map(unquote, match.groups())
        yield Waiting(number, array, int(processors), reason, cluster.user if user == str(uid) else user, name)
