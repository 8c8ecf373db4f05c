"""How much of ours waits in a cluster's batch queue, and how much more may: counted from what koalad was told."""

from collections.abc import Collection, Iterator

from koalapy.chaos.promises.decided import Decided
from koalapy.chaos.promises.knowledge import KnownCluster
from koalapy.model.identity import JobId, Tag, tag_of
from koalapy.model.job import Component, Job


def waiting(seen: KnownCluster, decided: Decided, without: Collection[JobId] = ()) -> int:
    """Processors of jobs that the batch system has shown as waiting, and of those that went into its queue unseen."""
    return sum(
        decided.processors.taken(seen.settings.name, component.request)
        for job, component in _there(seen, decided)
        if job.id not in without and (component.allocated_at is None or _tag(job, component, decided) in _pending(seen))
    )


def limit(seen: KnownCluster, decided: Decided) -> int:
    """Processors that may wait there: what the grid file allows, or as many as the cluster has."""
    total = decided.processors.total(seen.settings.name)
    return total if seen.settings.backlog is None else seen.settings.backlog


def left(seen: KnownCluster, decided: Decided) -> int:
    """Processors of one job that surely may go into the queue: of those in it none has started that is not shown."""
    assert seen.state is not None
    name = seen.settings.name
    taken = sum(decided.processors.taken(name, component.request) for _, component in _there(seen, decided))
    return min(limit(seen, decided) - taken, seen.state.total)


def _there(seen: KnownCluster, decided: Decided) -> Iterator[tuple[Job, Component]]:
    """Users' components that the batch system shows as waiting, and those of patient jobs that it does not show."""
    assert seen.state is not None
    pending, allocated = _pending(seen), frozenset(seen.state.allocated)
    for job, component in decided.engine.records.live(seen.settings.name):
        tag = _tag(job, component, decided)
        if job.pilot is None and (tag in pending or (job.patient and tag not in allocated)):
            yield job, component


def _pending(seen: KnownCluster) -> frozenset[Tag]:
    assert seen.state is not None
    return frozenset(seen.state.pending)


def _tag(job: Job, component: Component, decided: Decided) -> Tag:
    return tag_of(decided.engine.records.instance, job.attempt_of(component))
