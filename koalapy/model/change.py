"""Changes, each committed in one transaction, and the contents that a store returns after a restart."""

from dataclasses import dataclass, fields

from koalapy.model.attempt import Attempt
from koalapy.model.commands import Command
from koalapy.model.ended_lease import EndedLease, LeaseKey
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.history import History
from koalapy.model.identity import AttemptId, InstanceId, JobId
from koalapy.model.job import Counters, Job
from koalapy.model.learned import NOTHING, Learned
from koalapy.model.lease import Lease, Origin, SeenRequest
from koalapy.model.neighbour import Neighbour
from koalapy.model.parameters import ResultBatch
from koalapy.model.pilot import Pilot
from koalapy.model.sent import SentJob
from koalapy.model.sweep import Sweep
from koalapy.model.usage import BatchSpan, Usage
from koalapy.model.work import Flow, Work


@fast_frozen
@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A command that is not confirmed yet. Numbers grow and are never used again."""

    number: int
    command: Command


@dataclass(frozen=True, slots=True)
class EpochJump:
    """The jump of a store that was restored from a backup.

    The store goes on with an epoch and an outbox number greater than all it ever used.
    """

    epoch: int
    last_number: int


@dataclass(kw_only=True)
class Change:
    """All changes of one batch of events. The engine makes it as a Step; the driver adds what concerns the outbox.

    They are committed whole or not at all, and durable before any command is carried out. `jobs`: those that changed,
    or an attempt of theirs, each with all its present attempts. A store keeps attempts apart from their jobs: of `jobs`
    it keeps their own fields, and attempts only as `attempts`.
    """

    jobs: tuple[Job, ...] = ()
    sweeps: tuple[Sweep, ...] = ()  # that changed
    flows: tuple[Flow, ...] = ()  # that changed
    sent_jobs: tuple[SentJob, ...] = ()  # that changed
    attempts: tuple[Attempt, ...] = ()  # all that changed; the record of an obsolete one is removed
    counters: Counters | None = None
    sent: tuple[OutboxEntry, ...] = ()
    confirmed: tuple[int, ...] = ()  # numbers of outbox entries to remove
    history: tuple[History, ...] = ()
    removed: tuple[JobId, ...] = ()  # pruned work and Launchers, and their histories; none has a pending cancel
    epoch_jump: EpochJump | None = None
    results: tuple[ResultBatch, ...] = ()
    learned: Learned | None = None  # replaces what was learned before
    usage: tuple[Usage, ...] = ()  # of attempts whose try ended; summed up by day when their jobs are removed
    accounted: tuple[BatchSpan, ...] = ()  # batch systems' accounting of attempts whose usage is entered
    new: tuple[JobId, ...] = ()  # of `work`, those that must not be in the store yet
    as_before: tuple[JobId, ...] = ()  # of `jobs`, those whose own fields are as they were
    pilots: tuple[Pilot, ...] = ()  # that changed; the record of one that has ended is removed
    neighbours: tuple[Neighbour, ...] = ()  # that changed; the record of one that is gone is removed
    leases: tuple[Lease, ...] = ()  # that changed; the record of one that is gone is removed
    requests_seen: tuple[SeenRequest, ...] = ()  # of neighbours, for the first time
    requests_forgotten: tuple[Origin, ...] = ()  # removed before those are kept that are seen anew
    leases_ended: tuple[EndedLease, ...] = ()
    leases_removed: tuple[LeaseKey, ...] = ()  # pruned ones, which are summed up by day

    @property
    def work(self) -> list[Work]:
        """All work that changed, of every kind."""
        return [*self.jobs, *self.sweeps, *self.flows, *self.sent_jobs]

    @property
    def empty(self) -> bool:
        return not any(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A store's contents as engine and driver need them; its work is that which is not final, by id."""

    instance: InstanceId
    counters: Counters = Counters()
    jobs: tuple[Job, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    flows: tuple[Flow, ...] = ()
    sent_jobs: tuple[SentJob, ...] = ()
    pending_cancels: tuple[Attempt, ...] = ()
    jobless: tuple[AttemptId, ...] = ()  # those of them whose owner a repair dropped: it has no history any more
    launchers: tuple[Attempt, ...] = ()  # of sweeps, those that are neither cleaned up nor detached
    pilots: tuple[Pilot, ...] = ()  # by job
    outbox: tuple[OutboxEntry, ...] = ()
    learned: Learned = NOTHING
    neighbours: tuple[Neighbour, ...] = ()  # by name
    leases: tuple[Lease, ...] = ()  # those that are lent first, each by neighbour and number
    requests_seen: tuple[SeenRequest, ...] = ()  # the oldest first
    unreadable: tuple[JobId, ...] = ()  # work that is not final, but whose record cannot be read

    @property
    def work(self) -> list[Work]:
        """All work that is not final, by id."""
        return sorted([*self.jobs, *self.sweeps, *self.flows, *self.sent_jobs], key=lambda each: each.id)
