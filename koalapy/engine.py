"""The engine: events in, commands out. It never blocks, reads no clock and draws no random number."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from koalapy.attempts import batch_status, cancel, first_signs, launchers, missing, submission, wrapper_reports
from koalapy.broker.fit import Misfit, misfits
from koalapy.coallocation import (
    barrier,
    claim,
    clusters,
    completion,
    event_origin,
    hold,
    notifications,
    preempt,
    pruning,
    refusals,
    restored_store,
    retries,
    suspend,
    user_requests,
)
from koalapy.coallocation import step as run_list
from koalapy.coallocation.flows import prerequisites
from koalapy.core.core import Core
from koalapy.core.due import (
    ADS,
    ALL,
    DOUBTFUL,
    FACTS,
    KEPT_PILOTS,
    LAUNCHERS,
    LEASES,
    MISSING,
    NEIGHBOURS,
    NOTIFICATIONS,
    PASS,
    PILOTS,
    PREREQUISITES,
    REPEATED,
    REQUESTS,
    REVOKING,
    RUN_LIST,
    STARTUP,
    SUSPENDED,
    SWEEP_ENDS,
    SWEEPS,
    TIMERS,
)
from koalapy.information.kis import ClusterSummary
from koalapy.model.attempt import OwnerKind
from koalapy.model.change import Snapshot
from koalapy.model.commands import (
    CancelRequest,
    ChangeSentJob,
    CompareAds,
    DelegateRequest,
    EndLease,
    OfferLease,
    RejectRequest,
    ReportFree,
    ReportReceivedJob,
    ReturnLease,
    RevokeLease,
    SendJob,
    cluster_of,
)
from koalapy.model.events import (
    AdsCompared,
    AttemptCleanedUp,
    AttemptForgotten,
    AttemptsAccounted,
    AttemptStuck,
    AttemptSubmitted,
    BatchStatusSeen,
    CancelRequested,
    ClusterChanged,
    ClusterConnected,
    ClusterJoined,
    ClusterLeft,
    ClusterLost,
    ClusterMeasured,
    Event,
    FilesMoved,
    FilesStaged,
    HoldRequested,
    JobUnreadable,
    LaunchersSeen,
    LauncherSuspected,
    LeaseEndRequested,
    LeaseExamined,
    MeasurementFailed,
    NeighbourConnected,
    NeighbourJoined,
    NeighbourLeft,
    NeighbourLost,
    NotificationDue,
    NotificationTried,
    OutputCollected,
    OutputKept,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    PilotCloseRequested,
    PruneRequested,
    ReleaseRequested,
    StoreRestored,
    SubmissionFailed,
    WorkSubmitted,
    WrapperReported,
)
from koalapy.model.facts import CameToBarrier, Ended, LetGo, Refused, Started
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import Job, job_value
from koalapy.model.records import Records, Step
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.pilots import kept, lifecycle
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scavenging import black_holes, feeding, idle_nodes, parameters
from koalapy.scavenging import launchers as sweep_launchers
from koalapy.scavenging.scavenger import Scavenger
from koalapy.scheduler import vacating
from koalapy.scheduler.blocked_ahead import Overtaken
from koalapy.scheduler.passes import Passes
from koalapy.scheduler.schedule import Claim, ClaimChoice, Decision, EndChoices, Policies, Reject
from koalapy.sites import borrowing, joining, lending, neighbours, receiving, requests, revoking, sending

Reaction = Callable[[Core, Instant, Any], None]
RunStep = Callable[["Engine", Instant], bool | None]  # returns whether the step is due in the next batch too

REACTIONS: Mapping[type, tuple[Reaction, ...]] = MappingProxyType(
    {
        WorkSubmitted: (user_requests.on_work_submitted,),
        CancelRequested: (user_requests.on_cancel_requested,),
        HoldRequested: (user_requests.on_hold_requested,),
        ReleaseRequested: (user_requests.on_release_requested,),
        PilotCloseRequested: (lifecycle.on_close_requested,),
        FilesMoved: (claim.on_files_moved,),
        FilesStaged: (claim.on_files_moved,),
        AttemptSubmitted: (refusals.on_accepted, submission.on_submitted),
        SubmissionFailed: (submission.on_submission_failed,),
        BatchStatusSeen: (batch_status.on_seen, suspend.on_seen),
        WrapperReported: (restored_store.on_reported, wrapper_reports.on_reported),
        AttemptCleanedUp: (refusals.on_cleaned_up, cancel.on_cleaned_up),
        AttemptStuck: (cancel.on_cancel_stuck,),
        OutputCollected: (completion.on_output_collected, parameters.on_output_collected, pruning.on_output_collected),
        OutputKept: (completion.on_output_kept, pruning.on_output_kept),
        NotificationDue: (notifications.on_notification_due,),
        NotificationTried: (notifications.on_notification_tried,),
        PruneRequested: (pruning.on_prune_requested,),
        AttemptForgotten: (pruning.on_forgotten,),
        LaunchersSeen: (parameters.on_launchers_seen,),
        LauncherSuspected: (black_holes.on_suspected,),
        ParametersEnded: (parameters.on_ended,),
        ParametersReturned: (parameters.on_returned,),
        ParametersWanted: (feeding.on_parameters_wanted,),
        ClusterJoined: (clusters.on_joined, lifecycle.on_joined),
        ClusterChanged: (clusters.on_changed,),
        ClusterLeft: (
            parameters.on_cluster_left,
            clusters.on_left,
            pruning.on_cluster_left,
            borrowing.on_cluster_left,
        ),
        NeighbourJoined: (neighbours.on_joined,),
        NeighbourLeft: (neighbours.on_left,),
        NeighbourConnected: (neighbours.on_connected,),
        NeighbourLost: (neighbours.on_lost,),
        LeaseEndRequested: (neighbours.on_end_requested,),
        LeaseExamined: (lending.on_examined,),
        ReportFree: (neighbours.on_free_reported,),
        DelegateRequest: (requests.on_delegated,),
        CancelRequest: (lending.on_given_back,),
        ReturnLease: (lending.on_given_back,),
        RejectRequest: (borrowing.on_rejected,),
        OfferLease: (borrowing.on_offered,),
        RevokeLease: (borrowing.on_revoked,),
        EndLease: (borrowing.on_ended,),
        SendJob: (receiving.on_received,),
        JobUnreadable: (receiving.on_unreadable,),
        ChangeSentJob: (receiving.on_changed,),
        ReportReceivedJob: (sending.on_reported,),
        StoreRestored: (sweep_launchers.on_store_restored, restored_store.on_store_restored),
        ClusterConnected: (clusters.on_connected, suspend.on_connected),
        ClusterLost: (clusters.on_lost,),
        ClusterMeasured: (clusters.on_measured, idle_nodes.on_measured),
        MeasurementFailed: (clusters.on_measurement_failed,),
        AdsCompared: (clusters.on_ads_compared,),
        AttemptsAccounted: (clusters.on_accounted,),
    }
)  # the reactions to each event, and to each message of a neighbour, in this order
OWNERS: Mapping[tuple[OwnerKind, type], tuple[Reaction, ...]] = MappingProxyType(
    {
        (OwnerKind.JOB, CameToBarrier): (barrier.on_came_to_barrier,),
        (OwnerKind.JOB, Started): (barrier.on_started,),
        (OwnerKind.JOB, Refused): (retries.on_refused,),
        (OwnerKind.JOB, Ended): (retries.on_ended,),
        (OwnerKind.SWEEP, CameToBarrier): (launchers.on_came_to_barrier,),
        (OwnerKind.SWEEP, Refused): (launchers.on_refused,),
        (OwnerKind.SWEEP, LetGo): (sweep_launchers.on_let_go,),
    }
)  # the reactions of an attempt's owner to each fact that concerns it

_NEVER = Instant(1 << 62)


class Engine:
    """The decisions of koalapy on one store's jobs and one grid's clusters.

    The caller of `handle` commits the step's records before it executes any of the step's commands. After a restart, a
    new engine is made of the store's snapshot; the links then report the state of the clusters.
    """

    def __init__(
        self,
        settings: Settings,
        policies: Policies,
        snapshot: Snapshot,
        sweep_policies: ScavengingPolicies | None = None,
    ) -> None:
        self.core = core = Core(settings, snapshot)
        newest = JobId(snapshot.counters.next_job - 1)
        self._policies = policies
        core.candidates = policies.candidates
        core.neighbours.policies, core.neighbours.placement = policies.sites, policies.placement
        self._passes = Passes(
            core.queue, core.information, settings, policies, newest, core.matching, core.startup_gate
        )
        run_list.set_timers(core, Instant(0))
        self._expiry = _NEVER  # when the first measurement becomes too old while jobs wait
        self._scavenger = Scavenger(core, sweep_policies or ScavengingPolicies(), snapshot.learned)
        self._timers: dict[int, Instant] = {}  # by the steps that each wakes
        self._set_timers(ALL)

    # ---- called by the driver

    def inherit(self, before: "Engine") -> None:
        """Take over from the engine that this one replaces what no store keeps and no cluster reports again."""
        self.core.inherit(before.core)
        self._passes.newest = before.newest_before
        self._set_timers(ALL)

    def handle(self, now: Instant, events: Sequence[Event]) -> Step:
        """Handle a batch of events and return the step to commit.

        Without events, handle expired timers only.
        """
        core, due = self.core, self.core.due
        if self._wakeup <= now:
            for steps, moment in self._timers.items():
                if moment <= now:
                    due.wake(steps)
        for each in events:
            event = event_origin.own_part(core, each)
            if event is None:
                continue
            if core.silent:
                first_signs.note(core, now, event)
            for react in REACTIONS[type(event)]:
                react(core, now, event)
            if core.facts:
                _react_to_facts(core, now)
        to_come, ran, again = ALL, 0, 0
        while steps := due.steps & to_come:
            step = steps & -steps  # the lowest of these bits
            due.steps ^= step
            to_come &= -step << 1 | REPEATED
            ran |= step
            if STEPS[step](self, now):
                again |= step
        due.steps |= again
        return self._close(core, now, ran | due.steps)

    def next_wakeup(self) -> Instant | None:
        """Return the instant at which time alone changes something; None if there is no such instant."""
        return None if self._wakeup == _NEVER else self._wakeup

    def _close(self, core: Core, now: Instant, steps: int) -> Step:
        """Take the changes, commands and hints of the batch, and set the timers. `steps`: those that ran or are due."""
        run_list.set_timers(core, now)
        for command in core.poll_urgency.changes(core.information, bool(core.queue.order), core.run_list.claimed_on):
            core.records.hint(command)
        if core.pilots.unsaved:
            core.records.note_pilots(core.pilots.take_changed())
        if core.neighbours.changed:
            core.records.note_neighbours(core.neighbours.take_changed())
        if core.leases.changed:
            core.records.note_leases(core.leases.take_changed())
        step = core.records.take()
        if step.commands:
            if core.departed:
                step.commands = tuple([each for each in step.commands if cluster_of(each) not in core.departed])
            core.note_commands(step.commands)
        self._expiry = (core.information.next_expiry(now) or _NEVER) if core.queue.order else _NEVER
        self._set_timers(steps)
        return step

    def _set_timers(self, steps: int) -> None:
        """Set the timers after these steps ran or became due: no timer changes but with a step that it wakes."""
        timers = self._timers
        timers[TIMERS], timers[PASS] = run_list.wakeup(self.core) or _NEVER, self._expiry
        if steps & _TIMED:
            for each, wakeup in WAKEUPS.items():
                if steps & each:
                    timers[each] = wakeup(self) or _NEVER
        self._wakeup = min(timers.values())

    def _place(self, now: Instant) -> None:
        """Let jobs make room for others, and make a pass over the queue: another one while a list has ended."""
        core = self.core
        for preempting in vacating.decide(core, now, self._policies):
            self._carry_out_preemption(now, preempting)
        while True:
            core.due.steps &= ~PASS
            for decision in self._passes.decide(now):
                self._carry_out(now, decision)
            if not core.due.steps & PASS:
                break
        if core.queue.ads:
            core.due.wake(ADS)

    def _revoke(self, now: Instant) -> bool:
        revoking.step(self.core, now, self._policies)
        return self.core.settings.lend is not None

    def _carry_out(self, now: Instant, decision: Decision) -> None:
        core = self.core
        job = core.records.jobs[decision.job]
        match decision:
            case Claim(_, placement, patient):
                claim.claim(core, now, job, placement, patient)
            case ClaimChoice(_, found, choice):
                claim.claim_choice(core, now, job, found, choice)
            case EndChoices():
                retries.end_choices(core, now, job)
                core.mark_dirty()  # its next list may be made at once
            case Reject(_, reason):
                core.records.change(job, state=JobState.FAILED, reason=reason, finished_at=now)
                core.records.note(now, job.id, HistoryKind.WORK_FAILED, code=reason.code, message=str(reason))
            case Overtaken(_, times):
                core.records.change(job, overtaken=job.overtaken + times)

    def _carry_out_preemption(self, now: Instant, decision: vacating.Preempted | vacating.PolicyError) -> None:
        core = self.core
        match decision:
            case vacating.Preempted(found, vacated, suspended):
                preempt.preempt(core, now, core.records.jobs[found.job], vacated, suspended)
                self._carry_out(now, found)
                if suspended:
                    suspend.commit_processors(core)
            case vacating.PolicyError(job, message):
                if (job, message) not in core.sessions.noted_errors:
                    core.sessions.noted_errors[job, message] = None
                    core.records.note(now, job, HistoryKind.POLICY_FAILED, message=message)

    # ---- called by the API; nothing is changed

    def summaries(self, now: Instant) -> list[ClusterSummary]:
        return self.core.information.summaries(now)

    def explain(self, now: Instant, job: JobId) -> list[Misfit]:
        """Return what each cluster lacks for each component of a waiting job; empty for an unknown job."""
        found = self.core.records.jobs.get(job)
        if found is None:
            return []
        components = dict(enumerate(found.request.components))
        return misfits(components, self.summaries(now), self.core.matching.at(now))

    def gives_back_at(self, job: Job) -> Instant | None:
        """Return the instant at which a claiming job gives its processors back unless it is released.

        None if no time-out runs.
        """
        moments = [barrier.deadline(job, self.core.settings), hold.held_until(job, self.core.settings)]
        return min([each for each in moments if each is not None], default=None)

    def job(self, job: JobId) -> Job | None:
        """Return the job as it is now; None if it is final, or unknown."""
        found = self.core.records.jobs.get(job)
        return None if found is None else job_value(found)

    @property
    def settings(self) -> Settings:
        return self.core.settings

    @property
    def unrecalled_clusters(self) -> list[str]:
        """Names of clusters that have not yet reported their attempts of doubtful jobs (see Counters).

        The list is empty without such jobs.
        """
        return self.core.recalled.unknown if restored_store.doubtful(self.core.records) else []

    @property
    def records(self) -> Records:
        return self.core.records

    @property
    def scavenger(self) -> Scavenger:
        return self._scavenger

    @property
    def newest_before(self) -> JobId | None:
        """The newest job that existed when koalad started."""
        return self._passes.newest


def _await_clusters(core: Core, now: Instant) -> bool:
    """Let no job wait any longer for the clusters that are late after the start."""
    if core.startup_gate.give_up_late(now, bool(core.queue.ads)):
        core.mark_dirty()
    return core.startup_gate.awaits()


def _compare_ads(core: Core, now: Instant) -> bool:
    """Ask how the ads of waiting jobs compare with those of clusters, where that is not known yet."""
    if core.queue.ads:
        core.matching.look(core.information.clusters, core.information.summaries(now))
        if questions := core.matching.questions(core.queue.ads):
            core.records.hint(CompareAds(questions))
    return bool(core.queue.ads)


def _react_to_facts(core: Core, now: Instant) -> None:
    """Let the owners of attempts react to the facts that were derived for them, in their order."""
    core.due.steps &= ~FACTS
    while core.facts:
        facts, core.facts = core.facts, []
        for fact in facts:
            for react in OWNERS.get((fact.owner, type(fact)), ()):
                react(core, now, fact)


def _on_core(run: Callable[[Core, Instant], bool | None]) -> RunStep:
    """Return a step of a room, to which the core is all of the engine."""
    return lambda engine, now: run(engine.core, now)


STEPS: Mapping[int, RunStep] = MappingProxyType(
    {
        FACTS: _on_core(_react_to_facts),
        TIMERS: _on_core(run_list.fire_timers),
        MISSING: _on_core(missing.step),
        RUN_LIST: _on_core(run_list.step),
        LAUNCHERS: _on_core(launchers.step),
        SWEEP_ENDS: lambda engine, now: engine.scavenger.end_sweeps(now),
        PREREQUISITES: _on_core(prerequisites.step),
        DOUBTFUL: _on_core(restored_store.step),
        REQUESTS: _on_core(requests.step),
        PILOTS: _on_core(lifecycle.step),
        KEPT_PILOTS: _on_core(kept.step),
        SUSPENDED: _on_core(suspend.step),
        STARTUP: _on_core(_await_clusters),
        PASS: Engine._place,
        SWEEPS: lambda engine, now: engine.scavenger.step(now),
        ADS: _on_core(_compare_ads),
        REVOKING: Engine._revoke,
        NEIGHBOURS: _on_core(neighbours.step),
        LEASES: _on_core(joining.step),
        NOTIFICATIONS: _on_core(notifications.announce_changes),
    }
)  # the steps after the events of a batch
WAKEUPS: Mapping[int, Callable[[Engine], Instant | None]] = MappingProxyType(
    {
        MISSING | LAUNCHERS: lambda engine: launchers.wakeup(engine.core),
        PILOTS | KEPT_PILOTS: lambda engine: lifecycle.wakeup(engine.core),
        STARTUP: lambda engine: engine.core.startup_gate.wakeup(),
        SWEEP_ENDS | SWEEPS: lambda engine: engine.scavenger.wakeup(),
        REQUESTS | NEIGHBOURS: lambda engine: neighbours.wakeup(engine.core),
    }
)  # by the steps that it wakes, when a timer expires that only these steps and what makes them due can change
_TIMED = sum(WAKEUPS)  # those steps
