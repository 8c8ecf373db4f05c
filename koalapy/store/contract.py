"""The contract of every store, with the driver, which commits, and with other threads, which read meanwhile.

StoreError                koalapy's own: the database refused or could not do it.
├── StoreFull             There is no room left; nothing of the change was kept.
├── StoreLocked           Another koalad holds the store, or has taken it over.
├── StoreConflict         The change contradicts what the store holds; a mistake of its author.
│   └── RecordInvalid     A value of the change cannot be in any record.
└── StoreUnreadable       This is not a store of koalapy, a damaged one, or one of a newer koalapy.
    └── RecordUnreadable  One record of the store is damaged, or of a newer koalapy.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from koalapy.model.attempt import Attempt
from koalapy.model.change import Change, Snapshot
from koalapy.model.ended_lease import EndedLease, LeaseDay, LeaseKey
from koalapy.model.errors import OurError
from koalapy.model.history import History
from koalapy.model.identity import AttemptId, InstanceId, JobId
from koalapy.model.job import Job
from koalapy.model.parameters import ResultBatch
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.unreadable import Unreadable
from koalapy.model.usage import DayUsage, Usage
from koalapy.model.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRun:
    """One run of a maintenance task. `name` is the entry's.

    `ended`: None while the task runs, and for a run that koalad's end interrupted. `message` is a sentence for people.
    `well`: whether no action is needed.
    """

    name: str
    task: str
    began: Instant
    ended: Instant | None = None
    well: bool = False
    message: str = ""


class StoreError(OurError):
    """A failure of the store. If `commit` raises it, nothing of the change is in the store."""


class StoreFull(StoreError):
    """There is no room for the change, which may be committed again when there is."""


class StoreLocked(StoreError):
    """This opener may not write (any more)."""


class StoreConflict(StoreError):
    """A contradiction between a change and the store.

    The change has a key of another job of the owner, an outbox number in use, or results of work that does not
    exist. To commit the same change again is in vain.
    """

    lasting = True


class RecordInvalid(StoreConflict):
    """A value of a wrong type or out of bounds, which was found before any request to the database."""


class StoreUnreadable(StoreError):
    """The contents of the database cannot be understood, and were left as they are."""


class RecordUnreadable(StoreUnreadable):
    """One record that is damaged, or has a form that this version does not know. `why`: half a sentence."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            "record_unreadable",
            f"A {name} record of the store cannot be read ({why}).",
            "Use the koalapy that wrote it, which may be newer than this one, repair it, or restore a backup.",
        )
        self.why = why


