"""The run list's step: it releases, completes and stops jobs, applies their time-outs, and breaks deadlocks."""

import heapq

from koalapy.attempts import missing
from koalapy.attempts.cancel import can_be_cancelled
from koalapy.broker.wait_deadlines import wait_deadlines
from koalapy.coallocation import barrier, completion, deadlock
from koalapy.coallocation.lowering import lower, lowered_from
from koalapy.coallocation.retries import apply_outcome
from koalapy.coallocation.stop import detach_what_cannot_be_cancelled, stop_job
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.identity import JobId
from koalapy.model.job import Job, Outcome
from koalapy.model.units import Instant

_FEW = 64  # stale entries of the heap that are not worth a new one


class RunListStep:
    """The step over the run list. It examines only jobs that changed or whose timer expired; each job has one timer."""

    def __init__(self, core: Core) -> None:
        self._timers = JobTimers()
        for identity, job in core.records.jobs.items():
            self._timers.set(identity, _next_moment(core, Instant(0), job))

    def wakeup(self) -> Instant | None:
        """Return the instant at which time alone changes something for a job; None if there is no such instant."""
        return self._timers.next()

    def fire_due(self, core: Core, now: Instant) -> bool:
        """Mark the jobs whose timers have expired. Return whether one of them is in the wait queue."""
        waited = False
        for identity in self._timers.ring(now):
            core.run_list.mark_dirty(identity)
            waited |= core.records.jobs[identity].state.queued
        return waited

    def end_lost(self, core: Core, now: Instant) -> None:
        """End the attempts of dirty jobs that have been missing for so long that they count as lost."""
        run_list = core.run_list
        for identity in sorted(run_list.missing.keys() & run_list.dirty.keys()):
            for attempt in core.records.jobs[identity].live:
                if attempt.unknown_since is not None:
                    missing.end_lost(core, now, attempt)

    def run(self, core: Core, now: Instant) -> None:
        """Process every job marked dirty since the previous call, also by that call."""
        run_list, jobs = core.run_list, core.records.jobs
        if not run_list.dirty and not core.information.commitments.dirty:
            return
        dirty = sorted(run_list.dirty) if len(run_list.dirty) > 1 else list(run_list.dirty)
        run_list.dirty.clear()
        for identity in dirty:
            job = jobs[identity]
            if job.request.site is not None:
                continue  # its site reports how it is
            if job.state.active and job.flow is None:
                _examine(core, now, job)
            elif job.state.queued and (due := lowered_from(job, core.settings)) is not None and now >= due:
                lower(core, now, job, "wait")
        if len(run_list.split) > 1 and (
            core.information.commitments.dirty or not run_list.split.keys().isdisjoint(dirty)
        ):
            _break_deadlocks(core, now)  # a deadlock results from a measurement, or from a change of a job in it

    def set_timers(self, core: Core, now: Instant) -> None:
        """Set the timer of every job that changed since the previous call."""
        jobs, run_list = core.records.jobs, core.run_list
        if not run_list.timers_dirty:
            return
        for identity in run_list.timers_dirty:
            self._timers.set(identity, _next_moment(core, now, jobs[identity]))
        run_list.timers_dirty.clear()


def _examine(core: Core, now: Instant, job: Job) -> None:
    """Time out, release, complete or settle the job; each part may lead to the next one."""
    if job.state.claiming:
        deadline = barrier.deadline(job, core.settings)
        if deadline is not None and now >= deadline:
            barrier.time_out(core, now, job)
        barrier.release_if_whole(core, now, job)
    if job.state.running:
        completion.finish_if_ended(core, now, job)
    if job.state.stopping:
        _settle(core, now, job)


def _settle(core: Core, now: Instant, job: Job) -> None:
    """Apply the outcome of a stopping job once nothing of the job is left; then its processors are free."""
    live = job.live
    if live:
        reachable = core.information.reachable
        if all([can_be_cancelled(attempt, reachable) for attempt in live]):  # noqa: C419 — faster
            return None
        detach_what_cannot_be_cancelled(core, now, job)
        if job.live:
            return None
    core.mark_dirty()
    if completion.ended_first(job):
        completion.complete(core, now, job)
        return _examine(core, now, job)
    return apply_outcome(core, now, job)


def _break_deadlocks(core: Core, now: Instant) -> None:
    while (younger := deadlock.job_to_give_back(core, core.run_list.split)) is not None:
        stop_job(core, now, younger, Outcome.GIVE_BACK, deadlock.GIVEN_BACK)
        _settle(core, now, younger)


def _next_moment(core: Core, now: Instant, job: Job) -> Instant | None:
    """Return the instant at which time alone changes something for the job; None if there is no such instant.

    For a job in the run list, the instant may have passed.
    """
    state = job.state
    if job.request.site is not None or not (state.claiming or state.queued or core.run_list.missing):
        return None
    if state.queued:
        ends = wait_deadlines(job, core.settings)
        if (due := lowered_from(job, core.settings)) is not None:
            ends = [*ends, due]
        return min([moment for moment in ends if moment > now]) if ends and max(ends) > now else None
    earliest = barrier.deadline(job, core.settings) if state.claiming else None
    if job.id in core.run_list.missing:
        for attempt in job.live:
            if attempt.unknown_since is not None and (lost_at := _lost_at(core, attempt)) is not None:
                earliest = lost_at if earliest is None else min(earliest, lost_at)
    return earliest


def _lost_at(core: Core, attempt: Attempt) -> Instant | None:
    return missing.lost_at(attempt, core.settings) if core.information.is_connected(attempt.cluster) else None


class JobTimers:
    """The next instant of each job at which time alone changes something, the earliest first.

    An entry of the heap counts while it equals its job's instant; others are dropped when they reach the top.
    """

    def __init__(self) -> None:
        self._moments: dict[JobId, Instant] = {}
        self._heap: list[tuple[Instant, JobId]] = []

    def set(self, job: JobId, moment: Instant | None) -> None:
        """Set the instant of the job; None removes it."""
        if moment is None:
            self._moments.pop(job, None)
            return
        if moment == self._moments.get(job):
            return
        self._moments[job] = moment
        heapq.heappush(self._heap, (moment, job))
        if len(self._heap) > 2 * len(self._moments) + _FEW:
            self._heap = sorted((moment, job) for job, moment in self._moments.items())

    def next(self) -> Instant | None:
        """Return the earliest instant that is set; None if none is."""
        heap = self._heap
        while heap and self._moments.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def ring(self, now: Instant) -> list[JobId]:
        """Return the jobs whose instant is reached, the earliest first, and remove their instants."""
        due: list[JobId] = []
        while (moment := self.next()) is not None and moment <= now:
            job = heapq.heappop(self._heap)[1]
            del self._moments[job]
            due.append(job)
        return due
