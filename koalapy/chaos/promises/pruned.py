"""Promises about pruning: only jobs that are over, each once, directories before records, and nothing of other jobs."""

from collections.abc import Mapping

from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.commands import CollectOutput, ForgetAttempt
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.job import Job
from koalapy.store.contract import Store
from koalapy.world.world import World


class Pruned:
    """`committed` after every commit; `before` are the jobs as they were committed before it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.jobs: dict[JobId, Job] = {}

    def committed(self, change: Change, before: Mapping[JobId, Job], committed: Committed) -> None:
        for entry in change.sent:
            if isinstance(entry.command, ForgetAttempt):
                self._forgets(entry.command.attempt, committed.jobs)
        owing = {attempt.job for attempt in committed.debts}
        collecting = {
            entry.command.job for entry in committed.outbox.values() if isinstance(entry.command, CollectOutput)
        }
        for identity in change.removed:
            job = before.get(identity)
            promise(identity not in self.jobs, Promise.PRUNED, "job", identity, "is pruned twice")
            promise(job is not None and job.state.final, Promise.PRUNED, "job", identity, "is not over, but pruned")
            assert job is not None
            promise(identity not in owing, Promise.PRUNED, "job", identity, "has a debt, but is pruned")
            promise(identity not in collecting, Promise.PRUNED, "job", identity, "is collecting, but is pruned")
            left = [path for path in self._paths(job) if self._exists(*path)]
            promise(not left, Promise.PRUNED, "job", identity, "is pruned before its directories:", *left)
            self.jobs[identity] = job
        for identity in change.removed:
            launchers = [each.id for each in before.values() if each.pilot and each.pilot.sweep == identity]
            left_over = [each for each in launchers if each not in self.jobs]
            promise(not left_over, Promise.PRUNED, "sweep", identity, "is pruned before its Launchers", *left_over)

    def _forgets(self, attempt: AttemptId, jobs: Mapping[JobId, Job]) -> None:
        """Only the directory of an attempt that nobody will ask for: of an earlier try, or of what is over."""
        job = jobs[attempt.job]
        component = job.components[attempt.component]
        past = component.cluster is None or attempt.number < component.attempt
        promise(
            past or job.state.final, Promise.PRUNED, "the directory of", attempt, "goes while its job is", job.state
        )
        if job.pilot is not None:
            over = jobs[job.pilot.sweep].state.final
            promise(over, Promise.PRUNED, "the directory of", attempt, "goes before its sweep is over")

    def quiescent(self, store: Store) -> None:
        """Nothing of them is anywhere."""
        for job in self.jobs.values():
            promise(store.job(job.id) is None, Promise.PRUNED, "job", job.id, "is pruned, but in the store")
            promise(not store.history(job.id), Promise.PRUNED, "job", job.id, "is pruned, but has a story")
            promise(not any(store.results(job.id)), Promise.PRUNED, "sweep", job.id, "is pruned, but has results")
            left = [path for path in self._paths(job) if self._exists(*path)]
            promise(not left, Promise.PRUNED, "job", job.id, "is pruned, but has left", *left)

    def _paths(self, job: Job) -> list[tuple[str, str]]:
        """The clusters that have directories of it, and the ends of the paths."""
        return [
            (each.cluster, f"/{self._world.instance}/{tag_of(self._world.instance, job.attempt_of(each))}")
            for each in job.components
            if each.cluster is not None
        ]

    def _exists(self, cluster: str, end: str) -> bool:
        return any(path.endswith(end) for path in self._world.clusters[cluster].shared.directories)
