"""The least that tells whether others have begun or ceased to wait for Grid Engine's slots."""

from typing import List

from koalapy_adapters.batch import sge_jobs, waiting_demand
from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.protocol import Argv, ClusterSettings
from koalapy_adapters.batch.sge_errors import UNREACHABLE
from koalapy_adapters.errors import Result


def queue_fingerprint_argv(cluster: ClusterSettings) -> Argv:
    """Most of what any command here costs is its start: text would save little over XML. Of -g see sge_jobs.ALL."""
    return ["qstat", "-s", "p", "-g", "d", "-u", "*", "-xml"]


def parse_queue_fingerprint(cluster: ClusterSettings, result: Result) -> List[str]:
    """Not the priorities, which may move all the time, but whether the scheduler has given one: see _waiting."""
    check(result, UNREACHABLE)
    return sorted(
        "%s %s %d %d %s" % (job.batch_id, job.state, job.slots, job.tasks, job.priority > 0)
        for job in sge_jobs.jobs(sge_jobs.listing(result))
        if waiting_demand.counts(cluster, job.user, job.name)
    )
