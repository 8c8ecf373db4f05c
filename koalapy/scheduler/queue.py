"""The wait queue: by priority, lower first, then arrival; a job that was sent to the tail has arrived anew."""

from collections.abc import Iterable

from koalapy.model.job import Job


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """The waiting jobs, head first."""
    return sorted((job for job in jobs if job.state.queued), key=lambda job: (job.request.priority, job.place))
