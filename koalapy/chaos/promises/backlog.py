"""The backlog of koalapy in a cluster's batch queue and its limit, computed from the events that koalad received."""

from collections.abc import Collection, Iterator

from koalapy.chaos.promises.decided import Decided
from koalapy.chaos.promises.knowledge import KnownCluster
from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.identity import JobId, Tag, tag_of


def waiting(seen: KnownCluster, decided: Decided, without: Collection[JobId] = ()) -> int:
    """Processors of jobs that the batch system shows as waiting, and of queued ones that it does not show."""
    return sum(
        decided.processors.taken(seen.settings.name, attempt.request)
        for attempt in _there(seen, decided)
        if attempt.id.job not in without and (attempt.allocated_at is None or _tag(attempt, decided) in _pending(seen))
    )


def limit(seen: KnownCluster, decided: Decided) -> int:
    """Return the processors that may wait there: the grid file's `backlog`, or the cluster's size."""
    total = decided.processors.total(seen.settings.name)
    return total if seen.settings.backlog is None else seen.settings.backlog


def left(seen: KnownCluster, decided: Decided) -> int:
    """Return the processors that one more job may surely add to the queue, if no queued one has started unseen."""
    assert seen.state is not None
    name = seen.settings.name
    taken = sum(decided.processors.taken(name, attempt.request) for attempt in _there(seen, decided))
    return min(limit(seen, decided) - taken, seen.state.total)


def _there(seen: KnownCluster, decided: Decided) -> Iterator[Attempt]:
    """Users' attempts that the batch system shows as waiting, and those of patient jobs that it does not show."""
    assert seen.state is not None
    pending, allocated = _pending(seen), frozenset(seen.state.allocated)
    records = decided.engine.records
    for attempt in records.live(seen.settings.name):
        tag = _tag(attempt, decided)
        if attempt.owner.kind is OwnerKind.SWEEP:
            continue
        patient = attempt.pilot is not None or records.jobs[attempt.id.job].patient
        if tag in pending or (patient and tag not in allocated):
            yield attempt


def _pending(seen: KnownCluster) -> frozenset[Tag]:
    assert seen.state is not None
    return frozenset(seen.state.pending)


def _tag(attempt: Attempt, decided: Decided) -> Tag:
    return tag_of(decided.engine.records.instance, attempt.id)
