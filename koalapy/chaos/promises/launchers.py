"""Sweeps' Launchers on one cluster, added up from all that lives: they take what is idle, and give it to others."""

from collections.abc import Mapping

from koalapy.chaos.promises.decided import Decided
from koalapy.chaos.promises.knowledge import KnownCluster
from koalapy.chaos.violation import Promise, promise
from koalapy.model.identity import JobId, Tag, attempt_of, is_tag, tag_of
from koalapy.model.job import Job
from koalapy.model.states import JobState


class Launchers:
    """After one decision; `before` are all jobs as they were committed before it, those that are over too."""

    def __init__(self, before: Mapping[JobId, Job], decided: Decided) -> None:
        self._before, self._engine = before, decided.engine
        self._seen, self._processors = decided.knowledge.clusters, decided.processors

    def shown(self, seen: KnownCluster) -> int:
        """Processors that the batch system shows as theirs, of those that are gone since it was asked too."""
        return sum(self._taken(tag, seen) for tag in seen.state.allocated) if seen.state is not None else 0

    def fit(self, launcher: Job) -> None:
        """It is on nodes that were idle, and that nobody wants."""
        name = launcher.components[0].cluster or ""
        seen = self._seen[name]
        promise(seen.state is not None, Promise.PROCESSORS, "Launcher", launcher.id, "is claimed on", name, "unseen")
        lack = self._lacking(seen, going=False)
        promise(lack <= 0, Promise.PROCESSORS, "Launcher", launcher.id, "takes", lack, "that others have on", name)

    def give_back(self) -> None:
        """They are asked to go as soon as others lack what they hold, where koalad reaches their cluster."""
        for name in sorted(name for name, seen in self._seen.items() if seen.connected):
            seen = self._seen[name]
            stay = [job for job in self._on(name) if job.state is not JobState.STOPPING]
            if stay and seen.state is not None and seen.state.wanted_local + self.promised(seen):
                lack = self._lacking(seen, going=True)
                promise(
                    lack <= 0, Promise.GIVEN_BACK, lack, "processors are lacking on", name, "and", len(stay), "stay"
                )

    def _lacking(self, seen: KnownCluster, going: bool) -> int:
        """Return the processors missing for others.

        They are those committed, wanted by local jobs and claimed by starting Launchers, less those that are idle.

        `going`: less also those that become free.
        """
        assert seen.state is not None
        shown = frozenset(seen.state.allocated)
        wanted, free = self.promised(seen) + seen.state.wanted_local, seen.state.idle + self._freed(seen)
        for job in self._on(seen.settings.name):
            taken = self._processors.taken(seen.settings.name, job.components[0].request)
            wanted += taken if self._tag(job) not in shown else 0
            free += taken if going and job.state is JobState.STOPPING else 0
        return wanted - free

    def promised(self, seen: KnownCluster) -> int:
        """To jobs that are no Launchers, and not shown yet."""
        assert seen.state is not None
        records, shown = self._engine.records, frozenset(seen.state.allocated)
        return sum(
            self._processors.taken(seen.settings.name, attempt.request)
            for attempt in records.live(seen.settings.name)
            if records.jobs[attempt.id.job].pilot is None and tag_of(records.instance, attempt.id) not in shown
        )

    def _freed(self, seen: KnownCluster) -> int:
        """Return the processors of Launchers that have gone since the batch system was queried."""
        assert seen.state is not None
        live = {self._tag(job) for job in self._on(seen.settings.name)}
        return sum(self._taken(tag, seen) for tag in seen.state.allocated if tag not in live)

    def _taken(self, tag: Tag, seen: KnownCluster) -> int:
        """By the Launcher of this name; nothing by other batch jobs."""
        instance, attempt = attempt_of(tag) if is_tag(tag) else (None, None)
        job = self._before.get(attempt.job) if attempt is not None else None
        if instance != self._engine.records.instance or job is None or job.pilot is None:
            return 0
        return self._processors.taken(seen.settings.name, job.components[0].request)

    def _on(self, cluster: str) -> list[Job]:
        records = self._engine.records
        jobs = [records.jobs[attempt.id.job] for attempt in records.live(cluster)]
        return [job for job in jobs if job.pilot is not None]

    def _tag(self, launcher: Job) -> Tag:
        return tag_of(self._engine.records.instance, launcher.attempt_of(launcher.components[0]))
