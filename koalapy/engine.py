"""The pieces as one machine: events in, commands out. It never blocks, reads no clock, draws no random number."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from koalapy.broker.fit import Lack, lacks
from koalapy.coallocation import absence, claim, hearing, users
from koalapy.coallocation.barrier import AtBarrier, deadline
from koalapy.coallocation.followup import FollowUps
from koalapy.coallocation.pruning import Pruning
from koalapy.coallocation.recovery import Unheard
from koalapy.coallocation.runlist import RunList
from koalapy.coallocation.speaking import Speaking
from koalapy.coallocation.whereabouts import FirstContact, Whereabouts, ahead, doubtful
from koalapy.information.kis import Information, View
from koalapy.information.watching import Watching
from koalapy.model.change import Snapshot
from koalapy.model.events import (
    AttemptForgotten,
    AttemptsAccounted,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    ComponentReported,
    Event,
    MeasurementFailed,
    OutputCollected,
    OutputKept,
    ParametersEnded,
    PruneRequested,
    StoreRestored,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.records import Records, Step
from koalapy.model.settings import Settings
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scavenging.hearing import EVENTS as OF_LAUNCHERS
from koalapy.scavenging.hearing import Told
from koalapy.scavenging.launchers import Launchers
from koalapy.scavenging.scavenger import Scavenger
from koalapy.scheduler.ahead import Overtaken
from koalapy.scheduler.passes import Passes
from koalapy.scheduler.queue import WaitQueue
from koalapy.scheduler.schedule import Claim, Decision, Policies, Reject


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
        self._information = Information(settings.clusters, snapshot.instance, settings.settles)
        self._run_list, self._queue, launchers = RunList(), WaitQueue(), Launchers()
        self._at_barrier = AtBarrier()
        lives = self._information.promises, self._at_barrier
        self._records = Records(snapshot, (self._run_list, self._queue, launchers), lives)
        newest = JobId(snapshot.counters.next_job - 1)
        self._passes = Passes(self._queue, self._information, settings, policies, newest)
        self._follow_ups = FollowUps(self._records, settings, self._information, self._run_list, self._at_barrier)
        self._scavenger = Scavenger(
            self._records,
            settings,
            self._information,
            launchers,
            sweep_policies or ScavengingPolicies(),
            snapshot.learned,
        )
        names = [each.name for each in settings.clusters]
        self._pruning = Pruning(self._records, self._information, snapshot.outbox)
        self._unheard = Unheard(snapshot.jobs)
        self._whereabouts = Whereabouts(names)
        self._first_contact = FirstContact(names, snapshot.jobs)
        self._watching = Watching()
        self._speaking = Speaking()
        self._came_before: dict[str, list[AttemptId]] = {}  # see `inherit`
        self._dirty = True  # something has changed that the scheduling pass reads

    # ---- what the driver calls

    def inherit(self, before: "Engine") -> None:
        """Take over what no store keeps, and no cluster says again, of the engine that this one replaces.

        Its sessions go on: who had come to a barrier in one of them is there, once the cluster counts as connected.
        """
        self._speaking = before.speaking
        self._pruning.inherit(before.pruning)
        self._information.inherit(before.known)
        self._passes.newest = before.newest_before
        self._came_before = {each.name: before.at_barrier.on(each.name) for each in self._settings.clusters}

    def handle(self, now: Instant, events: Sequence[Event]) -> Step:
        """Take a batch of events; with none, whatever time has brought about."""
        for each in events:
            event = self._speaking.heed(self._records, each)
            if event is None:
                continue
            self._unheard.hear(self._records, now, event)
            self._dirty |= bool(self._handlers[type(event)](self, now, event))
        if self._follow_ups.ring(now):
            self._passes.look_again()
            self._dirty = True
        self._dirty |= self._follow_ups.follow_up(now)
        self._dirty |= self._whereabouts.settle(self._records, now)
        if self._dirty and not self._first_contact.awaited(now):
            self._dirty = False
            for decision in self._passes.decide(now):
                self._carry_out(now, decision)
        self._scavenger.step(now)
        self._follow_ups.set_alarms(now)
        for word in self._watching.words(self._information, bool(self._queue), self._run_list.claimed_on):
            self._records.say(word)
        step = self._records.take()
        self._pruning.note_commands(step.commands)
        return step

    def next_wakeup(self) -> Instant | None:
        """When time alone changes something; None: never."""
        moments = (self._follow_ups.wakeup(), self._first_contact.wakeup(), self._scavenger.wakeup())
        return min((moment for moment in moments if moment is not None), default=None)

    def _carry_out(self, now: Instant, decision: Decision) -> None:
        job = self._records.jobs[decision.job]
        match decision:
            case Claim(_, allocation, patient):
                claim.claim(self._records, self._settings, now, job, allocation, patient)
            case Reject(_, reason):
                self._records.put(job.to(JobState.FAILED, reason=reason, finished_at=now))
                self._records.note(now, job.id, "job_failed", code=reason.code, message=str(reason))
            case Overtaken(_, times):
                self._records.put(job.but(overtaken=job.overtaken + times))

    # ---- what the API asks; answers are of this instant, and nothing is changed

    def views(self, now: Instant) -> list[View]:
        return self._information.views(now)

    def explain(self, now: Instant, job: JobId) -> list[Lack]:
        """What each cluster lacks for each component of a waiting job."""
        found = self._records.jobs.get(job)
        if found is None or found.runner is not None:
            return []
        return lacks(dict(enumerate(found.request.components)), self.views(now))

    def gives_back_at(self, job: Job) -> Instant | None:
        """When a job that claims gives its processors back if it was not released. None if no time runs."""
        return deadline(job, self._settings)

    def job(self, job: JobId) -> Job | None:
        return self._records.jobs.get(job)

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def known(self) -> Information:
        return self._information

    @property
    def at_barrier(self) -> AtBarrier:
        """Who is known to be at its barrier."""
        return self._at_barrier

    @property
    def unheard(self) -> list[str]:
        """Clusters that have yet to say what became of doubtful jobs (see Counters); empty where there are none."""
        return self._whereabouts.unheard if doubtful(self._records) else []

    @property
    def first_contact(self) -> FirstContact:
        """Whom the wait queue of before waits for."""
        return self._first_contact

    @property
    def speaking(self) -> Speaking:
        """Which clusters spoke of what is not theirs."""
        return self._speaking

    @property
    def records(self) -> Records:
        return self._records

    @property
    def scavenger(self) -> Scavenger:
        return self._scavenger

    @property
    def pruning(self) -> Pruning:
        return self._pruning

    @property
    def newest_before(self) -> JobId | None:
        """The last job that was there when koalad started."""
        return self._passes.newest

    @property
    def queue(self) -> WaitQueue:
        return self._queue

    # ---- events; each handler says whether the scheduling pass must look again

    def _on_asked(self, now: Instant, event: users.Asked) -> bool:
        return users.hear(self._records, now, event)

    def _on_component(self, now: Instant, event: Event) -> bool:
        look = hearing.hear(self._records, self._settings, self._information, now, event)
        if isinstance(event, ComponentReported) and event.phase == "at_barrier":
            self._follow_ups.came(event.attempt)
        elif isinstance(event, OutputCollected):
            self._pruning.collected(event.job)
        elif isinstance(event, OutputKept):
            self._pruning.collected(event.job.id)
        return look

    def _on_prune_requested(self, now: Instant, event: PruneRequested) -> bool:
        self._pruning.request(now, event)
        return False

    def _on_forgotten(self, now: Instant, event: AttemptForgotten) -> bool:
        self._pruning.forgotten(now, event)
        return False

    def _on_launcher(self, now: Instant, event: Told) -> bool:
        foreign = self._scavenger.hear(event)
        if foreign and isinstance(event, ParametersEnded):
            self._speaking.note_parameters(event.cluster, event.sweep, foreign)
        return False

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
        self._follow_ups.rouse(event.cluster)
        if not again:
            self._follow_ups.end_session(event.cluster)
            for attempt in self._came_before.pop(event.cluster, ()):
                found = self._records.component(attempt)
                if found is not None and found[1].state is ComponentState.AT_BARRIER:
                    self._follow_ups.came(attempt)
            absence.asked_anew(self._records, now, event.cluster)
        self._scavenger.connected(event.cluster)
        self._watching.connected(event.cluster)
        return False

    def _on_lost(self, now: Instant, event: ClusterLost) -> bool:
        self._information.lost(event.cluster, event.reason)
        self._first_contact.met(event.cluster)
        self._follow_ups.end_session(event.cluster)
        self._came_before.pop(event.cluster, None)
        absence.out_of_reach(self._records, now, event.cluster)
        return True

    def _on_measured(self, now: Instant, event: ClusterMeasured) -> bool:
        self._information.measured(event.cluster, event.state)
        self._scavenger.measured(event.cluster)
        return True

    def _on_measurement_failed(self, now: Instant, event: MeasurementFailed) -> bool:
        self._information.measurement_failed(event.cluster, event.reason)
        return True  # jobs that wait for this cluster may be passed now

    def _on_accounted(self, now: Instant, event: AttemptsAccounted) -> bool:
        for span in event.spans:
            self._records.account(replace(span, cluster=event.cluster))
        return False

    _handlers: ClassVar[dict[type, Callable[..., bool]]] = {
        **dict.fromkeys(users.EVENTS, _on_asked),
        **dict.fromkeys(hearing.EVENTS, _on_component),
        **dict.fromkeys(OF_LAUNCHERS, _on_launcher),
        AttemptForgotten: _on_forgotten,
        PruneRequested: _on_prune_requested,
        AttemptsAccounted: _on_accounted,
        StoreRestored: _on_restored,
        ClusterConnected: _on_connected,
        ClusterLost: _on_lost,
        ClusterMeasured: _on_measured,
        MeasurementFailed: _on_measurement_failed,
    }
