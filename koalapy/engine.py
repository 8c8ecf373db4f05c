"""The pieces as one machine: events in, commands out. It never blocks, reads no clock, draws no random number."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from koalapy.broker.answers import Answers
from koalapy.broker.fit import Lack, lacks
from koalapy.broker.room import Room
from koalapy.coallocation import barrier, claim, guard, running, stopping
from koalapy.coallocation.recovery import Unheard
from koalapy.coallocation.runlist import RunList
from koalapy.coallocation.whereabouts import FirstContact, Whereabouts, ahead, doubtful
from koalapy.information.kis import Information, View
from koalapy.information.watching import Watching
from koalapy.model.alarms import Alarms
from koalapy.model.change import Snapshot
from koalapy.model.errors import Reason
from koalapy.model.events import (
    CancelRequested,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    ComponentGone,
    ComponentReported,
    ComponentSeen,
    ComponentSubmitted,
    Event,
    FilesMoved,
    FilesStaged,
    HoldRequested,
    JobSubmitted,
    LaunchersSeen,
    LauncherSuspected,
    MeasurementFailed,
    OutputCollected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    ReleaseRequested,
    StoreRestored,
    SubmissionFailed,
)
from koalapy.model.identity import JobId
from koalapy.model.job import Component, Job, Outcome
from koalapy.model.records import Records, Step
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.sweep import Runner
from koalapy.model.units import Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scavenging.launchers import Launchers
from koalapy.scavenging.scavenger import Scavenger
from koalapy.scheduler.ahead import Overtaken
from koalapy.scheduler.queue import WaitQueue
from koalapy.scheduler.schedule import Claim, Policies, Reject, queues_since, schedule


class Engine:
    """koalapy's decisions over one store's jobs and one grid's clusters (DESIGN, section 4).

    After `handle` the caller commits the step's records before it does any of the step's commands. After a restart a
    new engine is made of the store's snapshot; the links then tell it what is true on the clusters.
    """

    def __init__(
        self,
        settings: Settings,
        policies: Policies,
        snapshot: Snapshot,
        sweep_policies: ScavengingPolicies | None = None,
    ) -> None:
        self._settings = settings
        self._policies = policies
        self._information = Information(settings.clusters, snapshot.instance)
        self._run_list = RunList()
        self._queue = WaitQueue()
        launchers = Launchers()
        self._records = Records(snapshot, (self._information.promises, self._run_list, self._queue, launchers))
        self._scavenger = Scavenger(
            self._records, settings, self._information, launchers, sweep_policies or ScavengingPolicies()
        )
        self._alarms = Alarms()
        self._answers = Answers(policies.placement)
        self._passed: tuple[Room, int] | None = None  # what the last pass read
        self._room_of: tuple[int, Room] | None = None
        self._unheard = Unheard(snapshot.jobs)
        self._whereabouts = Whereabouts(each.name for each in settings.clusters)
        self._first_contact = FirstContact((each.name for each in settings.clusters), snapshot.jobs)
        self._watching = Watching()
        self._dirty = True
        for identity in self._records.jobs:
            self._set_alarm(Instant(0), identity)

    # ---- what the driver calls

    def handle(self, now: Instant, events: Sequence[Event]) -> Step:
        """Take a batch of events; with none, whatever time has brought about."""
        for event in events:
            self._unheard.hear(self._records, now, event)
            self._dirty |= bool(self._handlers[type(event)](self, now, event))
        self._ring(now)
        self._follow_up(now)
        self._dirty |= self._whereabouts.settle(self._records, now)
        if self._dirty and not self._first_contact.awaited(now):
            self._dirty = False
            self._schedule(now)
        self._scavenger.step(now)
        for identity in self._run_list.restless:
            self._set_alarm(now, identity)
        for word in self._watching.words(self._information, bool(self._queue), self._run_list.claimed_on):
            self._records.say(word)
        return self._records.take()

    def next_wakeup(self) -> Instant | None:
        """When time alone changes something; None: never."""
        moments = (self._alarms.next(), self._first_contact.wakeup(), self._scavenger.wakeup())
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- what the API asks; answers are of this instant, and nothing is changed

    def views(self, now: Instant) -> list[View]:
        return self._information.views(now)

    def explain(self, now: Instant, job: JobId) -> list[Lack]:
        """What each cluster lacks for each component of a waiting job."""
        found = self._records.jobs.get(job)
        if found is None or found.runner is not None:
            return []
        return lacks(dict(enumerate(found.request.components)), self.views(now))

    def job(self, job: JobId) -> Job | None:
        return self._records.jobs.get(job)

    @property
    def known(self) -> Information:
        return self._information

    @property
    def unheard(self) -> list[str]:
        """Clusters that have yet to say what became of doubtful jobs (see Counters); empty where there are none."""
        return self._whereabouts.unheard if doubtful(self._records) else []

    @property
    def first_contact(self) -> FirstContact:
        """Whom the wait queue of before waits for."""
        return self._first_contact

    @property
    def records(self) -> Records:
        return self._records

    @property
    def scavenger(self) -> Scavenger:
        return self._scavenger

    @property
    def queue(self) -> WaitQueue:
        return self._queue

    # ---- events from users; each handler says whether the scheduling pass must look again

    def _on_submitted(self, now: Instant, event: JobSubmitted) -> bool:
        if event.key and self._records.has_key(event.owner, event.key):
            return False
        space = event.request.parameters
        components = event.request.components if space is None else ()
        job = Job(
            id=self._records.new_job_id(),
            owner=event.owner,
            request=event.request,
            state=JobState.WAITING,
            place=self._records.tail(),
            submitted_at=now,
            waiting_since=now,
            components=tuple(Component(index=i, request=each) for i, each in enumerate(components)),
            key=event.key,
            runner=Runner(count=space.count) if space is not None else None,
        )
        self._records.put(job)
        self._records.note(now, job.id, "job_submitted", owner=job.owner, type=str(job.request.type))
        return True

    def _on_cancel(self, now: Instant, event: CancelRequested) -> bool:
        job = self._records.jobs.get(event.job)
        if job is None or job.state.final:
            return False
        if not job.state.active:
            self._records.put(job.to(JobState.CANCELLED, finished_at=now, reason=CANCELLED))
            self._records.note(now, job.id, "job_cancelled")
            return True
        job = self._records.put(replace(job, forced=job.forced or event.force))
        self._records.note(now, job.id, "cancel_requested", force=event.force)
        stopping.stop(self._records, now, job, Outcome.CANCELLED, CANCELLED)
        return True

    def _on_hold(self, now: Instant, event: HoldRequested) -> bool:
        """A job that claims gives back and is held; one that runs is left alone, but for a sweep, whose nodes go."""
        job = self._records.jobs.get(event.job)
        if job is not None and job.state.queued:
            self._records.put(job.to(JobState.HELD))
            self._records.note(now, job.id, "job_held")
        elif job is not None and _may_stop(job):
            stopping.stop(self._records, now, job, Outcome.HOLD)
        return job is not None

    def _on_release(self, now: Instant, event: ReleaseRequested) -> bool:
        job = self._records.jobs.get(event.job)
        if job is None or job.state is not JobState.HELD:
            return False
        self._records.put(job.to(JobState.WAITING, waiting_since=now))
        self._records.note(now, job.id, "job_unheld")
        return True

    # ---- events from clusters

    def _on_restored(self, now: Instant, event: StoreRestored) -> bool:
        self._first_contact.told()
        self._records.count(ahead(self._records.counters))
        self._scavenger.restored(now)
        for job in doubtful(self._records):
            self._records.note(now, job.id, "store_restored")
        return True

    def _on_connected(self, now: Instant, event: ClusterConnected) -> bool:
        """Of a cluster that is connected: its KCM can do more by now; what it has said before still holds."""
        again = self._information.is_connected(event.cluster)
        self._information.connected(event.cluster, event.version)
        self._first_contact.met(event.cluster)
        if event.recalled is not None:
            self._whereabouts.hear(event.cluster, event.recalled)
        self._rouse(event.cluster)
        if not again:
            running.asked_anew(self._records, now, event.cluster)
        self._scavenger.connected(event.cluster)
        self._watching.connected(event.cluster)
        return False

    def _on_lost(self, now: Instant, event: ClusterLost) -> bool:
        self._information.lost(event.cluster, event.reason)
        self._first_contact.met(event.cluster)
        self._rouse(event.cluster)
        running.out_of_reach(self._records, now, event.cluster)
        return True

    def _on_measured(self, now: Instant, event: ClusterMeasured) -> bool:
        self._information.measured(event.cluster, event.state)
        self._scavenger.measured(event.cluster)
        return True

    def _on_measurement_failed(self, now: Instant, event: MeasurementFailed) -> bool:
        self._information.measurement_failed(event.cluster, event.reason)
        return False

    def _on_files(self, now: Instant, event: FilesMoved | FilesStaged) -> bool:
        claim.files_moved(self._records, now, event)
        return False

    def _on_component_submitted(self, now: Instant, event: ComponentSubmitted) -> bool:
        claim.submitted(self._records, now, event)
        return False

    def _on_submission_failed(self, now: Instant, event: SubmissionFailed) -> bool:
        claim.submission_failed(self._records, self._settings, now, event, self._information)
        return True

    def _on_seen(self, now: Instant, event: ComponentSeen) -> bool:
        running.seen(self._records, now, event, self._information)
        return False

    def _on_reported(self, now: Instant, event: ComponentReported) -> bool:
        running.reported(self._records, now, event, self._information)
        return event.phase == "ended"

    def _on_gone(self, now: Instant, event: ComponentGone) -> bool:
        stopping.gone(self._records, now, event)
        return True

    def _on_collected(self, now: Instant, event: OutputCollected) -> bool:
        running.collected(self._records, now, event)
        return False

    # ---- events from Launchers: nothing of the wait queue depends on them

    def _on_parameters_ended(self, now: Instant, event: ParametersEnded) -> bool:
        self._scavenger.ended(event)
        return False

    def _on_parameters_returned(self, now: Instant, event: ParametersReturned) -> bool:
        self._scavenger.returned(event)
        return False

    def _on_parameters_wanted(self, now: Instant, event: ParametersWanted) -> bool:
        self._scavenger.wanted(event)
        return False

    def _on_launchers_seen(self, now: Instant, event: LaunchersSeen) -> bool:
        self._scavenger.seen(event)
        return False

    def _on_suspected(self, now: Instant, event: LauncherSuspected) -> bool:
        self._scavenger.suspected(event)
        return False

    _handlers: ClassVar[dict[type, Callable[..., bool]]] = {
        JobSubmitted: _on_submitted,
        CancelRequested: _on_cancel,
        HoldRequested: _on_hold,
        ReleaseRequested: _on_release,
        StoreRestored: _on_restored,
        ClusterConnected: _on_connected,
        ClusterLost: _on_lost,
        ClusterMeasured: _on_measured,
        MeasurementFailed: _on_measurement_failed,
        FilesMoved: _on_files,
        FilesStaged: _on_files,
        ComponentSubmitted: _on_component_submitted,
        SubmissionFailed: _on_submission_failed,
        ComponentSeen: _on_seen,
        ComponentReported: _on_reported,
        ComponentGone: _on_gone,
        OutputCollected: _on_collected,
        ParametersEnded: _on_parameters_ended,
        ParametersReturned: _on_parameters_returned,
        ParametersWanted: _on_parameters_wanted,
        LaunchersSeen: _on_launchers_seen,
        LauncherSuspected: _on_suspected,
    }

    # ---- what follows from events and from time

    def _ring(self, now: Instant) -> None:
        """Jobs whose moment has come: those of the run list are followed up, for the others the pass looks again."""
        for identity in self._alarms.ring(now):
            self._run_list.restless[identity] = None
            if self._records.jobs[identity].state.queued:
                self._dirty, self._passed = True, None

    def _rouse(self, cluster: str) -> None:
        """Whether the cluster is in reach matters to every job that lives there."""
        for job, _ in self._records.live(cluster):
            self._run_list.restless[job.id] = None

    def _follow_up(self, now: Instant) -> None:
        """Of what has changed since the last time, by the last follow-up too; of nothing else anything can follow."""
        reachable = self._information.reachable
        restless = sorted(self._run_list.restless)
        self._run_list.restless.clear()
        for identity in restless:
            moment = self._set_alarm(now, identity)
            job = self._records.jobs[identity]
            if job.state.active and job.runner is None:
                self._follow_up_job(now, identity, reachable, moment is not None and moment <= now)
        if self._information.promises.moved or not self._run_list.split.keys().isdisjoint(restless):
            self._break_circles(now, reachable)  # what makes one is a measurement, or a change of a job in it

    def _follow_up_job(self, now: Instant, identity: JobId, reachable: frozenset[str], due: bool) -> None:
        """`due`: time alone changes something for it now."""
        records, settings = self._records, self._settings
        deadline = barrier.deadline(records.jobs[identity], settings) if due else None
        if deadline is not None and now >= deadline:
            barrier.time_out(records, settings, now, records.jobs[identity])
        barrier.release_if_whole(records, now, records.jobs[identity], reachable)
        if due:
            running.lost(records, settings, now, records.jobs[identity], reachable, self._information)
        running.finish_if_over(records, now, records.jobs[identity])
        self._settle(now, identity, reachable)

    def _settle(self, now: Instant, identity: JobId, reachable: frozenset[str]) -> None:
        job = self._records.jobs[identity]
        if job.state is not JobState.STOPPING:
            return
        if any(component.cluster not in reachable for component in job.live):
            job = stopping.owe_what_is_out_of_reach(self._records, now, job, reachable)
        if not job.live:
            limits = self._limits if job.glide is None else _NEVER_AGAIN
            stopping.settle(self._records, now, job, *limits)
            self._dirty = True

    @property
    def _limits(self) -> tuple[int, int]:
        return self._settings.max_submission_failures, self._settings.max_completion_failures

    def _break_circles(self, now: Instant, reachable: frozenset[str]) -> None:
        known, split = self._information.clusters, self._run_list.split
        while (younger := guard.job_to_give_back(self._records, known, split)) is not None:
            stopping.stop(self._records, now, younger, Outcome.GIVE_BACK, guard.GIVEN_BACK)
            self._settle(now, younger.id, reachable)

    def _schedule(self, now: Instant) -> None:
        if not self._queue:
            return
        room, queueing = self._room(now), self._policies.queueing
        if (room, self._queue.changes) == self._passed:
            return  # it would decide nothing, as the last pass did
        self._passed = room, self._queue.changes
        for decision in schedule(now, self._queue, room, self._answers, self._settings, queueing):
            self._carry_out(now, decision)

    def _room(self, now: Instant) -> Room:
        """The same as long as no cluster has more or less of it."""
        views = self.views(now)
        known = self._room_of
        if known is None or known[0] != self._information.availability:
            room = Room(views, known[1] if known is not None else None)
            known = self._room_of = self._information.availability, room
        return known[1]

    def _carry_out(self, now: Instant, decision: Claim | Reject | Overtaken) -> None:
        job = self._records.jobs[decision.job]
        match decision:
            case Claim(_, allocation, patient):
                claim.claim(self._records, self._settings, now, job, allocation, patient)
            case Reject(_, reason):
                self._records.put(job.to(JobState.FAILED, reason=reason, finished_at=now))
                self._records.note(now, job.id, "job_failed", code=reason.code, message=str(reason))
            case Overtaken(_, times):
                self._records.put(replace(job, overtaken=job.overtaken + times))

    def _set_alarm(self, now: Instant, identity: JobId) -> Instant | None:
        moment = self._next_moment(now, self._records.jobs[identity])
        self._alarms.set(identity, moment)
        return moment

    def _next_moment(self, now: Instant, job: Job) -> Instant | None:
        """When time alone changes something for the job."""
        if job.state.queued and job.runner is None:
            return min((moment for moment in self._waits_for(job) if moment > now), default=None)
        if not job.state.active:
            return None
        moments = [self._lost_at(component) for component in job.components if component.unknown_since is not None]
        moments.append(barrier.deadline(job, self._settings))
        return min((moment for moment in moments if moment is not None), default=None)

    def _waits_for(self, job: Job) -> list[Instant]:
        since = queues_since(job, self._settings)
        return [until for _, until in job.excluded] + ([since] if since is not None else [])

    def _lost_at(self, component: Component) -> Instant | None:
        in_reach = not component.gone and self._information.is_connected(component.cluster)
        return running.lost_at(component, self._settings) if in_reach else None


def _may_stop(job: Job) -> bool:
    """Whether it can be held though it has processors."""
    if job.glide is not None:
        return False  # its sweep can
    return job.state is JobState.CLAIMING or (job.runner is not None and job.state is JobState.RUNNING)


_NEVER_AGAIN = 1, 0  # a Launcher is not tried again: its sweep has others
CANCELLED = Reason("cancelled", "request", "It was cancelled by its user.", "")
