"""What every store promises to the driver, which commits, and to other threads, which read meanwhile."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from koalapy.model.change import Change, Snapshot
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.job import Debt, History, Job
from koalapy.model.maintenance import MaintenanceRun
from koalapy.model.states import JobState
from koalapy.model.sweep import ResultBatch
from koalapy.model.units import Instant
from koalapy.model.unreadable import Unreadable
from koalapy.model.usage import DayUsage, Usage


class Store(Protocol):
    """One koalad's memory. One thread commits; any thread may read at the same time and sees whole commits only.

    Every method raises StoreError once the store is closed.
    """

    @property
    def instance(self) -> InstanceId:
        """The store's name in every tag: drawn when the store was made, the same for as long as it exists."""

    @property
    def epoch(self) -> int:
        """How many times the store has been opened, leaps added. Of two openers the one of the higher epoch commits."""

    @property
    def next_number(self) -> int:
        """The first outbox number that was never used, confirmed entries counted."""

    def load(self) -> Snapshot:
        """What the engine and the driver start from: jobs that are not over by id, debts by attempt, the outbox.

        A record that cannot be read is set aside, see `unreadable`, and hides no other. So are the debts and commands
        of a job that is set aside, and the Launchers of such a sweep: nothing is done for them until it is repaired.
        """

    def unreadable(self) -> list[Unreadable]:
        """The records that could not be read so far, by kind and key. No method but `result` raises for one."""

    def commit(self, change: Change) -> None:
        """Keep all of the change, durably, before returning.

        What is added or replaced comes first, what is settled, confirmed and removed after it; to take away what is
        not there is no error.

        Raises RecordInvalid for a value of a wrong type or out of bounds, before the transaction begins, and
        StoreConflict for a contradiction. Both are lasting: the same change is never kept. Raises StoreFull,
        StoreLocked or another StoreError if the database cannot do it now, and then nothing is kept; but where the
        database was lost over it, nobody knows: commit the same change again, and it is kept once.
        """

    def check(self) -> None:
        """Raises StoreLocked `store_taken_over` once another has opened the store, StoreError if it is out of reach.

        For an opener that has nothing to commit. It is called by the thread that commits.
        """

    def jobs(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Job]:
        """By id, finished ones too; of these states and these ids only, where they are given.

        Launchers are left out, unless they are named by their ids.
        """

    def prunable(self, before: Instant, most: int, after: JobId, records: bool, launchers: bool) -> list[Job]:
        """Jobs that were over by then, by id, those of ids above `after` only, at most so many.

        `launchers`: Launchers of sweeps that were over by then; else all other jobs, but for sweeps that have Launchers
        here. Without `records`, of jobs whose directories are all to go: those whose history has no `output_pruned`.
        """

    def launchers_of(self, sweep: JobId) -> list[Job]:
        """By id, those that are over too."""

    def job(self, job_id: JobId) -> Job | None: ...

    def job_of_key(self, owner: str, key: str) -> JobId | None:
        """The job that this owner's client submitted under this key. No job has the empty key."""

    def jobs_of_keys(self, owner: str, keys: Collection[str]) -> dict[str, JobId]:
        """The same of many keys at once; without those that have no job."""

    def history(self, job_id: JobId) -> list[History]:
        """In the order of commits, details as JSON has them; empty for a job that is not there."""

    def results(self, sweep: JobId, after: int = 0) -> Iterator[tuple[int, ResultBatch]]:
        """In the order of commits, each with its number, those of numbers above `after` only: read as they are asked
        for, so that whoever stops in between has not read the rest."""

    def result(self, sweep: JobId, number: int) -> ResultBatch | None:
        """Of one parameter, a batch of it alone; None before it is recorded. It takes no longer in a large sweep."""

    def usage(self, since: Instant | None = None) -> list[Usage]:
        """By attempt, of those that ended after `since`, of jobs that are here."""

    def used(self, since: Instant | None = None) -> tuple[list[Usage], list[DayUsage]]:
        """The same, and by day, user and cluster what jobs used that were removed: no attempt is in both."""

    def debts(self) -> list[Debt]:
        """By attempt."""

    def maintenance(self) -> list[MaintenanceRun]:
        """The last run of each maintenance task, by name."""

    def record_maintenance(self, run: MaintenanceRun) -> None:
        """Keep it in place of the last one of this name. Called by the thread that commits; raises as `commit`."""

    def back_up(self, path: Path) -> None:
        """Copy the store as it is now to a new file, durably. Callable by any thread.

        Raises OSError if the file cannot be written, StoreError, and RequestError if the database has no such copy;
        then `path` may hold a part.
        """

    def compact(self) -> None:
        """Give the room of what was removed back to the file system. Callable by any thread; commits wait meanwhile.

        Raises StoreError, and RequestError if the database does so by itself.
        """

    def close(self) -> None:
        """Let go of the store. May be called twice."""
