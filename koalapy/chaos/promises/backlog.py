"""How much of ours waits in a cluster's batch queue, and how much more may: counted from what koalad was told."""

from collections.abc import Collection, Iterator

from koalapy.chaos.promises.decided import Decided
from koalapy.chaos.promises.heard import Told
from koalapy.model.identity import JobId, Tag, tag_of
from koalapy.model.job import Component, Job


def waiting(told: Told, decided: Decided, without: Collection[JobId] = ()) -> int:
    """Processors of jobs that the batch system has shown as waiting, and of those that went into its queue unseen."""
    return sum(
        decided.processors.taken(told.settings.name, component.request)
        for job, component in _there(told, decided)
        if job.id not in without and (component.allocated_at is None or _tag(job, component, decided) in _pending(told))
    )


def limit(told: Told, decided: Decided) -> int:
    """Processors that may wait there: what the grid file allows, or as many as the cluster has."""
    total = decided.processors.total(told.settings.name)
    return total if told.settings.backlog is None else told.settings.backlog


def left(told: Told, decided: Decided) -> int:
    """Processors of one job that surely may go into the queue: of those in it none has started that is not shown."""
    assert told.state is not None
    name = told.settings.name
    taken = sum(decided.processors.taken(name, component.request) for _, component in _there(told, decided))
    return min(limit(told, decided) - taken, told.state.total)


def _there(told: Told, decided: Decided) -> Iterator[tuple[Job, Component]]:
    """Users' components that the batch system shows as waiting, and those of patient jobs that it does not show."""
    assert told.state is not None
    pending, allocated = _pending(told), frozenset(told.state.allocated)
    for job, component in decided.engine.records.live(told.settings.name):
        tag = _tag(job, component, decided)
        if job.pilot is None and (tag in pending or (job.patient and tag not in allocated)):
            yield job, component


def _pending(told: Told) -> frozenset[Tag]:
    assert told.state is not None
    return frozenset(told.state.pending)


def _tag(job: Job, component: Component, decided: Decided) -> Tag:
    return tag_of(decided.engine.records.instance, job.attempt_of(component))
