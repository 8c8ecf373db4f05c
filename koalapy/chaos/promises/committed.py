"""The store's contents as its commits made them, kept beside it: what recovery must give back, to the letter."""

from dataclasses import replace

from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt, attempt_value
from koalapy.model.change import Change, OutboxEntry, Snapshot
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Counters, Job, job_value
from koalapy.model.pilot import Pilot
from koalapy.model.records import Records
from koalapy.model.sent import SentJob
from koalapy.model.sweep import Sweep
from koalapy.model.work import KIND_OF, Flow, Work
from koalapy.store.contract import Store


class Committed:
    """All that was ever committed: jobs, sweeps and pilots, pruned ones too, pending cancels, outbox, counters."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.sweeps: dict[JobId, Sweep] = {}
        self.others: dict[JobId, Flow | SentJob] = {}
        self.pilots: dict[JobId, Pilot] = {}  # that are not over
        self.launchers: dict[AttemptId, Attempt] = {}  # also those that were let go or pruned
        self.pending_cancels: dict[AttemptId, Attempt] = {}
        self.outbox: dict[int, OutboxEntry] = {}
        self.counters = Counters()
        self._last_number = 0

    def work(self) -> dict[JobId, Work]:
        """Return all work."""
        return {**self.jobs, **self.sweeps, **self.others}

    def take(self, change: Change, store: Store) -> None:
        """Add a change that the store has kept, after a check of it."""
        for job in change.jobs:
            promise(store.job(job.id) == job, Promise.AGREE, "the store does not have job", job.id, "as committed")
            self.jobs[job.id] = job
        for work in (*change.sweeps, *change.flows, *change.sent_jobs):
            kept, name = store.work(work.id) == work, KIND_OF[type(work)].name
            promise(kept, Promise.AGREE, "the store does not have", name, work.id, "as committed")
        self.sweeps |= {each.id: each for each in change.sweeps}
        self.others |= {each.id: each for each in change.flows}
        self.others |= {each.id: each for each in change.sent_jobs}
        self.pilots |= {each.id: each for each in change.pilots}
        self.pilots = {number: each for number, each in self.pilots.items() if not each.state.final}
        final = [attempt for attempt in change.attempts if self._put_attempt(attempt)]
        for attempt in final:  # the store has all of the change by now
            kept = store.job(attempt.id.job) == self.jobs[attempt.id.job]
            promise(kept, Promise.AGREE, "the store does not have attempt", attempt.id, "of a final job as committed")
        for entry in change.sent:
            promise(entry.number > self._last_number, Promise.AGREE, "outbox number", entry.number, "is used again")
            self._last_number = entry.number
            self.outbox[entry.number] = entry
        for number in change.confirmed:
            self.outbox.pop(number, None)
        self.counters = change.counters or self.counters

    def _put_attempt(self, attempt: Attempt) -> bool:
        """Note an attempt as committed. Return whether it is the last one of a component of a final job."""
        if attempt.is_pending_cancel:
            self.pending_cancels[attempt.id] = attempt
        else:
            self.pending_cancels.pop(attempt.id, None)
        if attempt.launcher is not None:
            before = self.launchers.get(attempt.id)
            was_cleaned_up = before is not None and before.cleaned_up
            promise(not was_cleaned_up, Promise.ENDS, "pilot", attempt.id, "changes after its end")
            self.launchers[attempt.id] = attempt
        job = self.jobs.get(attempt.id.job)
        if job is None or not job.state.final or attempt.superseded:
            return False
        attempts = [attempt if each is not None and each.id == attempt.id else each for each in job.attempts]
        self.jobs[job.id] = replace(job, attempts=tuple(attempts))
        return True

    def check_engine(self, records: Records) -> None:
        """Check that the engine's records are committed, so that commands may be sent."""
        for job in records.jobs.values():
            promise(self.jobs.get(job.id) == job_value(job), Promise.COMMITTED, "job", job.id, "is", job.state)
        for row in (*records.sweeps.values(), *records.flows.values(), *records.sent_jobs.values()):
            found, kind = self.sweeps.get(row.id) or self.others.get(row.id), KIND_OF[type(row)]
            promise(found == kind.to_value(row), Promise.COMMITTED, kind.name, row.id, "is", row.state)
        pilots = {row.id: attempt_value(row) for row in records.launchers.values()}
        promise(pilots == self._living_launchers(), Promise.COMMITTED, "pilots", *map(str, pilots))
        pending = {row.id: attempt_value(row) for row in records.pending_cancels.values()}
        promise(pending == self.pending_cancels, Promise.COMMITTED, "pending cancels", *map(str, pending))
        promise(records.counters == self.counters, Promise.COMMITTED, records.counters)

    def _living_launchers(self) -> dict[AttemptId, Attempt]:
        return {each.id: each for each in self.launchers.values() if not each.let_go}

    def check_sent(self, entry: OutboxEntry) -> None:
        """Check that an entry is in the outbox before it is sent."""
        promise(self.outbox.get(entry.number) == entry, Promise.COMMITTED, "sent, not committed:", entry.number)

    def recovered(self, found: Snapshot) -> None:
        """Check the snapshot from which the next koalad starts."""
        jobs = {job.id: job for job in self.jobs.values() if not job.state.final}
        self._same("jobs", {job.id: job for job in found.jobs}, jobs)
        others = {each.id: each for each in (*self.sweeps.values(), *self.others.values()) if not each.state.final}
        again = {each.id: each for each in (*found.sweeps, *found.flows, *found.sent_jobs)}
        self._same("sweeps, flows and sent jobs", again, others)
        self._same("Launchers", {each.id: each for each in found.launchers}, self._living_launchers())
        self._same("pilots", {each.id: each for each in found.pilots}, self.pilots)
        self._same("pending cancels", {each.id: each for each in found.pending_cancels}, self.pending_cancels)
        self._same("outbox", {entry.number: entry for entry in found.outbox}, self.outbox)
        promise(found.counters == self.counters, Promise.AGREE, "counters after a restart:", found.counters)

    @staticmethod
    def _same(what: str, found: object, committed: object) -> None:
        promise(found == committed, Promise.AGREE, what, "after a restart are", found, "but were", committed)
