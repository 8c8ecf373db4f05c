"""Promises about the limits of sweeps: hours, nodes, the idle share of each cluster, and how many sweeps run.

The backlog of koalapy in a batch queue, and its limit, are computed from the events that koalad received.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from koalapy.chaos.promises.knowledge import Decided, KnownCluster
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.change import Change
from koalapy.model.cluster import ClusterState, Scavenge
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, JobId, Tag, tag_of
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import Duration, Instant

_UTC = Duration(0)  # the simulated host's own clock


class Limits:
    """The checker of limits. `committed` is called after every commit, `passed` before every decision, on the last."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.scavenging.max_runners

    def committed(self, change: Change, before: Mapping[AttemptId, Attempt], decided: Decided) -> None:
        """Check that new Launchers obey their cluster's rules, and that no more than `max_runners` sweeps run.

        `before`: the pilots before the change.
        """
        new = [each for each in change.attempts if each.owner.kind is OwnerKind.SWEEP and each.id not in before]
        for name in dict.fromkeys(each.cluster for each in new):
            live = _live(decided, name)
            self._check_growth(name, [each for each in live if each.id in before], len(live), decided)
        if any(line.kind == HistoryKind.SWEEP_ADMITTED for line in change.history) and self._most is not None:
            sweeps = decided.engine.records.sweeps.values()
            active = [sweep.id for sweep in sweeps if sweep.state is JobState.RUNNING]
            promise(len(active) <= self._most, Promise.LIMITS, "sweeps are active:", *active)

    def passed(self, decided: Decided) -> None:
        """Check that all Launchers that a decision has left on a reachable cluster may stay there."""
        for name, seen in decided.knowledge.clusters.items():
            if not seen.connected:
                continue
            stay = [each for each in _live(decided, name) if not each.cancelling]
            if stay and seen.state is not None:
                rules = seen.settings.scavenge
                promise(_open(rules, decided.at), Promise.LIMITS, len(stay), "Launchers stay after hours on", name)
                _check_count(name, rules, len(stay))

    def _check_growth(self, name: str, held: Sequence[Attempt], after: int, decided: Decided) -> None:
        seen = decided.knowledge.clusters[name]
        rules = seen.settings.scavenge
        promise(not rules.off, Promise.LIMITS, name, "is closed to sweeps, but a Launcher is claimed there")
        promise(_open(rules, decided.at), Promise.LIMITS, "a Launcher is claimed after hours on", name)
        _check_count(name, rules, after)
        assert seen.state is not None
        waiting = seen.state.waiting_local
        promise(not waiting, Promise.LIMITS, "a Launcher is claimed on", name, "where", waiting, "others' jobs wait")
        there = _idle_nodes(held, seen.state, decided) + len(held)
        total = decided.processors.nodes(name)
        enough = there >= rules.idle_share * total
        promise(enough, Promise.LIMITS, "a Launcher is claimed on", name, "where", there, "of", total, "nodes are idle")


def _open(rules: Scavenge, at: Instant) -> bool:
    return rules.hours is None or rules.hours.include(at, _UTC)


def _check_count(name: str, rules: Scavenge, count: int) -> None:
    most = rules.max_nodes
    promise(most is None or count <= most, Promise.LIMITS, count, "Launchers are on", name, "allowed are", most)


def _live(decided: Decided, cluster: str) -> list[Attempt]:
    live = decided.engine.records.live(cluster)
    return [each for each in live if each.owner.kind is OwnerKind.SWEEP]


def _idle_nodes(held: Sequence[Attempt], state: ClusterState, decided: Decided) -> int:
    """Return the nodes that were idle when the batch system was queried, without those claimed since."""
    records, shown = decided.engine.records, frozenset(state.allocated)
    coming = sum(tag_of(records.instance, each.id) not in shown for each in held)
    ours = {tag_of(records.instance, each.id) for each in records.attempts.values() if not each.let_go}
    freed = len(shown - ours)
    return sum(count for _, count in state.whole_nodes) + freed - coming


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
        patient = attempt.launcher is not None or records.jobs[attempt.id.job].patient
        if tag in pending or (patient and tag not in allocated):
            yield attempt


def _pending(seen: KnownCluster) -> frozenset[Tag]:
    assert seen.state is not None
    return frozenset(seen.state.pending)


def _tag(attempt: Attempt, decided: Decided) -> Tag:
    return tag_of(decided.engine.records.instance, attempt.id)
