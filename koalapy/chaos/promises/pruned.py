"""Promises about pruning: only final jobs, each once, directories before records, and nothing of other jobs."""

from collections.abc import Collection, Mapping

from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.commands import CollectOutput, ForgetAttempt
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.job import Job
from koalapy.store.contract import Store
from koalapy.world.world import World


class Pruned:
    """The checker of pruning. `committed` is called after every commit; `before` are the jobs before it."""

    def __init__(self, world: World, left: Collection[str]) -> None:
        """`left`: clusters that have left the grid at some time: their directories may stay."""
        self._world, self._left = world, left
        self.jobs: dict[JobId, Job] = {}

    def committed(self, change: Change, before: Mapping[JobId, Job], committed: Committed) -> None:
        for entry in change.sent:
            if isinstance(entry.command, ForgetAttempt):
                self._check_forget(entry.command.attempt, committed.jobs)
        pending = {attempt.job for attempt in committed.pending_cancels}
        collecting = {
            entry.command.job for entry in committed.outbox.values() if isinstance(entry.command, CollectOutput)
        }
        for identity in change.removed:
            job = before.get(identity)
            promise(identity not in self.jobs, Promise.PRUNED, "job", identity, "is pruned twice")
            promise(job is not None and job.state.final, Promise.PRUNED, "job", identity, "is not final, but pruned")
            assert job is not None
            promise(identity not in pending, Promise.PRUNED, "job", identity, "has a pending cancel, but is pruned")
            promise(identity not in collecting, Promise.PRUNED, "job", identity, "is collecting, but is pruned")
            left = [path for path in self._paths(job) if self._exists(*path)]
            promise(not left, Promise.PRUNED, "job", identity, "is pruned before its directories:", *left)
            self.jobs[identity] = job
        for identity in change.removed:
            launchers = [each.id for each in before.values() if each.pilot and each.pilot.sweep == identity]
            kept = [each for each in launchers if each not in self.jobs]
            promise(not kept, Promise.PRUNED, "sweep", identity, "is pruned before its Launchers", *kept)

    def _check_forget(self, attempt: AttemptId, jobs: Mapping[JobId, Job]) -> None:
        """Check that the directory is of an earlier attempt, or of a final job."""
        job = jobs[attempt.job]
        component = job.components[attempt.component] if attempt.component < len(job.components) else None
        past = component is None or component.cluster is None or attempt.number < component.attempt
        promise(
            past or job.state.final,
            Promise.PRUNED,
            "the directory of",
            attempt,
            "is removed while its job is",
            job.state,
        )
        if job.pilot is not None:
            final = jobs[job.pilot.sweep].state.final
            promise(final, Promise.PRUNED, "the directory of", attempt, "is removed before its sweep is final")

    def quiescent(self, store: Store) -> None:
        """Check that nothing of pruned jobs is left anywhere."""
        for job in self.jobs.values():
            promise(store.job(job.id) is None, Promise.PRUNED, "job", job.id, "is pruned, but in the store")
            promise(not store.history(job.id), Promise.PRUNED, "job", job.id, "is pruned, but has a history")
            promise(not any(store.results(job.id)), Promise.PRUNED, "sweep", job.id, "is pruned, but has results")
            left = [path for path in self._paths(job) if self._exists(*path)]
            promise(not left, Promise.PRUNED, "job", job.id, "is pruned, but has left", *left)

    def _paths(self, job: Job) -> list[tuple[str, str]]:
        """Return the clusters that have directories of the job, with the ends of the paths."""
        return [
            (each.cluster, f"/{self._world.instance}/{tag_of(self._world.instance, job.attempt_of(each))}")
            for each in job.components
            if each.cluster is not None and each.cluster not in self._left
        ]

    def _exists(self, cluster: str, end: str) -> bool:
        return any(path.endswith(end) for path in self._world.clusters[cluster].shared.directories)
