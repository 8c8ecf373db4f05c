"""Queue fingerprint of Grid Engine, which changes when others' jobs begin or cease to wait for slots."""

from typing import List

from koalapy_adapters.batch import sge_jobs, waiting_demand
from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.protocol import Argv, BatchSettings
from koalapy_adapters.batch.sge_errors import UNREACHABLE
from koalapy_adapters.errors import Result


def queue_fingerprint_argv(cluster: BatchSettings) -> Argv:
    """The command that lists the waiting jobs. Most of its cost is its start, so text would save little over XML.

    -g d lists arrays task by task, which sge_jobs.ALL avoids.
    """
    return ["qstat", "-s", "p", "-g", "d", "-u", "*", "-xml"]


def parse_queue_fingerprint(cluster: BatchSettings, result: Result) -> List[str]:
    """A line for each of others' waiting jobs, sorted: id, state, slots, tasks, and whether it has a priority.

    The priority itself may change all the time; for its meaning, see `sge_capacity._waiting`. Raises BatchError if the
    command failed or its answer cannot be read.
    """
    check(result, UNREACHABLE)
    return sorted(
        "%s %s %d %d %s" % (job.batch_id, job.state, job.slots, job.tasks, job.priority > 0)
        for job in sge_jobs.jobs(sge_jobs.listing(result))
        if waiting_demand.counts(cluster, job.user, job.name)
    )