class Store(Protocol):
    """The records of one koalad. One thread commits; any thread may read at the same time and sees whole commits only.

    Every method raises StoreError once the store is closed.
    """

    @property
    def instance(self) -> InstanceId:
        """The store's name in every tag. It is drawn when the store is made, and never changes."""

    @property
    def epoch(self) -> int:
        """The number of times that the store was opened, epoch jumps added.

        Of two openers, the one of the higher epoch commits.
        """

    @property
    def next_number(self) -> int:
        """The first outbox number that was never used, confirmed entries counted."""

    def load(self) -> Snapshot:
        """Return what the engine and the driver start from: work that is not final, pending cancels, the outbox.

        All work is ordered by id, pending cancels by attempt. A record that cannot be read is set aside, see
        `unreadable`, and hides no other. So is a job with a present attempt that is set aside. The pending cancels and
        commands of a job that is set aside are too, and the Launchers of such a sweep. Nothing is done for them until
        the record is repaired.
        """

    def unreadable(self) -> list[Unreadable]:
        """Return the records that could not be read so far, by kind and key.

        No method but `result` raises for such a record.
        """

    def commit(self, change: Change) -> None:
        """Keep all of the change, durably, before returning.

        Records are added and replaced before others are confirmed and removed. To remove a record that does
        not exist is no error. Work keeps the key that it was added with.

        Raises RecordInvalid for a value of a wrong type or out of bounds, before the transaction begins, and
        StoreConflict for a contradiction: an id or key in use, results of an id that no work has, or history of an
        id that no work or Launcher has. Both are lasting: the same change is never kept. Raises StoreFull,
        StoreLocked or another StoreError if the database cannot do it now, and then nothing is kept. If the database
        was lost meanwhile, the outcome is unknown. Commit the same change again, and it is kept once.
        """

    def check(self) -> None:
        """Check that this opener may still write. For an opener without a change, in the thread that commits.

        Raises StoreLocked `store_taken_over` once another has opened the store, StoreError if it is out of reach.
        """

    def jobs(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Job]:
        """Return the jobs by id, final ones too; only those of these states and ids, if they are given."""

    def sweeps(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Sweep]:
        """Return the sweeps by id, as `jobs` does."""

    def all_work(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Work]:
        """Return all work by id, as `jobs` does."""

    def prunable(self, before: Instant, most: int, after: JobId, records: bool) -> list[Work]:
        """Return at most `most` of the work that was final by `before`, in order of their ids, above `after`.

        Sweeps that have Launchers here are left out. Without `records`, return only those whose history has no
        `output_pruned`: their directories are all to go.
        """

    def prunable_launchers(self, before: Instant, most: int, after: JobId, records: bool) -> list[Attempt]:
        """Return at most `most` Launchers of sweeps that were final by `before`, in order of their numbers.

        The numbers are above `after`. `records`: as for `prunable`.
        """

    def launchers_of(self, sweep: JobId) -> list[Attempt]:
        """Return the Launchers of a sweep by number, also those that were let go."""

    def launcher(self, launcher: AttemptId) -> Attempt | None: ...

    def job(self, job_id: JobId) -> Job | None: ...

    def sweep(self, sweep: JobId) -> Sweep | None: ...

    def work(self, identity: JobId) -> Work | None:
        """Return the work of this id; None if there is none."""

    def id_of_key(self, owner: str, key: str) -> JobId | None:
        """Return the id of the work that this owner's client submitted under this key; None if there is none.

        None has the empty key.
        """

    def ids_of_keys(self, owner: str, keys: Collection[str]) -> dict[str, JobId]:
        """Return the jobs and sweeps of many keys by key, without the keys that have none."""

    def history(self, job_id: JobId) -> list[History]:
        """Return the history of a job, sweep or Launcher in the order of commits, with details as in JSON.

        The history of an id that nothing has is empty.
        """

    def results(self, sweep: JobId, after: int = 0) -> Iterator[tuple[int, ResultBatch]]:
        """Yield the batches of results in the order of commits, each with its number, if that is above `after`.

        They are read as they are consumed. A caller that stops early has not read the rest.
        """

    def result(self, sweep: JobId, number: int) -> ResultBatch | None:
        """Return a batch with the result of one parameter alone; None before it is recorded.

        It takes no longer in a large sweep. Raises RecordUnreadable if the record of the result cannot be read.
        """

    def usage(self, since: Instant | None = None) -> list[Usage]:
        """Return the usage of attempts that ended after `since`, by attempt, for jobs and sweeps in the store."""

    def used(self, since: Instant | None = None) -> tuple[list[Usage], list[DayUsage]]:
        """Return the same, and the usage of removed jobs by day, user and cluster. No attempt is in both."""

    def ended_leases(self, since: Instant | None = None) -> tuple[list[EndedLease], list[LeaseDay]]:
        """Return the accounts of leases that ended after `since`, by their ends, and the sums of removed ones."""

    def prunable_leases(self, before: Instant, most: int) -> list[LeaseKey]:
        """Return at most `most` leases that were over by `before`, the oldest first."""

    def pending_cancels(self) -> list[Attempt]:
        """Return the pending cancels by attempt."""

    def maintenance(self) -> list[MaintenanceRun]:
        """Return the last run of each maintenance task, by name."""

    def record_maintenance(self, run: MaintenanceRun) -> None:
        """Keep the run in place of the last one of its name. The thread that commits calls it. Raises as `commit`."""

    def back_up(self, path: Path) -> None:
        """Copy the present store to a new file, durably. Any thread may call it.

        Raises OSError if the file cannot be written, StoreError, and RequestError if the database has no such copy;
        then `path` may contain a part of it.
        """

    def compact(self) -> None:
        """Give the space of removed records back to the file system. Any thread may call it; commits wait meanwhile.

        Raises StoreError, and RequestError if the database does so by itself.
        """

    def close(self) -> None:
        """Close the store. It may be called twice."""
