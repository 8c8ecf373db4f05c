"""Sweeps' Launchers on each cluster, summed up from all live attempts: they take idle nodes, and return them."""

from collections.abc import Mapping

from koalapy.chaos.promises.knowledge import Decided, KnownCluster, shared
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.identity import AttemptId, Tag, attempt_of, is_tag, tag_of


class Launchers:
    """The Launchers after one decision; `before` are all pilots before its commit, also those let go."""

    def __init__(self, before: Mapping[AttemptId, Attempt], decided: Decided) -> None:
        self._before, self._engine = before, decided.engine
        self._seen, self._processors = decided.knowledge.clusters, decided.processors
        self._given_up = decided.given_up

    def shown(self, seen: KnownCluster) -> int:
        """Return the Launchers' processors that the batch system shows, also of those that ended since its query."""
        return sum(self._taken(tag, seen) for tag in seen.state.allocated) if seen.state is not None else 0

    def check_fit(self, pilot: Attempt) -> None:
        """Check that a new Launcher is on idle nodes that no other job wants."""
        name = pilot.cluster
        seen = self._seen[name]
        promise(seen.state is not None, Promise.PROCESSORS, "Launcher", pilot.id, "is claimed on", name, "unseen")
        lack = self._lacking(seen, stopping=False)
        promise(lack <= 0, Promise.PROCESSORS, "Launcher", pilot.id, "takes", lack, "that others have on", name)

    def check_reclaim(self) -> None:
        """Check that on connected clusters Launchers are stopped as soon as other jobs lack their processors."""
        for name in sorted(name for name, seen in self._seen.items() if seen.connected):
            seen = self._seen[name]
            stay = [pilot for pilot in self._on(name) if not pilot.cancelling]
            if stay and seen.state is not None and seen.state.wanted_local + self.committed(seen):
                lack = self._lacking(seen, stopping=True)
                promise(
                    lack <= 0, Promise.GIVEN_BACK, lack, "processors are lacking on", name, "and", len(stay), "stay"
                )

    def _lacking(self, seen: KnownCluster, stopping: bool) -> int:
        """Return the processors missing for others.

        They are those committed, wanted by local jobs and claimed by starting Launchers, less those that are idle.

        `stopping`: less also those of Launchers that stop.
        """
        assert seen.state is not None
        shown = frozenset(seen.state.allocated)
        wanted, free = self.committed(seen) + seen.state.wanted_local, seen.state.idle + self._freed(seen)
        for pilot in self._on(seen.settings.name):
            taken = self._processors.taken(seen.settings.name, pilot.request)
            wanted += taken if self._tag(pilot) not in shown else 0
            free += taken if stopping and pilot.cancelling else 0
        return wanted - free

    def committed(self, seen: KnownCluster) -> int:
        """Return the processors that are committed to jobs, not Launchers, and not shown yet."""
        assert seen.state is not None
        records, shown = self._engine.records, frozenset(seen.state.allocated)
        committed = sum(
            self._processors.taken(seen.settings.name, attempt.request)
            for attempt in records.live(seen.settings.name)
            if attempt.owner.kind is not OwnerKind.SWEEP and tag_of(records.instance, attempt.id) not in shown
        )
        return committed - shared(seen, self._engine, self._processors)

    def _freed(self, seen: KnownCluster) -> int:
        """Return the processors of Launchers that have ended since the batch system was queried."""
        assert seen.state is not None
        live = {self._tag(pilot) for pilot in self._on(seen.settings.name)}
        return sum(self._taken(tag, seen) for tag in seen.state.allocated if tag not in live)

    def _taken(self, tag: Tag, seen: KnownCluster) -> int:
        """Return the processors of the Launcher with this tag; 0 for other batch jobs."""
        instance, attempt = attempt_of(tag) if is_tag(tag) else (None, None)
        pilot = self._before.get(attempt) if attempt is not None else None
        if instance != self._engine.records.instance or pilot is None or attempt in self._given_up:
            return 0
        return self._processors.taken(seen.settings.name, pilot.request)

    def _on(self, cluster: str) -> list[Attempt]:
        live = self._engine.records.live(cluster)
        return [attempt for attempt in live if attempt.owner.kind is OwnerKind.SWEEP]

    def _tag(self, pilot: Attempt) -> Tag:
        return tag_of(self._engine.records.instance, pilot.id)
