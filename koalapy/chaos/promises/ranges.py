"""Promises about ranges: a job with one gets a size within it, and the most that was idle when it was placed."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.promises.knowledge import Decided, KnownCluster
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change
from koalapy.model.identity import AttemptId, JobId, Tag, attempt_of, tag_of
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest
from koalapy.world.cluster.cluster import SimCluster


class Ranges:
    """The checker of ranges. The choices of a group of clusters have their own (see Choices)."""

    def __init__(self, clusters: Mapping[str, SimCluster]) -> None:
        self._clusters = clusters

    def committed(self, change: Change, decided: Decided) -> None:
        """Check the claims of a change."""
        jobs = {job.id: job for job in change.jobs}
        claimed = [jobs[line.job] for line in change.history if line.kind == "job_claimed"]
        preempting = {line.job for line in change.history if line.kind == "job_preempts"}
        for position, job in enumerate(claimed):
            if job.choices:
                continue
            for each in job.present:
                _check_size(each, _asked(job, each.id))
            if len(job.request.components) == 1 and not job.patient and job.id not in preempting:
                _check_most(job, {other.id for other in claimed[position + 1 :]}, decided)

    def started(self, tag: Tag, cluster: str, committed: Committed) -> None:
        """A program starts: check the size of its batch job."""
        _, attempt = attempt_of(tag)
        job = committed.jobs.get(attempt.job)
        if job is None or job.choices or attempt.component >= len(job.request.components):
            return
        component = _asked(job, attempt)
        if component.most is None:
            return
        sizes = range(component.least or component.most, component.most + 1, component.unit)
        for batch_job in self._clusters[cluster].batch.listed():
            if batch_job.name == tag and batch_job.live:
                found = batch_job.processors
                promise(found in sizes, Promise.RANGES, attempt, "runs with", found, "processors, not with", sizes)


def _asked(job: Job, attempt: AttemptId) -> ComponentRequest:
    return (job.written or job.request).components[attempt.component]


def _check_size(attempt: Attempt, asked: ComponentRequest) -> None:
    found, sizes = attempt.request.processors, asked.sizes
    promise(found in sizes, Promise.RANGES, attempt.id, "is claimed with", found, "processors, not with", sizes)
    lowered = asked.most is None or asked.processors <= asked.most
    promise(lowered, Promise.RANGES, attempt.id, "asks for", asked.processors, "processors, more than its most")


def _check_most(job: Job, later: Collection[JobId], decided: Decided) -> None:
    """Check that the next larger size fits nowhere. `later`: jobs claimed after this one."""
    (attempt,) = job.present
    larger = replace(attempt.request, processors=attempt.request.processors + attempt.request.unit)
    if larger.processors > _asked(job, attempt.id).processors:
        return
    for name, seen in _open_to(job, attempt, decided):
        room, needed = _room(seen, attempt, later, decided), decided.processors.taken(name, larger)
        words = ("job", job.id, "gets", attempt.request.processors, "processors, though", larger.processors, "fit on")
        promise(needed > room, Promise.RANGES, *words, name)


def _open_to(job: Job, attempt: Attempt, decided: Decided) -> Iterator[tuple[str, KnownCluster]]:
    """Yield the clusters that the job may have had: its own, and each that is not for some jobs only."""
    named = _asked(job, attempt.id).cluster
    excluded = {name for name, until in job.excluded if decided.at < until}
    for name, seen in decided.usable.items():
        free = named is None and not seen.settings.only_named and "~" not in name and name not in excluded
        if name == attempt.cluster or free:
            yield name, seen


def _room(seen: KnownCluster, attempt: Attempt, later: Collection[JobId], decided: Decided) -> int:
    """Return the processors that were idle for the attempt at least: Launchers keep theirs in this count."""
    assert seen.state is not None
    records, shown = decided.engine.records, frozenset(seen.state.allocated)
    committed = sum(
        decided.processors.taken(seen.settings.name, each.request)
        for each in records.live(seen.settings.name)
        if each.id != attempt.id and each.id.job not in later and tag_of(records.instance, each.id) not in shown
    )
    return seen.state.idle - committed
