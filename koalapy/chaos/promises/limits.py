"""Promises about the limits of sweeps: hours, nodes, the idle share of each cluster, and how many sweeps run."""

from collections.abc import Sequence

from koalapy.chaos.promises.decided import Decided
from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.cluster import ClusterState, Scavenge
from koalapy.model.identity import tag_of
from koalapy.model.job import Job
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import Duration, Instant

_UTC = Duration(0)  # the simulated host's own clock


class Limits:
    """The checker of limits. `committed` is called after every commit, `passed` before every decision, on the last."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.scavenging.max_runners

    def committed(self, change: Change, decided: Decided) -> None:
        """Check that new Launchers obey their cluster's rules, and that no more than `max_runners` sweeps run."""
        claimed = {line.job for line in change.history if line.kind == "job_claimed"}
        launchers = [job for job in change.jobs if job.pilot is not None and job.id in claimed]
        for name in dict.fromkeys(job.components[0].cluster or "" for job in launchers):
            new = {job.id for job in launchers if job.components[0].cluster == name}
            live = _live(decided, name)
            self._check_growth(name, [job for job in live if job.id not in new], len(live), decided)
        if any(line.kind == "sweep_admitted" for line in change.history) and self._most is not None:
            jobs = decided.engine.records.jobs.values()
            active = [job.id for job in jobs if job.runner is not None and job.state is JobState.RUNNING]
            promise(len(active) <= self._most, Promise.LIMITS, "sweeps are active:", *active)

    def passed(self, decided: Decided) -> None:
        """Check that all Launchers that a decision has left on a reachable cluster may stay there."""
        for name, seen in decided.knowledge.clusters.items():
            if not seen.connected:
                continue
            stay = [job for job in _live(decided, name) if job.state is not JobState.STOPPING]
            if stay and seen.state is not None:
                rules = seen.settings.scavenge
                promise(_open(rules, decided.at), Promise.LIMITS, len(stay), "Launchers stay after hours on", name)
                _check_count(name, rules, len(stay))

    def _check_growth(self, name: str, held: Sequence[Job], after: int, decided: Decided) -> None:
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


def _live(decided: Decided, cluster: str) -> list[Job]:
    records = decided.engine.records
    jobs = [records.jobs[attempt.id.job] for attempt in records.live(cluster)]
    return [job for job in jobs if job.pilot is not None]


def _idle_nodes(held: Sequence[Job], state: ClusterState, decided: Decided) -> int:
    """Return the nodes that were idle when the batch system was queried, without those claimed since."""
    records, shown = decided.engine.records, frozenset(state.allocated)
    coming = sum(tag_of(records.instance, job.attempt_of(job.components[0])) not in shown for job in held)
    ours = {tag_of(records.instance, each.id) for job in records.jobs.values() for each in job.live}
    freed = len(shown - ours)
    return sum(count for _, count in state.whole_nodes) + freed - coming
