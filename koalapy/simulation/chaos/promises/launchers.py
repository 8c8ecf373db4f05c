"""Sweeps' Launchers on one cluster, added up from all that lives: they take what is idle, and give it to others."""

from collections.abc import Mapping

from koalapy.information.kis import Known
from koalapy.information.promises import processors_taken
from koalapy.model.identity import JobId, Tag, attempt_of, is_tag, tag_of
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.simulation.chaos.promises.decided import Decided
from koalapy.simulation.chaos.violation import Promise, promise


class Launchers:
    """After one decision; `before` are all jobs as they were committed before it, those that are over too."""

    def __init__(self, before: Mapping[JobId, Job], decided: Decided) -> None:
        self._before, self._engine = before, decided.engine

    def shown(self, known: Known) -> int:
        """Processors that the batch system shows as theirs, of those that are gone since it was asked too."""
        return sum(self._taken(tag, known) for tag in known.state.allocated) if known.state is not None else 0

    def fit(self, launcher: Job) -> None:
        """It is on nodes that were idle, and that nobody wants."""
        name = launcher.components[0].cluster or ""
        known = self._engine.known.clusters[name]
        promise(known.state is not None, Promise.PROCESSORS, "Launcher", launcher.id, "is claimed on", name, "unseen")
        lack = self._lacking(known, going=False)
        promise(lack <= 0, Promise.PROCESSORS, "Launcher", launcher.id, "takes", lack, "that others have on", name)

    def give_back(self) -> None:
        """They are asked to go as soon as others lack what they hold, where koalad reaches their cluster."""
        for name in sorted(self._engine.known.reachable):
            known = self._engine.known.clusters[name]
            stay = [job for job in self._on(name) if job.state is not JobState.STOPPING]
            if stay and known.state is not None and known.state.wanted_local + self._promised(known):
                lack = self._lacking(known, going=True)
                promise(
                    lack <= 0, Promise.GIVEN_BACK, lack, "processors are lacking on", name, "and", len(stay), "stay"
                )

    def _lacking(self, known: Known, going: bool) -> int:
        """What is promised, wanted and taken by Launchers to come, less what is idle; `going`: and what comes free."""
        assert known.state is not None
        shown = frozenset(known.state.allocated)
        wanted, free = self._promised(known) + known.state.wanted_local, known.state.idle + self._freed(known)
        for job in self._on(known.settings.name):
            taken = processors_taken(job.components[0].request, known.settings)
            wanted += taken if self._tag(job) not in shown else 0
            free += taken if going and job.state is JobState.STOPPING else 0
        return wanted - free

    def _promised(self, known: Known) -> int:
        """To jobs that are no Launchers, and not shown yet."""
        assert known.state is not None
        records, shown = self._engine.records, frozenset(known.state.allocated)
        return sum(
            processors_taken(component.request, known.settings)
            for job, component in records.live(known.settings.name)
            if job.glide is None and tag_of(records.instance, job.attempt_of(component)) not in shown
        )

    def _freed(self, known: Known) -> int:
        """Of those that are gone, but were not when the batch system was asked."""
        assert known.state is not None
        live = {self._tag(job) for job in self._on(known.settings.name)}
        return sum(self._taken(tag, known) for tag in known.state.allocated if tag not in live)

    def _taken(self, tag: Tag, known: Known) -> int:
        """By the Launcher of this name; nothing by other batch jobs."""
        instance, attempt = attempt_of(tag) if is_tag(tag) else (None, None)
        job = self._before.get(attempt.job) if attempt is not None else None
        if instance != self._engine.records.instance or job is None or job.glide is None:
            return 0
        return processors_taken(job.components[0].request, known.settings)

    def _on(self, cluster: str) -> list[Job]:
        return [job for job, _ in self._engine.records.live(cluster) if job.glide is not None]

    def _tag(self, launcher: Job) -> Tag:
        return tag_of(self._engine.records.instance, launcher.attempt_of(launcher.components[0]))
