"""The promises about the duration of a claim, computed again from the job's history by koalad's clock.

Components wait for each other for a bounded time, and those that have waited for longer are given back.
"""

from collections.abc import Iterator

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant

_UNSTARTED = (JobState.BLOCKED, JobState.WAITING, JobState.HELD, JobState.CLAIMING)
_SLACK = SECOND  # for the decision that follows at once


class Times:
    """The checker of claim times. `committed` follows every commit, `passed` precedes every decision."""

    def __init__(self, settings: Settings) -> None:
        self._held_limit = settings.held_limit
        self._claim, self._barrier = _with_jitter(settings.claim_timeout), _with_jitter(settings.barrier_timeout)
        self._claimed_at: dict[JobId, Instant] = {}
        self._claiming: dict[JobId, Job] = {}
        self._bounded: dict[JobId, Instant] = {}  # until when jobs may wait for their first start
        self._blocked: dict[JobId, Instant] = {}  # until when jobs that wait for no other may be blocked
        self._entered: set[JobId] = set()  # jobs that have entered the wait queue in time
        self._decided_at: Instant | None = None
        self._late: dict[JobId, Instant] = {}  # since which decision; one more decision may follow at once

    def restarted(self) -> None:
        """Begin with a koalad that has decided nothing yet."""
        self._decided_at, self._late = None, {}

    def committed(self, change: Change) -> None:
        given_back: dict[JobId, set[int]] = {}
        for line in change.history:
            if line.kind == HistoryKind.JOB_CLAIMED:
                self._claimed_at[line.job] = line.at
            elif line.kind == HistoryKind.COMPONENT_GIVEN_BACK:
                given_back.setdefault(line.job, set()).add(int(line.details["component"]))
        for job in change.jobs:
            enters = job.state is JobState.CLAIMING and job.barrier_wait is not None and job.id not in self._claiming
            if enters and (left := self._left_to_hold(job)) is not None:
                promise(left > 0, Promise.HELD, "job", job.id, "enters queues, but may hold nothing more there")
            if job.id in given_back and job.id in self._claiming:
                _check_given_back(self._claiming[job.id], job, given_back[job.id])
            if job.state is JobState.CLAIMING:
                self._claiming[job.id] = job
            else:
                self._claiming.pop(job.id, None)
            self._check_begin(job)
            if job.request.expires is not None and job.state in _UNSTARTED and not job.released_before:
                self._bounded[job.id] = job.request.expires.of(job.submitted_at)
            else:
                self._bounded.pop(job.id, None)

    def passed(self, now: Instant) -> None:
        """Check that no time-out had passed for a job that koalad's last decision left unchanged."""
        decided_at, self._decided_at = self._decided_at, now
        if decided_at is None:
            return
        before, self._late = self._late, {}
        for job in self._claiming.values():
            if (ends := self._used_up(job)) is not None and decided_at > ends:
                soon = self._is_soon(before, job.id, decided_at)
                promise(soon, Promise.HELD, "job", job.id, "holds more than it may, since", ends)
            for what, ends in self._ends(job):
                if decided_at > ends:
                    soon = self._is_soon(before, job.id, decided_at)
                    promise(soon, Promise.CLAIM, "job", job.id, "holds its claim past its", what, "time, until", ends)
        for number, ends in self._bounded.items():
            if decided_at > ends:
                soon = self._is_soon(before, number, decided_at)
                promise(soon, Promise.EXPIRES, "job", number, "was to start by", ends)

        for number, begins in self._blocked.items():
            if decided_at > begins:
                soon = self._is_soon(before, number, decided_at)
                promise(soon, Promise.BEGINS, "job", number, "is blocked past", begins)

    def _check_begin(self, job: Job) -> None:
        """Check that a job with a `begin` is blocked until then. Another one that it waits for may block it longer."""
        self._blocked.pop(job.id, None)
        if job.request.begin is None:
            return
        begins = _begins(job)
        enters = Instant(begins - (job.request.claim_before or 0))
        if job.state is JobState.BLOCKED and not job.request.after:
            self._blocked[job.id] = enters
        if job.state not in (JobState.WAITING, JobState.CLAIMING, JobState.RUNNING) or self._decided_at is None:
            return
        first = begins if job.state is JobState.RUNNING else enters
        if job.state is JobState.RUNNING or job.id not in self._entered:  # later koalad's clock may jump back
            promise(self._decided_at >= first, Promise.BEGINS, "job", job.id, "is", job.state, "before", first)
        self._entered.add(job.id)

    def _is_soon(self, before: dict[JobId, Instant], job: JobId, decided_at: Instant) -> bool:
        since = self._late[job] = before.get(job, decided_at)
        return decided_at <= since + _SLACK

    def _ends(self, job: Job) -> Iterator[tuple[str, Instant]]:
        """Yield the time-outs: of the claim while a batch job has not started; then of the barrier.

        The barrier's counts from the first component there or from the last start. Patient jobs have no claim time-out.
        Where components may wait for those in queues, the barrier's counts from the last start. Before it, their wait
        counts from the first one that is there.
        """
        if job.barrier_wait is not None:
            yield from self._of_held(job, job.barrier_wait)
            return
        started = [each.allocated_at for each in job.present if each.allocated_at is not None]
        unstarted = any(each.allocated_at is None and not each.state.ended for each in job.present)
        if unstarted and not job.patient:
            yield "claim's", Instant(self._claimed_at[job.id] + self._claim)
        came = [each.at_barrier_at for each in job.present if each.at_barrier_at is not None]
        if came or (started and not unstarted):
            since = min(came) if came else max(started)
            yield "barrier's", Instant(max(since, _begins(job)) + self._barrier)

    def _left_to_hold(self, job: Job) -> int | None:
        limit = self._held_limit if job.request.held_limit is None else job.request.held_limit
        return None if limit is None else limit - job.held_processor_us

    def _used_up(self, job: Job) -> Instant | None:
        """Return when the components at barriers, which wait for others in queues, have used up the job's bound."""
        left = self._left_to_hold(job)
        if left is None or job.barrier_wait is None or _have_started(job):
            return None
        there = [each for each in job.present if each.state.at_barrier]
        came = sorted([(each.at_barrier_at, each.processors) for each in there if each.at_barrier_at is not None])
        rate, last = 0, Instant(0)  # processors at barriers, and since when there are as many
        for at, processors in came:
            left -= rate * (at - last)
            rate, last = rate + processors, at
        return Instant(last + left // rate) if rate else None

    def _of_held(self, job: Job, wait: Duration) -> Iterator[tuple[str, Instant]]:
        held = [each.at_barrier_at for each in job.present if each.state.at_barrier and each.at_barrier_at is not None]
        if not _have_started(job):
            if held:
                yield "components'", Instant(max(min(held), _begins(job)) + wait)
            return
        started = [each.allocated_at for each in job.present if each.allocated_at is not None]
        if started:
            yield "barrier's", Instant(max(*started, _begins(job)) + self._barrier)


def _begins(job: Job) -> Instant:
    return Instant(0) if job.request.begin is None else job.request.begin.of(job.submitted_at)


def _have_started(job: Job) -> bool:
    needed = [each for each in job.present if not each.request.optional]
    return all(each.allocated_at is not None and not each.state.ended for each in needed)


def _check_given_back(before: Job, job: Job, components: set[int]) -> None:
    """Check a commit in which components of a claiming job are given back, since others wait in queues."""
    counts = job.submission_failures, job.completion_failures
    uncounted = counts == (before.submission_failures, before.completion_failures) or job.state is not JobState.CLAIMING
    promise(uncounted, Promise.HELD, "job", job.id, "counts", *counts, "as components are given back")
    for component in components:
        attempt = job.attempt(component)
        started = attempt is not None and attempt.allocated_at is not None
        promise(started, Promise.HELD, "job", job.id, "gives back component", component, "which is in a queue")


def _with_jitter(limit: Duration) -> Duration:
    """Return the limit plus a tenth, the most that koalad adds so that several koalads do not act in step."""
    return Duration(limit + limit // 10 + _SLACK)
