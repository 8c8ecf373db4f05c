"""Queue fingerprint of Slurm, which changes when others' jobs begin or cease to wait for processors."""

from typing import List

from koalapy_adapters.batch import slurm_jobs, waiting_demand
from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.protocol import Argv, BatchSettings
from koalapy_adapters.batch.slurm_errors import UNREACHABLE
from koalapy_adapters.batch.slurm_states import WAITS_FOR_RESOURCES
from koalapy_adapters.errors import Result


def queue_fingerprint_argv(cluster: BatchSettings) -> Argv:
    """The command that lists pending jobs of all partitions: only sinfo shows which of them share nodes with ours."""
    return ["squeue", "--local", "-h", "-a", "-t", "PENDING", "-O", slurm_jobs.SHAPES_FORMAT]


def parse_queue_fingerprint(cluster: BatchSettings, result: Result) -> List[str]:
    """A line for each of others' jobs that want processors now, sorted: id, array and processors.

    It has no reason, because Slurm changes by itself from one such reason to the next. Raises BatchError if the command
    failed or its answer cannot be read.
    """
    check(result, UNREACHABLE)
    return sorted(
        "%s %s %d" % (job.batch_id, job.array, job.processors)
        for job in slurm_jobs.jobs(result, shaped=True)
        if job.reason in WAITS_FOR_RESOURCES and waiting_demand.counts(cluster, job.user, job.name)
    )
