"""Promises about pruning: only final jobs, each once, directories before records, and nothing of other jobs."""

from collections.abc import Collection, Iterable, Mapping

from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.change import Change
from koalapy.model.commands import CollectOutput, ForgetAttempt
from koalapy.model.identity import AttemptId, JobId, launcher_id, tag_of
from koalapy.model.job import Job
from koalapy.model.work import Work
from koalapy.store.contract import Store
from koalapy.world.world import World


class Pruned:
    """The checker of pruning. `committed` is called after every commit; `before` are the jobs and sweeps before it."""

    def __init__(self, world: World, left: Collection[str]) -> None:
        """`left`: clusters that have left the grid at some time: their directories may stay."""
        self._world, self._left = world, left
        self.attempts: dict[JobId, list[Attempt]] = {}  # of pruned jobs, and of pilots by their numbers

    def committed(
        self,
        change: Change,
        before: Mapping[JobId, Work],
        pilots: Mapping[AttemptId, Attempt],
        committed: Committed,
    ) -> None:
        """Check what the change removes. `pilots`: those before it."""
        for entry in change.sent:
            if isinstance(entry.command, ForgetAttempt):
                self._check_forget(entry.command.attempt, committed)
        pending = {attempt.job for attempt in committed.pending_cancels}
        collecting = {
            entry.command.job for entry in committed.outbox.values() if isinstance(entry.command, CollectOutput)
        }
        for identity in change.removed:
            pilot = pilots.get(launcher_id(identity))
            work = before.get(identity)
            final = pilot.let_go if pilot is not None else work is not None and work.state.final
            promise(identity not in self.attempts, Promise.PRUNED, "job", identity, "is pruned twice")
            promise(final, Promise.PRUNED, "job", identity, "is not final, but pruned")
            promise(identity not in pending, Promise.PRUNED, "job", identity, "has a pending cancel, but is pruned")
            promise(identity not in collecting, Promise.PRUNED, "job", identity, "is collecting, but is pruned")
            of_job = [each for each in work.attempts if each] if isinstance(work, Job) else []
            attempts = of_job if pilot is None else [pilot]
            left = [path for path in self._paths(attempts) if self._exists(*path)]
            promise(not left, Promise.PRUNED, "job", identity, "is pruned before its directories:", *left)
            self.attempts[identity] = attempts
        for identity in change.removed:
            of_sweep = [each.id for each in pilots.values() if each.owner == (OwnerKind.SWEEP, identity)]
            kept = [each for each in of_sweep if each.job not in self.attempts]
            promise(not kept, Promise.PRUNED, "sweep", identity, "is pruned before its pilots", *kept)

    def _check_forget(self, attempt: AttemptId, committed: Committed) -> None:
        """Check that the directory is of an earlier attempt, of a final job, or of a pilot of a final sweep."""
        if (pilot := committed.launchers.get(attempt)) is not None:
            final = committed.sweeps[JobId(pilot.owner.id)].state.final
            promise(final, Promise.PRUNED, "the directory of", attempt, "is removed before its sweep is final")
            return
        job = committed.jobs[attempt.job]
        present = job.attempt(attempt.component)
        past = present is None or all(attempt != each.id for each in (present, *job.candidates))
        promise(
            past or job.state.final,
            Promise.PRUNED,
            "the directory of",
            attempt,
            "is removed while its job is",
            job.state,
        )

    def quiescent(self, store: Store) -> None:
        """Check that nothing of pruned jobs and pilots is left anywhere."""
        for identity, attempts in self.attempts.items():
            promise(store.work(identity) is None, Promise.PRUNED, "job", identity, "is pruned, but in the store")
            pilot = store.launcher(launcher_id(identity))
            promise(pilot is None, Promise.PRUNED, "pilot", identity, "is pruned, but in the store")
            promise(not store.history(identity), Promise.PRUNED, "job", identity, "is pruned, but has a history")
            promise(not any(store.results(identity)), Promise.PRUNED, "sweep", identity, "is pruned, but has results")
            left = [path for path in self._paths(attempts) if self._exists(*path)]
            promise(not left, Promise.PRUNED, "job", identity, "is pruned, but has left", *left)

    def _paths(self, attempts: Iterable[Attempt]) -> list[tuple[str, str]]:
        """Return the clusters that have directories of the attempts, with the ends of the paths."""
        return [
            (each.cluster, f"/{self._world.instance}/{tag_of(self._world.instance, each.id)}")
            for each in attempts
            if each.cluster not in self._left
        ]

    def _exists(self, cluster: str, end: str) -> bool:
        return any(path.endswith(end) for path in self._world.clusters[cluster].shared.directories)
