"""What follows for jobs from what has changed and from time: releases, time-outs, ends, and circles that are broken."""

from koalapy.coallocation import absence, barrier, finishing, guard, stopping
from koalapy.coallocation.moments import next_moment
from koalapy.coallocation.runlist import RunList
from koalapy.information.kis import Information
from koalapy.model.alarms import Alarms
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Outcome
from koalapy.model.records import Records
from koalapy.model.settings import Settings
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant

_NEVER_AGAIN = 1, 0  # a Launcher is not tried again: its sweep has others


class FollowUps:
    """Of the jobs of `records`, whose indices `run_list` and `at_barrier` are. Nothing follows of what has not changed,
    but by time.
    """

    def __init__(
        self,
        records: Records,
        settings: Settings,
        information: Information,
        run_list: RunList,
        at_barrier: barrier.AtBarrier,
    ) -> None:
        self._records, self._settings = records, settings
        self._information, self._run_list, self._at_barrier = information, run_list, at_barrier
        self._limits = settings.max_submission_failures, settings.max_completion_failures
        self._alarms = Alarms()
        for identity in records.jobs:
            self._set_alarm(Instant(0), identity)

    def wakeup(self) -> Instant | None:
        """When time alone changes something for a job; None: never."""
        return self._alarms.next()

    def rouse(self, cluster: str) -> None:
        """Whether the cluster is in reach matters to every job that lives there."""
        for job, _ in self._records.live(cluster):
            self._run_list.stir(job.id)

    def end_session(self, cluster: str) -> None:
        """What its wrappers have said counts no more where it must be true now."""
        self._at_barrier.end_session(cluster)
        self.rouse(cluster)

    def came(self, attempt: AttemptId) -> None:
        """Its wrapper says that it is at its barrier, perhaps again: its job may be waiting for no more than that."""
        found = self._records.component(attempt)
        if found is None or found[1].state is not ComponentState.AT_BARRIER or found[1].cluster is None:
            return
        self._at_barrier.add(attempt, found[1].cluster)
        self._run_list.stir(attempt.job)

    def ring(self, now: Instant) -> bool:
        """Jobs whose moment has come are to be followed up; whether one that waits in the queue is among them."""
        waited = False
        for identity in self._alarms.ring(now):
            self._run_list.stir(identity)
            waited |= self._records.jobs[identity].state.queued
        return waited

    def follow_up(self, now: Instant) -> bool:
        """Of what has changed since the last time, by the last follow-up too; whether a job has come to its outcome."""
        reachable = self._information.reachable
        restless = sorted(self._run_list.restless)
        self._run_list.restless.clear()
        settled = False
        for identity in restless:
            job = self._records.jobs[identity]
            if job.state.active and job.runner is None:
                settled |= self._follow_up_job(now, identity, reachable)
        if self._information.promises.moved or not self._run_list.split.keys().isdisjoint(restless):
            settled |= self._break_circles(now, reachable)  # made by a measurement, or by a change of a job in it
        return settled

    def set_alarms(self, now: Instant) -> None:
        """Of what has changed since they were last set."""
        for identity in self._run_list.unset:
            self._set_alarm(now, identity)
        self._run_list.unset.clear()

    def _follow_up_job(self, now: Instant, identity: JobId, reachable: frozenset[str]) -> bool:
        records, settings = self._records, self._settings
        deadline = barrier.deadline(records.jobs[identity], settings)
        if deadline is not None and now >= deadline:
            barrier.time_out(records, settings, now, records.jobs[identity], self._at_barrier)
        barrier.release_if_whole(records, now, records.jobs[identity], self._at_barrier)
        absence.lost(records, settings, now, records.jobs[identity], reachable, self._information)
        finishing.finish_if_over(records, now, records.jobs[identity])
        return self._settle(now, identity, reachable)

    def _settle(self, now: Instant, identity: JobId, reachable: frozenset[str]) -> bool:
        job = self._records.jobs[identity]
        if job.state is not JobState.STOPPING:
            return False
        if not all(stopping.can_be_ended(component, reachable) for component in job.live):
            job = stopping.owe_what_cannot_be_ended(self._records, now, job, reachable)
        if job.live:
            return False
        limits = self._limits if job.glide is None else _NEVER_AGAIN
        stopping.settle(self._records, now, job, *limits)
        return True

    def _break_circles(self, now: Instant, reachable: frozenset[str]) -> bool:
        known, split = self._information.clusters, self._run_list.split
        settled = False
        while (younger := guard.job_to_give_back(self._records, known, split)) is not None:
            stopping.stop(self._records, now, younger, Outcome.GIVE_BACK, guard.GIVEN_BACK)
            settled |= self._settle(now, younger.id, reachable)
        return settled

    def _set_alarm(self, now: Instant, identity: JobId) -> None:
        moment = next_moment(now, self._records.jobs[identity], self._settings, self._information)
        self._alarms.set(identity, moment)
