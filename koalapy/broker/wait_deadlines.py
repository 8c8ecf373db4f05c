"""The instants from which a waiting job may use clusters or batch queues that it may not use before."""

from collections.abc import Collection, Iterable, Sequence

from koalapy.information.kis import ClusterSummary
from koalapy.model.errors import Reason
from koalapy.model.isolated import needs_terminal
from koalapy.model.job import Job
from koalapy.model.request import Request, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.units import Duration, Instant
from koalapy.model.work import Work

_NONE: frozenset[str] = frozenset()


def may_queue_from(job: Job, settings: Settings) -> Instant | None:
    """Return the instant from which the job may enter a batch queue; None if it waits for idle processors only.

    A pilot may do so at once: it exists so that other jobs need no batch queue.
    """
    if job.request.when_busy is not WhenBusy.QUEUE or job.waiting_since is None:
        return None
    if len(job.request.components) > 1 and (left := left_to_hold(job, settings)) is not None and left <= 0:
        return None
    return job.waiting_since if job.request.pilot is not None else Instant(job.waiting_since + settings.queue_after)


def left_to_hold(job: Job, settings: Settings) -> int | None:
    """Return the processor-microseconds that the job's components may still wait at barriers; None without a bound.

    Those that wait there now have not been subtracted. If nothing is left, the job enters no batch queues any more.
    """
    limit = settings.held_limit if job.request.held_limit is None else job.request.held_limit
    return None if limit is None else limit - job.held_processor_us


def excluded_clusters(now: Instant, job: Job) -> frozenset[str]:
    """Return the clusters that are excluded for this job now."""
    return frozenset([cluster for cluster, until in job.excluded if now < until]) if job.excluded else _NONE


def closed_clusters(now: Instant, job: Job, summaries: Collection[ClusterSummary]) -> frozenset[str]:
    """Return the clusters that are excluded for this job now.

    For an interactive one these are also all that isolate programs. Before a job's `begin` they are also those whose
    queues take no walltime that lasts from now on.
    """
    excluded = excluded_clusters(now, job) if job.excluded else _NONE
    if job.request.claim_before is not None and (early := time_to_begin(now, job)):
        excluded |= frozenset([each.name for each in summaries if _is_too_early(job, each, early)])
    return excluded | isolating(summaries) if needs_terminal(job.request) else excluded


def _is_too_early(job: Job, cluster: ClusterSummary, early: Duration) -> bool:
    if cluster.walltime_limit is None:
        return False
    there = [each.queue_walltime for each in job.request.components if each.cluster in (None, cluster.name)]
    return any(each is not None and each + early > cluster.walltime_limit for each in there)


def isolating(summaries: Iterable[ClusterSummary]) -> frozenset[str]:
    """Return the clusters that isolate programs."""
    return frozenset([each.name for each in summaries if each.settings.isolation is not None])


def wait_deadlines(job: Job, settings: Settings) -> Sequence[Instant]:
    """Return the instants, past ones included, at which the job's exclusions end, or it may enter batch queues."""
    since = may_queue_from(job, settings)
    if since is None and not job.excluded:
        return ()
    return [until for _, until in job.excluded] + ([since] if since is not None else [])


def expires_at(job: Job) -> Instant | None:
    """Return when a job that has never been released fails; None if its user sets no bound on its wait."""
    if job.request.expires is None or job.released_before or not job.state.waits_for_release:
        return None
    return job.request.expires.of(job.submitted_at)


def begins_at(work: Work) -> Instant | None:
    """Return the instant before which the work does not begin; None without such an instant."""
    return None if work.request.begin is None else work.request.begin.of(work.submitted_at)


def enters_queue_at(work: Work) -> Instant | None:
    """Return the instant until which the work is blocked; None without such an instant."""
    begins = begins_at(work)
    return None if begins is None else Instant(begins - (work.request.claim_before or 0))


def time_to_begin(now: Instant, job: Job) -> Duration:
    """Return how long components that are claimed now are held until the job's `begin`; 0 without one, and after it."""
    begins = begins_at(job)
    return Duration(0 if begins is None else max(0, begins - now))


def why_untimely(request: Request, now: Instant) -> Reason | None:
    """Return why a job that is submitted now could never begin, or is to begin in the past; None for any other.

    Of a flow, each job is judged.
    """
    begin, expires = (None if each is None else each.of(now) for each in (request.begin, request.expires))
    if begin is not None and begin < now:
        return Reason(
            "begin_past", "request", f"Its `begin`, {request.begin}, has passed.", "Write a later one, such as +2h."
        )
    if expires is not None and expires <= now:
        advice = "Leave it out, or write a later one, such as 3d."
        return Reason("expires_past", "request", f"Its `expires`, {request.expires}, has passed.", advice)
    if begin is not None and expires is not None and begin >= expires:
        message = f"Its `begin`, {request.begin}, is not before its `expires`, {request.expires}."
        return Reason("begin_after_expires", "request", message, "Let it begin sooner, or expire later.")
    return next((each for job in request.jobs if (each := why_untimely(job.request, now)) is not None), None)
