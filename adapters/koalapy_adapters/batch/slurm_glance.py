"""The least that tells whether others have begun or ceased to wait for Slurm's processors."""

from typing import List

from koalapy_adapters.batch import slurm_jobs, wanting
from koalapy_adapters.batch.protocol import Argv, Site
from koalapy_adapters.batch.slurm_refusals import UNREACHABLE
from koalapy_adapters.batch.slurm_words import WAITS_FOR_RESOURCES
from koalapy_adapters.batch.verdicts import check
from koalapy_adapters.errors import Result


def glance_argv(site: Site) -> Argv:
    """In whatever partition: which of them share nodes with ours only sinfo says."""
    return ["squeue", "--local", "-h", "-a", "-t", "PENDING", "-O", slurm_jobs.SHAPES_FORMAT]


def parse_glance(site: Site, result: Result) -> List[str]:
    """Not which of the reasons for which processors are wanted now: Slurm goes from one to the next by itself."""
    check(result, UNREACHABLE)
    return sorted(
        "%s %s %d" % (job.batch_id, job.array, job.processors)
        for job in slurm_jobs.jobs(result, shaped=True)
        if job.reason in WAITS_FOR_RESOURCES and wanting.counts(site, job.user, job.name)
    )
