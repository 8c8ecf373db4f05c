"""What a waiting job waits for besides processors: its patience, and clusters that are left out for it."""

from collections.abc import Sequence

from koalapy.model.job import Job
from koalapy.model.request import WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.units import Instant


def queues_since(job: Job, settings: Settings) -> Instant | None:
    """From when on the job may go into a batch queue; None: it waits for idle processors."""
    if job.request.when_busy is not WhenBusy.QUEUE or job.waiting_since is None:
        return None
    return Instant(job.waiting_since + settings.queue_after)


def excluded(now: Instant, job: Job) -> frozenset[str]:
    """Clusters left out for this job."""
    return frozenset() if not job.excluded else frozenset(cluster for cluster, until in job.excluded if now < until)


def waits_for(job: Job, settings: Settings) -> Sequence[Instant]:
    """The moments from which on the job may go where it may not go before."""
    since = queues_since(job, settings)
    if since is None and not job.excluded:
        return ()
    return [until for _, until in job.excluded] + ([since] if since is not None else [])
