"""Each test breaks one promise on purpose, in one function of koalapy's own, and chaos must catch it.

`python tests/chaos/test_mutants.py` prints for each how many events it took.
"""

import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from halves import half_of
from koalapy_adapters import files as pushed_files
from koalapy_adapters import messages, start_lock
from koalapy_adapters.batch import waiting_demand
from koalapy_adapters.frames import Chunk
from koalapy_adapters.kcm.attempts import cancel, submit, wrapper_messages
from koalapy_adapters.kcm.execution.batch_system import BatchSystem
from koalapy_adapters.kcm.state.event_queue import EventQueue
from koalapy_adapters.launcher import journal
from koalapy_adapters.streams import StreamEnd
from koalapy_adapters.wrapper import events, start
from koalapy_adapters.wrapper import machine as wrapper_machine
from koalapy_adapters.wrapper.machine import AT_BARRIER
from koalapy_adapters.wrapper.machine import Machine as WrapperMachine
from koalapy_adapters.wrapper.relay import contact

from koalapy import chaos, engine
from koalapy.attempts import cancel as attempts_cancel
from koalapy.broker import broker, groups, wait_deadlines
from koalapy.broker.availability import Availability
from koalapy.chaos.fault_schedule import (
    BYZANTINE,
    CLUSTER_ACTIONS,
    FAULTS,
    FLOW_ACTIONS,
    PILOT_ACTIONS,
    PRUNING,
    STREAMS,
    USER_ACTIONS,
)
from koalapy.chaos.plan import plan
from koalapy.chaos.run import Result, run
from koalapy.chaos.site_actions import BESIDE, schedule_of_sites
from koalapy.chaos.site_actions import FAULTS as SITE_FAULTS
from koalapy.chaos.site_actions import USERS as SITE_USERS
from koalapy.chaos.violation import Promise as P
from koalapy.chaos.violation import Violation
from koalapy.coallocation import (
    barrier,
    choices,
    clusters,
    completion,
    event_origin,
    hold,
    lenders,
    preempt,
    pruning,
    race,
    refusals,
    retries,
    step,
    stop,
    user_requests,
)
from koalapy.coallocation.flows import ends, prerequisites
from koalapy.core import wait_queue
from koalapy.core.core import Core
from koalapy.core.due import PASS, SUSPENDED
from koalapy.core.matching import Matching
from koalapy.core.prerequisites import Prerequisites
from koalapy.core.startup import StartupGate
from koalapy.driver.driver import Driver
from koalapy.driver.outbox import Outbox
from koalapy.engine import Engine
from koalapy.information import commitments, kis
from koalapy.information.kis import RefusedJobs
from koalapy.link import reconnect
from koalapy.link.neighbour_links import NeighbourLinks
from koalapy.link.notifications import NotificationQueue
from koalapy.link.reconnect import Reconnect
from koalapy.link.session import Close, Decline, SessionMachine
from koalapy.model import notification
from koalapy.model import records as model_records
from koalapy.model.attempt import Attempt
from koalapy.model.commands import (
    CollectOutput,
    EndLease,
    LeaveCluster,
    ReleaseAttempt,
)
from koalapy.model.events import ClusterLeft, ClusterMeasured
from koalapy.model.header import Outcome
from koalapy.model.intervals import Intervals
from koalapy.model.lease import BorrowedLease, lease_of_cluster
from koalapy.model.matching import Verdict
from koalapy.model.parameters import ResultBatch
from koalapy.model.records import Records
from koalapy.model.request import ComponentRequest
from koalapy.model.settings import Preempt, PreemptBy, Settings
from koalapy.model.states import AttemptState, JobState, LeaseState
from koalapy.model.sweep import Sweep
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.pilots import filling, lifecycle
from koalapy.policies.admission import AdmissionState
from koalapy.scavenging import admission, idle_nodes, parameters, reclaim
from koalapy.scheduler import schedule, vacating
from koalapy.scheduler.blocked_ahead import BlockedAhead
from koalapy.sites import accounts, borrowing, lending, requests
from koalapy.store.memory import MemoryStore
from koalapy.world import world as worlds
from koalapy.world.koalad import host
from koalapy.world.koalad.host import SimKoalad
from koalapy.world.koalad.koalad_process import KoaladProcess
from koalapy.world.random_requests import Habits

CHAOS = Path(chaos.__file__).parent
FAULTS_PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
ENOUGH = 50_000  # events within which every mutant is caught
RUN_EVENTS, PATIENCE = 5_000, 20_000
SITES_EVENTS = 15_000
NOTIFYING = Habits(notify=0.9)
MATCHING = Habits(matching=0.9)
RANGES = Habits(long=0.5, ranges=0.9)
URGENT = Habits(long=0.6, urgent=0.3)
LONG, OPTIONAL = Habits(long=0.9, walltime=0, exit_status=0), Habits(optional=0.8)
SWEEPS = {"submit": 1, "submit_many": 0, "cancel": 0, "submit_sweep": 10}
SWEEPS_AND_OTHERS = {"submit": 0, "submit_many": 0, "submit_sweep": 3, "local_jobs_want_nodes": 3}
FLOWS = {"submit": 2, "submit_flow": 8}
HARDLY_ANY = {"commands_fail": 1}
PILOTS = {"open_pilot": 6, "submit_to_pilot": 12, "close_pilot": 3, "drain_pilot": 1, "kill_pilot": 2}
AWAY = {"cluster_down": 4, "kcm_killed": 2, "relay_cut": 3, "node_cut_off": 3}
CUTS = {"connection_cut": 4, "kcm_killed": 1}
STREAMING = {"submit": 2, "submit_many": 0, "cancel": 0, "release": 0, "open_stream": 4, "lose_chunks": 4}
UNSERVED = {"barrier_never_reached": 3, "cluster_down": 2, "wrapper_killed": 4, "job_pending_for_ever": 2}
AT_HOME = {"submit_at_home": 20}
RACES = (
    {"job_killed": 2, "job_pending_for_ever": 2},
    {"submit_many": 6, "local_job": 6, "cancel": 0},
    Habits(long=0.6, queue=1, race=1),
)
JOB_ACTIONS = {"submit": 12, "submit_many": 3, "cancel": 2, "release": 1}


class Mutant(NamedTuple):
    """`begin` replaces a function by a broken one. One of `promises` must then be violated, before or after others.

    A promise that stands alone in some mutant's `promises` is known to be one that can be seen to be broken by itself.
    `faults`: those that it takes, none for the usual ones; `user_actions` beside the usual, or as often in place of
    them; the users' `habits`. `after_faults`: it shows only after the end of all faults. `seed`: where to look first.
    `sites`: how many there are.
    """

    name: str
    begin: Callable[[], Any]
    promises: tuple[P, ...]
    faults: Mapping[str, int] = {}
    user_actions: Mapping[str, int] = {}
    habits: Habits = Habits()
    after_faults: bool = False
    seed: int = 1
    sites: int = 1


# ---- the cluster side


def _every_wrapper_gets_the_start_lock() -> Any:
    real = start_lock.take

    def take(attempt: str, claim: Any, files: Any = pushed_files.DISK) -> Any:
        real(attempt, claim, files)
        return claim

    return patch.object(start_lock, "take", take)


def _every_wrapper_gets_the_start_lock_and_a_release() -> Any:
    """The KCM keeps an answered release, so that a second start does not wait at its barrier until its deadline."""
    real = wrapper_messages._answer_release

    def answer_release(attempt: Any) -> list[Any]:
        kept = attempt.release
        answers = real(attempt)
        attempt.release = kept
        return answers

    return _together(
        _every_wrapper_gets_the_start_lock(), patch.object(wrapper_messages, "_answer_release", answer_release)
    )


def _a_void_attempt_may_start() -> Any:
    real = start.decide

    def decide(*arguments: Any) -> str:
        verdict = real(*arguments)
        return start.RUN if verdict == start.LEAVE else verdict

    return patch.object(start, "decide", decide)


def _a_doubtful_submit_is_not_searched_for() -> Any:
    real = submit.asked
    return patch.object(
        submit, "asked", lambda core, now, attempt, request, doubt: real(core, now, attempt, request, False)
    )


def _a_wrapper_releases_itself_at_its_barrier() -> Any:
    real = WrapperMachine._advance

    def advance(self: Any, now: int) -> list[Any]:
        before = self._report.phase
        commands = real(self, now)
        came = self._report.phase == AT_BARRIER and before != AT_BARRIER
        return [*commands, events.ReleaseNodes(0, [])] if came else commands

    return patch.object(WrapperMachine, "_advance", advance)


def _a_wrapper_has_no_deadline_at_its_barrier() -> Any:
    return _without_the_deadline("_leave_barrier")


def _without_the_deadline(act: str) -> Any:
    real, forgotten = WrapperMachine._deadlines, getattr(WrapperMachine, act)

    def deadlines(self: Any) -> list[Any]:
        return [(due, what) for due, what in real(self) if what.__func__ is not forgotten]

    return patch.object(WrapperMachine, "_deadlines", deadlines)


def _cleaned_up_is_reported_too_early() -> Any:
    return patch.object(cancel, "_harmless", lambda core, now, attempt, end: True)


def _an_orphan_runs_on() -> Any:
    return _without_the_deadline("_orphaned")


def _a_node_that_is_cut_off_counts_as_empty() -> Any:
    """Its agent has not ended the program yet, because it takes a while to notice the wrapper's silence."""
    real = wrapper_machine._REACTIONS[events.NodeLost]
    react = lambda machine, now, event: real(machine, now, event._replace(sure=True))  # noqa: E731
    return patch.dict(wrapper_machine._REACTIONS, {events.NodeLost: react})


def _tags_are_compared_without_their_store() -> Any:
    """Batch jobs of other stores are taken for the own ones."""
    real = BatchSystem.look

    def look(self: Any, tag: str, batch_id: str) -> Any:
        found = real(self, tag, batch_id)
        alike = [each for each in self.capacity().statuses.values() if each.name[6:] == tag[6:]]
        return found if found.listed or not alike else found._replace(listed=alike[-1])

    return patch.object(BatchSystem, "look", look)


def _an_unacknowledged_event_is_forgotten() -> Any:
    """The KCM forgets one event more than koalad has acknowledged."""
    real = EventQueue.acknowledge
    return patch.object(EventQueue, "acknowledge", lambda self, now, number: real(self, now, number + 1))


# ---- the grid side


def _an_event_is_acknowledged_before_its_commit() -> Any:
    real = Driver.step

    def step(self: Any, deliveries: Any) -> None:
        for delivery in deliveries:
            if delivery.acknowledge is not None:
                self._links.acknowledge(*delivery.acknowledge)
        real(self, deliveries)

    return patch.object(Driver, "step", step)


def _a_command_is_sent_before_its_commit() -> Any:
    real = Driver.retry

    def retry(self: Any) -> None:
        if self._uncommitted is not None:
            for entry in self._uncommitted[0].sent:
                self._links.send(entry, False)
        real(self)

    return patch.object(Driver, "retry", retry)


def _the_outbox_is_not_sent_again() -> Any:
    return patch.object(Outbox, "to_clusters", lambda self, clusters: [])


def _a_cluster_that_refuses_is_tried_again_at_once() -> Any:
    return patch.object(refusals, "FIRST_PAUSE", Duration(0))


def _a_cluster_that_refuses_all_is_used() -> Any:
    return patch.object(RefusedJobs, "trouble", lambda refused, now: None)


def _a_job_is_retried_once_too_often() -> Any:
    real = retries._max_failures

    def once_more(core: Any, job: Any) -> tuple[int, int]:
        submissions, completions = real(core, job)
        return submissions + 1, completions + 1

    return patch.object(retries, "_max_failures", once_more)


def _an_optional_component_is_required() -> Any:
    def go_without(core: Any, now: Any, job: Any, late: Any) -> None:
        reason = barrier._too_late("barrier_timeout", late, Duration(0))
        stop.stop_job(core, now, job, Outcome.SUBMISSION_FAILURE, reason)

    return patch.object(barrier, "_go_without", go_without)


def _commitments_are_not_counted() -> Any:
    return patch.object(commitments.Commitments, "on", lambda self, cluster: (0, 0))


def _priority_is_ignored() -> Any:
    real = wait_queue.Position
    return patch.object(wait_queue, "Position", lambda priority, position, job: real(0, position, job))


def _overtakes_are_not_counted() -> Any:
    return patch.object(BlockedAhead, "overtake", lambda self: None)


def _a_job_is_released_without_a_component() -> Any:
    def release(core: Any, now: Any, job: Any) -> None:
        came = any(each.id in core.at_barrier for each in job.present)
        if job.state is JobState.CLAIMING and came:
            barrier._release(core, now, job, job.present)

    return _together(patch.object(barrier, "release_if_whole", release), _every_transition_is_allowed())


def _every_transition_is_allowed() -> Any:
    """Let an attempt go from any state to any other, as if it had no table of transitions."""
    return patch.object(model_records, "ATTEMPT_TRANSITIONS", dict.fromkeys(AttemptState, frozenset(AttemptState)))


def _a_pending_cancel_is_not_kept() -> Any:
    return _attempts_are_not_kept(lambda attempt: attempt.is_pending_cancel)


def _the_end_of_a_final_jobs_attempt_is_not_kept() -> Any:
    return _attempts_are_not_kept(lambda attempt: attempt.cleaned_up and attempt.detached_at and not attempt.superseded)


def _attempts_are_not_kept(lost: Callable[[Attempt], Any]) -> Any:
    real = MemoryStore.commit

    def commit(self: Any, change: Any) -> None:
        kept = copy(change)
        kept.attempts = tuple(each for each in change.attempts if not lost(each))
        real(self, kept)

    return patch.object(MemoryStore, "commit", commit)


def _a_sleep_of_the_host_is_not_noticed() -> Any:
    """koalad's clock stops during a sleep, as CLOCK_MONOTONIC does, so that wrappers do not report again."""
    awake = patch.object(SimKoalad, "now", lambda self: Instant(self.agenda.now + self._ahead - self.slept))
    unnoticed = patch.object(KoaladProcess, "slept", lambda self: Duration(0))
    return _together(awake, unnoticed, _barrier_reports_of_earlier_sessions_count())


def _barrier_reports_of_earlier_sessions_count() -> Any:
    """A report counts whatever the session in which it came."""

    def end_session(core: Any, cluster: str) -> None:
        for attempt in core.records.live(cluster):
            if attempt.state is AttemptState.AT_BARRIER:
                core.at_barrier.add(attempt.id, cluster)
        core.mark_cluster_dirty(cluster)

    return patch.object(barrier, "end_session", end_session)


def _reports_about_other_clusters_are_accepted() -> Any:
    return patch.object(event_origin, "own_part", lambda core, event: event)


def _values_of_messages_are_not_checked() -> Any:
    """koalad accepts every message of a KCM unchecked."""

    def unchecked(kind: Any) -> Any:
        return lambda data: kind(*(data.get(field, kind._field_defaults.get(field)) for field in kind._fields))

    kinds = (messages.FROM_KCM, messages.EVENTS)
    return _together(*(patch.dict(each, {name: unchecked(messages.MESSAGES[name]) for name in each}) for each in kinds))


def _exclusive_nodes_are_rounded_down() -> Any:
    real = commitments.processors_taken

    def processors_taken(component: Any, cluster: Any) -> int:
        size, taken = cluster.processors_per_node, real(component, cluster)
        return component.processors // size * size if size and cluster.exclusive else taken

    return _replace_everywhere("processors_taken", processors_taken)


def _replace_everywhere(name: str, replacement: Any) -> Any:
    """Replace the function of this name in every module that has imported it."""
    modules = [each for key, each in sys.modules.items() if key.startswith("koalapy.") and hasattr(each, name)]
    return _together(*(patch.object(each, name, replacement) for each in modules))


def _batch_queues_of_one_job_may_be_in_two_networks() -> Any:
    real = broker.shortest_queue

    def shortest_queue(request: Any, views: Any, *others: Any) -> Any:
        found = real(replace(request, communication=False), views, *others)
        return found and found._replace(request=request)

    return patch.object(schedule, "shortest_queue", shortest_queue)


def _the_claim_time_out_restarts_with_every_start() -> Any:
    real = barrier._claim_ends

    def claim_ends(job: Any, settings: Any) -> Any:
        ends = real(job, settings)
        started = [each.allocated_at for each in job.present if each.allocated_at is not None]
        return ends if ends is None else max([ends, *(each + settings.claim_timeout for each in started)])

    return patch.object(barrier, "_claim_ends", claim_ends)


def _jobs_that_expire_wait_on() -> Any:
    return patch.object(step, "expires_at", lambda job: None)


def _a_job_does_not_wait_for_its_begin() -> Any:
    real = user_requests._add

    def add(core: Any, now: Instant, event: Any, request: Any, *others: Any, **more: Any) -> Any:
        identity = real(core, now, event, request, *others, **more)
        work = core.records.work(identity)
        if work.state is JobState.BLOCKED and not core.prerequisites.awaited(identity):
            prerequisites.enter_queue(core, now, work)
        return identity

    return patch.object(user_requests, "_add", add)


def _a_job_that_is_claimed_early_is_released_before_its_begin() -> Any:
    return patch.object(barrier, "time_to_begin", lambda now, job: 0)


def _a_job_stays_blocked_past_its_begin() -> Any:
    return patch.object(step, "may_begin", lambda core, now, work: False)


def _components_wait_without_an_end() -> Any:
    return patch.object(hold, "held_until", lambda job, settings: None)


def _components_are_held_for_more_than_their_bound() -> Any:
    return patch.object(hold, "left_to_hold", lambda job, settings: None)


def _a_job_that_may_hold_nothing_enters_queues() -> Any:
    return patch.object(wait_deadlines, "left_to_hold", lambda job, settings: None)


def _a_job_is_released_while_sweeps_use_its_processors() -> Any:
    return patch.object(barrier, "is_filled", lambda core, job: False)


def _a_filler_leaves_before_its_batch_job_is_over() -> Any:
    return patch.object(filling, "_may_run", lambda core, pilot: False)


def _components_in_queues_are_given_back() -> Any:
    real = hold.give_back
    return patch.object(
        hold,
        "give_back",
        lambda core, now, job, held, **how: real(core, now, job, [each for each in job.live if held], **how),
    )


def _a_component_that_is_given_back_counts() -> Any:
    real = hold.give_back

    def give_back(core: Any, now: Instant, job: Any, held: Any, **how: bool) -> None:
        real(core, now, job, held, **how)
        core.records.change(job, submission_failures=job.submission_failures + 1)

    return patch.object(hold, "give_back", give_back)


def _losers_keep_their_places() -> Any:
    def take_lead(core: Any, now: Instant, job: Any, attempt: Any) -> None:
        if attempt.candidate and not attempt.cancelling:
            core.records.lead(job, attempt)

    return patch.object(race, "take_lead", take_lead)


def _candidates_are_released_beside_the_winner() -> Any:
    real = barrier._release

    def release(core: Any, now: Instant, job: Any, present: Any) -> None:
        rivals = list(job.candidates)
        real(core, now, job, present)
        for each in rivals:
            command = ReleaseAttempt(cluster=each.cluster, attempt=each.id, first_rank=0, hosts=())
            core.records.command(command)

    return patch.object(barrier, "_release", release)


def _the_winner_is_cancelled() -> Any:
    real = race.take_lead

    def take_lead(core: Any, now: Instant, job: Any, attempt: Any) -> None:
        real(core, now, job, attempt)
        if job.candidates:
            attempts_cancel.cancel(core, attempt)

    return patch.object(race, "take_lead", take_lead)


def _a_candidate_that_is_lost_counts() -> Any:
    real = race.goes_on

    def goes_on(core: Any, now: Instant, job: Any, attempt: Any, *about: Any) -> bool:
        goes = real(core, now, job, attempt, *about)
        if goes and job.state.claiming:
            core.records.change(job, submission_failures=job.submission_failures + 1)
        return goes

    return patch.object(race, "goes_on", goes_on)


def _two_candidates_have_one_number() -> Any:
    real = race._add

    def add(core: Any, now: Instant, job: Any, lead: Any, number: int, cluster: str) -> Any:
        numbers = job.numbers
        added = real(core, now, job, lead, number, cluster)
        core.records.change(job, numbers=numbers)
        return added

    return patch.object(race, "_add", add)


def _the_barrier_time_out_restarts_with_every_arrival() -> Any:
    real = barrier._barrier_ends

    def barrier_ends(job: Any, settings: Any) -> Any:
        ends = real(job, settings)
        came = [each.at_barrier_at for each in job.present if each.at_barrier_at is not None]
        return ends if ends is None or not came else ends + max(came) - min(came)

    return patch.object(barrier, "_barrier_ends", barrier_ends)


def _components_of_the_same_job_do_not_count_in_the_backlog() -> Any:
    real = broker._may_wait
    return patch.object(broker, "_may_wait", lambda component, view, asked: real(component, view, 0))


def _the_backlog_counts_measured_jobs_only() -> Any:
    """Jobs that no measurement shows yet do not count."""
    real, add = Availability.after, commitments._ClusterCommitments._count
    after = patch.object(
        Availability, "after", lambda self, placement, request, patient=False: real(self, placement, request)
    )
    unseen = patch.object(
        commitments._ClusterCommitments,
        "_count",
        lambda self, tag, entry, sign: add(self, tag, (*entry[:2], False), sign),
    )
    return _together(after, unseen)


def _a_job_that_fits_exactly_is_not_considered() -> Any:
    return patch.object(
        wait_queue._BySize, "up_to", lambda self, size: [jobs for each, jobs in self._positions.items() if each < size]
    )


def _no_job_waits_for_silent_clusters() -> Any:
    return patch.object(StartupGate, "holds", lambda self, request: False)


def _a_measurement_starts_no_scheduling_pass() -> Any:
    """The wait queue is not considered again."""
    real = clusters.on_measured

    def on_measured(core: Any, now: Any, event: Any) -> None:
        before = core.due.steps & PASS
        real(core, now, event)
        core.due.steps ^= (core.due.steps & PASS) ^ before

    reactions = {**engine.REACTIONS, ClusterMeasured: (on_measured, *engine.REACTIONS[ClusterMeasured][1:])}
    return patch.object(engine, "REACTIONS", reactions)


def _a_job_goes_to_one_cluster_only() -> Any:
    real = broker._place_within

    def place_within(components: Any, room: Any, policy: Any, *others: Any) -> Any:
        answer = real(components, room, policy, *others)
        return None if isinstance(answer, dict) and len(set(answer.values())) > 1 else answer

    return patch.object(broker, "_place_within", place_within)


def _no_job_is_sent_to_a_batch_queue() -> Any:
    return patch.object(schedule, "_may_queue", lambda now, waiting, room, settings: False)


def _optional_components_need_a_batch_queue_too() -> Any:
    real = broker.shortest_queue

    def shortest_queue(request: Any, views: Any, *others: Any) -> Any:
        found = real(request, views, *others)
        return None if found is not None and None in found.clusters else found

    return patch.object(schedule, "shortest_queue", shortest_queue)


@contextmanager
def _together(*mutants: Any) -> Iterator[None]:
    with ExitStack() as begun:
        for mutant in mutants:
            begun.enter_context(mutant)
        yield


# ---- files


def _digests_of_staged_files_are_not_checked() -> Any:
    return patch.object(pushed_files, "has_digest", lambda data, digest: True)


def _the_last_component_s_output_is_collected() -> Any:
    real = CollectOutput
    return patch.object(
        completion, "CollectOutput", lambda sources, **fields: real(sources=tuple(reversed(sources)), **fields)
    )


# ---- sweeps


def _every_reported_result_is_recorded() -> Any:
    """Neither an earlier result nor the place of the parameter is checked."""

    def record_results(core: Any, event: Any, fed: Any) -> tuple[Any, int]:
        sweep = parameters.sweep_of(core, event.sweep)
        if sweep is None:
            return (), 0
        numbers = Intervals.numbers(each.number for each in event.results)
        out, returned = parameters.without(sweep.out, numbers), parameters.without(sweep.returned, numbers)
        core.records.change_work(sweep, done=sweep.done | numbers, out=out, returned=returned)
        core.records.result(ResultBatch(sweep.id, event.cluster, event.attempt, tuple(event.results)))
        return tuple(event.results), 0

    return patch.object(parameters, "record_results", record_results)


def _parameters_that_are_out_are_fed_again() -> Any:
    """They may run on another cluster meanwhile."""
    return patch.object(Sweep, "pool", property(lambda self: Intervals.of(((1, self.count),)) - self.done))


def _nodes_are_not_reclaimed() -> Any:
    return patch.object(reclaim, "processors_short", lambda core, known, launchers: 0)


def _waiting_local_jobs_are_not_measured() -> Any:
    """The KCM reports no waiting jobs of others."""
    return patch.object(waiting_demand, "wanted", lambda waits, free, sizes, idle: 0)


def _a_journal_is_not_read() -> Any:
    return patch.object(journal, "read", lambda attempt, files=None, among=None: [])


def _rules_of_clusters_are_ignored(**rules: Any) -> Any:
    real = idle_nodes._ask
    return patch.object(
        idle_nodes, "_ask", lambda policy, sight: real(policy, replace(sight, rules=replace(sight.rules, **rules)))
    )


def _the_idle_share_is_ignored() -> Any:
    return _rules_of_clusters_are_ignored(idle_share=0.0)


def _hours_are_ignored() -> Any:
    return _rules_of_clusters_are_ignored(hours=None)


def _max_nodes_is_ignored() -> Any:
    return _rules_of_clusters_are_ignored(max_nodes=None)


def _sweeps_are_admitted_without_bound() -> Any:
    real = AdmissionState
    return patch.object(admission, "AdmissionState", lambda **fields: real(**(fields | {"most": None})))


def _a_held_sweep_skips_its_table() -> Any:
    """It is held at once, and not only when its Launchers have given their nodes back."""
    real = stop.stop_sweep

    def stop_sweep(core: Any, now: Any, sweep: Any, outcome: Any, reason: Any = None) -> None:
        if outcome is not Outcome.HOLD:
            real(core, now, sweep, outcome, reason)
            return
        sweep.state = JobState.HELD
        core.records.change_work(sweep)
        core.records.note(now, sweep.id, "work_held")

    return patch.object(user_requests, "stop_sweep", stop_sweep)


def _a_cancelled_flow_waits_again() -> Any:
    """It takes a turn like a job of it, though a flow never waits."""
    real = ends.stop_flow

    def stop_flow(core: Any, now: Any, flow: Any, *how: Any) -> None:
        real(core, now, flow, *how)
        if not flow.state.final:
            flow.state = JobState.WAITING
            core.records.change_work(flow)
            core.records.note(now, flow.id, "may_begin")

    return patch.object(user_requests, "stop_flow", stop_flow)


# ---- pruning


def _active_jobs_are_pruned() -> Any:
    return patch.object(pruning, "_why_kept", lambda core, job, before, pending: "")


def _records_are_pruned_before_directories() -> Any:
    real = pruning._finish

    def finish(core: Any, now: Any, wanted: Any) -> None:
        core.pruning.directories.pop(pruning.number_of(wanted.pruned), None)
        real(core, now, wanted)

    return patch.object(pruning, "_finish", finish)


# ---- clusters that come and go


def _a_refused_choice_is_tried_again() -> Any:
    return patch.object(choices, "refuse", lambda core, now, job, reason: None)


def _requirements_do_not_matter() -> Any:
    real = Matching.take

    def take(self: Any, now: Instant, answers: Any) -> None:
        matches = [tuple(replace(match, verdict=Verdict.MATCH) for match in each.matches) for each in answers]
        real(self, now, [replace(each, matches=found) for each, found in zip(answers, matches, strict=True)])

    return patch.object(Matching, "take", take)


def _a_group_has_processors_too_few() -> Any:
    """The last cluster of a group gives one processor less."""
    real = groups._choice

    def choice(group: Any, wanted: int) -> Any:
        return real(group, wanted - 1) if len(group) > 1 else real(group, wanted)

    return patch.object(groups, "_choice", choice)


def _a_range_gets_its_least() -> Any:
    """A job that does not fit with all of its processors gets the fewest that it allows."""

    def most_that_fits(components: Any, place: Callable[[Any], Any]) -> Any:
        for sized in (components, {index: each.smallest() for index, each in components.items()}):
            if (found := place(sized)) is not None:
                return sized, found
        return None

    return patch.object(broker, "most_that_fits", most_that_fits)


def _a_range_goes_below_its_least() -> Any:
    """The fewest processors of a component are one less than it allows."""
    real = ComponentRequest.smallest

    def smallest(self: Any) -> Any:
        least = real(self)
        return least if least is self or least.processors == 1 else replace(least, processors=least.processors - 1)

    return patch.object(ComponentRequest, "smallest", smallest)


def _drained_clusters_are_offered_to_the_broker() -> Any:
    return patch.object(kis, "DRAINING", None)


def _commands_go_to_clusters_that_have_left() -> Any:
    real = Core.forget_cluster

    def forget_cluster(self: Any, cluster: str) -> None:
        real(self, cluster)
        self.departed.clear()

    return patch.object(Core, "forget_cluster", forget_cluster)


def _a_pilot_leaves_before_its_batch_job_is_over() -> Any:
    def may_hold(core: Any, pilot: Any) -> bool:
        job = core.records.jobs.get(pilot)
        return job is not None and job.state is JobState.RUNNING

    return patch.object(lifecycle, "_may_hold", may_hold)


def _a_pilot_without_a_job_stays() -> Any:
    return patch.object(lifecycle, "_may_hold", lambda core, pilot: True)


def _an_idle_pilot_is_one_that_has_run_for_its_idle_time() -> Any:
    return patch.object(lifecycle, "is_used", lambda core, pilot, known, there: False)


def _jobs_are_placed_on_a_pilot_that_ends() -> Any:
    return patch.object(lifecycle, "place_nothing", lambda core, now, pilot: None)


def _a_starting_koalad_knows_no_pilots() -> Any:
    return patch.object(host, "pilots_at_start", lambda pilots: [])


# ---- links


def _refused_logins_are_repeated_without_bound() -> Any:
    return patch.object(reconnect, "_MOST_REFUSALS", 10**9)


def _no_person_can_retry_after_three_refusals() -> Any:
    return patch.object(SessionMachine, "retry", lambda self, now: [])


def _a_long_session_does_not_reset_the_back_off() -> Any:
    return patch.object(Reconnect, "reset", lambda self: None)


def _one_prerequisite_is_enough() -> Any:
    return patch.object(Prerequisites, "awaited", lambda self, job: False)


def _a_failure_is_not_passed_on() -> Any:
    return patch.object(prerequisites, "_fail", lambda core, now, job, causes: None)


def _a_try_in_doubt_is_made_again() -> Any:
    real = NotificationQueue.begin
    return patch.object(
        NotificationQueue, "begin", lambda self, number, command, doubt: real(self, number, command, False)
    )


def _what_may_have_arrived_is_sent_again() -> Any:
    real = NotificationQueue.tried

    def tried(self: Any, number: int, command: Any, outcome: Any, reason: Any) -> Any:
        unknown = outcome is notification.Outcome.UNKNOWN
        return real(self, number, command, notification.Outcome.NOT_TAKEN if unknown else outcome, reason)

    return patch.object(NotificationQueue, "tried", tried)


# ---- wrappers and their relay


def _a_wrapper_seeks_no_more() -> Any:
    real = contact.Contact._again

    def again(self: contact.Contact, now: int) -> list[Any]:
        was_trying = self.is_trying
        done = real(self, now)
        self._seek_at = None if was_trying else self._seek_at
        return done

    return patch.object(contact.Contact, "_again", again)


# ---- byte streams


def _bytes_after_a_gap_are_taken() -> Any:
    real = StreamEnd._arrived

    def arrived(self: StreamEnd, chunk: Chunk) -> list[Any]:
        return real(self, chunk._replace(number=min(chunk.number, self._received)))

    return patch.object(StreamEnd, "_arrived", arrived)


def _bytes_that_come_again_are_taken_again() -> Any:
    real = StreamEnd._arrived

    def arrived(self: StreamEnd, chunk: Chunk) -> list[Any]:
        return real(self, chunk._replace(number=max(chunk.number, self._received)) if chunk.data else chunk)

    return patch.object(StreamEnd, "_arrived", arrived)


def _a_silent_end_is_waited_for() -> Any:
    def tick(self: StreamEnd, now: int) -> list[Any]:
        return self.resume(now) if now >= self._probe_at else []

    real = StreamEnd.next_wakeup
    wakeup = patch.object(StreamEnd, "next_wakeup", lambda end: real(end) if end.is_closed else end._probe_at)
    return _together(wakeup, patch.object(StreamEnd, "tick", tick))


def _jobs_are_vacated_without_a_claim() -> Any:
    def carry_out(self: Engine, now: Instant, decision: Any) -> None:
        if isinstance(decision, vacating.Preempted):
            job = self.core.records.jobs[decision.claim.job]
            preempt.preempt(self.core, now, job, decision.vacated, decision.suspended)

    return patch.object(Engine, "_carry_out_preemption", carry_out)


def _more_jobs_are_vacated_than_are_needed() -> Any:
    real = vacating._Clusters.needed
    return patch.object(vacating._Clusters, "needed", lambda self, jobs: jobs if real(self, jobs) else [])


def _a_vacated_job_goes_to_the_tail() -> Any:
    real = retries._back

    def back(core: Core, now: Instant, job: Any, position: int, state: JobState) -> None:
        vacated = job.outcome is Outcome.VACATED
        real(core, now, job, core.records.new_tail_position() if vacated else position, state)

    return patch.object(retries, "_back", back)


def _a_vacated_job_starts_again_beside_itself() -> Any:
    """Its programs are not ended, and it does not wait for their ends."""
    real_order, real_settle = attempts_cancel.order_cancel, step._settle

    def order_cancel(core: Core, attempt: Any, force: bool = False) -> None:
        job = core.records.jobs.get(attempt.id.job)
        if job is None or job.outcome is not Outcome.VACATED:
            real_order(core, attempt, force)

    def settle(core: Core, now: Instant, job: Any) -> None:
        if job.outcome is Outcome.VACATED:
            for each in [each for each in job.live if each.cancelling and each.started_at]:
                attempts_cancel.detach(core, now, each)
        real_settle(core, now, job)

    return _together(patch.object(attempts_cancel, "order_cancel", order_cancel), patch.object(step, "_settle", settle))


def _a_suspended_job_is_never_resumed() -> Any:
    steps = {**engine.STEPS, SUSPENDED: lambda made, now: None}
    return _together(_every_grid_suspends(), patch.object(engine, "STEPS", steps))


def _every_grid_suspends() -> Any:
    def suspending(rng: Random, settings: Settings) -> Settings:
        clusters = tuple(replace(each, frees_when_suspended=True) for each in settings.clusters)
        return replace(settings, clusters=clusters, preempt=Preempt(how=PreemptBy.SUSPEND, lowest=5))

    return patch.object(worlds, "with_suspending", suspending)


# ---- several sites


def _one_pilot_holds_two_leases() -> Any:
    claim = lending._claimed

    def claimed(core: Core, now: Instant, neighbour: str, component: Any) -> Any:
        held = [each.job for each in core.leases.lent.values() if each.job is not None]
        return held[0] if held else claim(core, now, neighbour, component)

    return patch.object(lending, "_claimed", claimed)


def _the_cluster_of_a_lease_never_leaves() -> Any:
    hint = Records.hint

    def hinted(self: Records, given: Any) -> None:
        if not isinstance(given, LeaveCluster) or lease_of_cluster(given.name) is None:
            hint(self, given)

    return patch.object(Records, "hint", hinted)


def _a_lease_is_offered_before_its_examination() -> Any:
    return patch.object(lending, "must_be_examined", lambda job: False)


def _a_returned_lease_costs_its_borrower_nothing() -> Any:
    ended = borrowing.on_ended

    def on_ended(core: Core, now: Instant, event: Any) -> None:
        lease = core.leases.borrowed.get((event.neighbour, event.lease))
        returned = lease is not None and lease.state.closing
        ended(core, now, replace(event, charge=0) if returned else event)

    return patch.object(engine, "REACTIONS", {**engine.REACTIONS, EndLease: (on_ended,)})


def _the_account_of_a_lease_has_the_borrowers_own_figure() -> Any:
    real = accounts._account

    def account(core: Core, now: Instant, lease: Any, *figures: Any) -> Any:
        found = real(core, now, lease, *figures)
        return found if lease.lent else replace(found, charge=found.measured)

    return patch.object(accounts, "_account", account)


def _a_lease_is_over_before_its_pilot() -> Any:
    end = lending.end

    def ended(core: Core, now: Instant, lease: Any, reason: Any) -> None:
        end(core, now, lease, reason)
        left = core.leases.lent.get((lease.neighbour, lease.number))
        if left is not None and left.bound_at is not None and left.beyond is None:
            lending.note_end(core, now, left, 1, reason)

    return patch.object(lending, "end", ended)


def _messages_that_wait_are_lost_as_a_neighbour_changes() -> Any:
    put = NeighbourLinks._put

    def changed(self: Any, name: str, relation: Any, address: Any) -> None:
        if name in self.links and self.links[name].end.address != address:
            del self._outgoing[name]
        put(self, name, relation, address)

    return patch.object(NeighbourLinks, "_put", changed)


def _a_late_connection_is_left_open() -> Any:
    connected = SessionMachine.connected

    def late(self: Any, *arguments: Any) -> Any:
        found = connected(self, *arguments)
        return [Close()] if isinstance(found[0], Decline) else found

    return patch.object(SessionMachine, "connected", late)


def _requests_are_not_remembered() -> Any:
    return patch.object(requests, "_is_seen", lambda core, now, origin: False)


def _parameters_stay_on_a_lease_that_is_over() -> Any:
    left = tuple(each for each in engine.REACTIONS[ClusterLeft] if each is not parameters.on_cluster_left)
    return patch.object(engine, "REACTIONS", {**engine.REACTIONS, ClusterLeft: left})


def _the_end_of_a_lease_that_never_was_is_entered() -> Any:
    def close(core: Core, now: Instant, event: Any) -> None:
        lease = BorrowedLease(
            neighbour=event.neighbour, number=event.lease, processors=0, state=LeaseState.ENDED, asked_at=now
        )  # fmt: skip
        accounts.close_borrowed(core, now, lease, event.charge, event.reason)

    return patch.object(borrowing, "_close_given_up", close)


def _a_failure_on_a_lease_ends_the_job() -> Any:
    return patch.object(lenders, "leave_out", lambda core, now, job, attempt, reason: False)


def _a_lender_is_not_left_out() -> Any:
    """Only the one lease is excluded."""
    real = lenders.leave_out

    def leave_out(core: Core, now: Instant, job: Any, attempt: Any, reason: Any) -> bool:
        lease = lease_of_cluster(attempt.cluster)
        before = None if lease is None else core.neighbours.records[lease[0]].refusals
        left_out = real(core, now, job, attempt, reason)
        if lease is not None and before is not None:
            core.neighbours.change(lease[0], refusals=before)
        return left_out

    return patch.object(lenders, "leave_out", leave_out)


def _later_leases_of_a_lender_are_not_closed() -> Any:
    return patch.object(lenders, "keep_out", lambda core, now, lender, cluster: None)


MUTANTS = (
    Mutant(
        "every wrapper wins the start lock",
        _every_wrapper_gets_the_start_lock,
        (P.ONCE, P.ALONE, P.OUTLIVED),
        {"job_vanishes": 3, "submit_hangs": 2, "submit_unanswered": 2, "connection_cut": 2},
        seed=3,
    ),
    Mutant(
        "every wrapper wins the start lock and is released again",
        _every_wrapper_gets_the_start_lock_and_a_release,
        (P.ONCE,),
        {"job_restarted": 4},
        {"cancel": 0},
        LONG,
    ),
    Mutant(
        "a void attempt runs",
        _a_void_attempt_may_start,
        (P.OUTLIVED,),
        {"submit_hangs": 3, "connection_cut": 2, "job_vanishes": 1},
        seed=3,
    ),
    Mutant(
        "a doubtful submit is not looked for",
        _a_doubtful_submit_is_not_searched_for,
        (P.DOUBT,),
        {"connection_cut": 4, "kcm_killed": 4, "koalad_killed": 3, "submit_unanswered": 2},
        {"local_job": 6},
        seed=18,
    ),
    Mutant("a wrapper releases itself", _a_wrapper_releases_itself_at_its_barrier, (P.WHOLE,)),
    Mutant(
        "a wrapper forgets its deadline",
        _a_wrapper_has_no_deadline_at_its_barrier,
        (P.DEADLINE,),
        {"cluster_down": 3, "job_pending_for_ever": 3},
    ),
    Mutant(
        "an attempt is reported cleaned up too early",
        _cleaned_up_is_reported_too_early,
        (P.OUTLIVED, P.ALONE),
        {"job_vanishes": 5, "relay_cut": 2},
        {"cancel": 4},
        LONG,
        seed=2,
    ),
    Mutant(
        "an orphan does not end its program",
        _an_orphan_runs_on,
        (P.OUTLIVED, P.ALONE),
        {"node_cut_off": 6},
        habits=LONG,
    ),
    Mutant(
        "a node that is cut off counts as empty",
        _a_node_that_is_cut_off_counts_as_empty,
        (P.OUTLIVED,),
        {"node_cut_off": 12, "batch_system_down": 2},
        {"submit_many": 6, "cancel": 4},
        seed=234,
    ),
    Mutant(
        "an attempt is found by its number alone",
        _tags_are_compared_without_their_store,
        (P.OTHERS,),
        {"connection_cut": 3, "submit_unanswered": 3, "job_vanishes": 2},
        {"job_of_another_store": 12, "cancel": 3},
    ),
    Mutant("an event is acknowledged before its commit", _an_event_is_acknowledged_before_its_commit, (P.COMMITTED,)),
    Mutant("a command is sent before its commit", _a_command_is_sent_before_its_commit, (P.COMMITTED,), seed=2),
    Mutant("the outbox is not sent again", _the_outbox_is_not_sent_again, (P.ENDS,), after_faults=True),
    Mutant(
        "one retry too many",
        _a_job_is_retried_once_too_often,
        (P.ENDS,),
        {"job_killed": 3, "submit_refused": 3},
        seed=2,
    ),
    Mutant(
        "optional components are needed",
        _an_optional_component_is_required,
        (P.OPTIONAL,),
        {"job_pending_for_ever": 6, "relay_cut": 1, "batch_system_down": 1},
        {"submit_many": 6, "local_job": 6},
        OPTIONAL,
        seed=34,
    ),
    Mutant("commitments are forgotten", _commitments_are_not_counted, (P.PROCESSORS,)),
    Mutant("priority is ignored", _priority_is_ignored, (P.ORDER,)),
    Mutant(
        "overtakes are not counted", _overtakes_are_not_counted, (P.ORDER,), {"job_killed": 2}, {"local_job": 4}, seed=6
    ),
    Mutant("a job is released although a component is missing", _a_job_is_released_without_a_component, (P.WHOLE,)),
    Mutant(
        "the clock stops while the host sleeps",
        _a_sleep_of_the_host_is_not_noticed,
        (P.WHOLE,),
        {"host_sleeps": 4, "barrier_never_reached": 1, "job_pending_for_ever": 1},
        {"submit_many": 6, "local_job": 6},
        seed=18,
    ),
    Mutant(
        "a component that left its barrier still counts",
        _barrier_reports_of_earlier_sessions_count,
        (P.WHOLE,),
        {
            "connection_cut": 5,
            "cluster_down": 2,
            "wrapper_killed": 8,
            "commands_fail": 8,
            "shared_slow": 3,
            "batch_system_down": 4,
        },
        {"cancel": 0, "local_job": 1},
        seed=25,
    ),
    Mutant(
        "a cluster reports attempts of others",
        _reports_about_other_clusters_are_accepted,
        (P.WHOLE, P.AGREE, P.OUTLIVED, P.ALONE, P.ONCE, P.OTHERS),
        {"cluster_is_byzantine": 1},
        seed=6,
    ),
    Mutant("messages are not checked", _values_of_messages_are_not_checked, (P.SOUND,), {"cluster_is_byzantine": 1}),
    Mutant("a pending cancel is not kept", _a_pending_cancel_is_not_kept, (P.AGREE,)),
    Mutant("the end of a final job's attempt is not kept", _the_end_of_a_final_jobs_attempt_is_not_kept, (P.AGREE,)),
    Mutant(
        "a repeated result is recorded again",
        _every_reported_result_is_recorded,
        (P.RECORDED,),
        {"koalad_killed": 1},
        SWEEPS,
        seed=32,
    ),
    Mutant(
        "a journal is not read",
        _a_journal_is_not_read,
        (P.REPEATED,),
        {"wrapper_killed": 3, "job_killed": 3, "relay_cut": 4},
        SWEEPS,
        seed=44,
    ),
    Mutant(
        "nodes are not given back", _nodes_are_not_reclaimed, (P.GIVEN_BACK,), HARDLY_ANY, SWEEPS_AND_OTHERS, seed=2
    ),
    Mutant(
        "waiting local jobs are not seen",
        _waiting_local_jobs_are_not_measured,
        (P.GIVEN_BACK,),
        HARDLY_ANY,
        SWEEPS_AND_OTHERS,
        after_faults=True,
        seed=22,
    ),
    Mutant(
        "one event too many counts as acknowledged",
        _an_unacknowledged_event_is_forgotten,
        (P.ENDS,),
        {"events_disturbed": 1},
        after_faults=True,
    ),
    Mutant(
        "exclusive nodes are rounded down",
        _exclusive_nodes_are_rounded_down,
        (P.PROCESSORS,),
        HARDLY_ANY,
        seed=2,
    ),
    Mutant(
        "batch queues of one job may be in two networks",
        _batch_queues_of_one_job_may_be_in_two_networks,
        (P.NETWORK,),
        HARDLY_ANY,
        {"submit_many": 6, "local_job": 6},
        seed=27,
    ),
    Mutant(
        "the claim's time restarts with every component that starts",
        _the_claim_time_out_restarts_with_every_start,
        (P.CLAIM,),
        {"job_pending_for_ever": 3, "batch_system_down": 3},
        {"submit_many": 6, "cancel": 0},
        seed=28,
    ),
    Mutant(
        "the barrier's time restarts with every component that comes",
        _the_barrier_time_out_restarts_with_every_arrival,
        (P.CLAIM,),
        {"barrier_never_reached": 3, "job_pending_for_ever": 3},
        {"submit_many": 6, "cancel": 0},
        seed=8,
    ),
    Mutant(
        "jobs that expire wait on",
        _jobs_that_expire_wait_on,
        (P.EXPIRES,),
        habits=Habits(long=0.6, expires=1),
    ),
    Mutant(
        "a job with a begin does not wait for it",
        _a_job_does_not_wait_for_its_begin,
        (P.BEGINS,),
        HARDLY_ANY,
        habits=Habits(begin=0.5),
    ),
    Mutant(
        "a job that is claimed early is released before its begin",
        _a_job_that_is_claimed_early_is_released_before_its_begin,
        (P.BEGINS,),
        HARDLY_ANY,
        habits=Habits(begin=0.5),
        seed=3,
    ),
    Mutant(
        "a job stays blocked past its begin",
        _a_job_stays_blocked_past_its_begin,
        (P.BEGINS,),
        HARDLY_ANY,
        habits=Habits(begin=0.5),
    ),
    Mutant(
        "components wait at their barriers without an end",
        _components_wait_without_an_end,
        (P.CLAIM,),
        {"job_pending_for_ever": 3, "batch_system_down": 3},
        {"submit_many": 6, "local_job": 6, "cancel": 0},
        Habits(long=0.6, queue=1),
    ),
    Mutant(
        "components in queues are given back, too",
        _components_in_queues_are_given_back,
        (P.HELD,),
        {"job_pending_for_ever": 3},
        {"submit_many": 6, "local_job": 6, "cancel": 0},
        Habits(long=0.6, queue=1),
    ),
    Mutant(
        "a component that is given back counts as a failure",
        _a_component_that_is_given_back_counts,
        (P.HELD,),
        {"job_pending_for_ever": 3},
        {"submit_many": 6, "local_job": 6, "cancel": 0},
        Habits(long=0.6, queue=1),
    ),
    Mutant("losers of a race keep their places", _losers_keep_their_places, (P.RACE,), *RACES),
    Mutant(
        "candidates are released beside the winner",
        _candidates_are_released_beside_the_winner,
        (P.RACE, P.WHOLE),
        *RACES,
    ),
    Mutant("the winner of a race is cancelled", _the_winner_is_cancelled, (P.ENDS,), *RACES, after_faults=True, seed=2),
    Mutant("a candidate that is lost counts", _a_candidate_that_is_lost_counts, (P.RACE, P.ENDS), *RACES),
    Mutant("two candidates have one number", _two_candidates_have_one_number, (P.AGREE, P.OUTLIVED), *RACES),
    Mutant(
        "a job is released while sweeps use its processors",
        _a_job_is_released_while_sweeps_use_its_processors,
        (P.FILLED,),
        HARDLY_ANY,
        {"submit_many": 6, "submit_sweep": 3, "local_job": 6, "cancel": 0},
        Habits(long=0.6, queue=1, optional=0),
        seed=75,
    ),
    Mutant(
        "a filler leaves before its batch job is over",
        _a_filler_leaves_before_its_batch_job_is_over,
        (P.PILOT,),
        {"job_pending_for_ever": 3},
        SWEEPS | {"submit_many": 6},
        Habits(long=0.6, queue=1),
        seed=4,
    ),
    Mutant(
        "components are held for more than their bound",
        _components_are_held_for_more_than_their_bound,
        (P.HELD,),
        {"job_pending_for_ever": 3},
        {"submit_many": 6, "local_job": 6, "cancel": 0},
        Habits(long=0.6, queue=1, held_limit=1),
        seed=9,
    ),
    Mutant(
        "a job that may hold nothing more enters queues again",
        _a_job_that_may_hold_nothing_enters_queues,
        (P.HELD,),
        {"job_pending_for_ever": 3},
        {"submit_many": 6, "local_job": 6, "cancel": 0},
        Habits(long=0.6, queue=1, held_limit=1),
    ),
    Mutant(
        "components of the same job do not count in the backlog",
        _components_of_the_same_job_do_not_count_in_the_backlog,
        (P.BACKLOG,),
        HARDLY_ANY,
        {"submit_many": 6, "local_job": 6},
        seed=11,
    ),
    Mutant(
        "the backlog counts measured batch jobs only",
        _the_backlog_counts_measured_jobs_only,
        (P.BACKLOG,),
        HARDLY_ANY,
        {"submit_many": 6, "local_job": 6},
        seed=11,
    ),
    Mutant(
        "a parameter that is out is given out again",
        _parameters_that_are_out_are_fed_again,
        (P.ALONE,),
        HARDLY_ANY,
        SWEEPS,
        seed=2,
    ),
    Mutant("jobs that are not final are pruned", _active_jobs_are_pruned, (P.PRUNED,), HARDLY_ANY, {"prune": 6}),
    Mutant(
        "records are pruned before directories",
        _records_are_pruned_before_directories,
        (P.PRUNED,),
        HARDLY_ANY,
        {"prune": 6},
    ),
    Mutant(
        "the idle share is ignored",
        _the_idle_share_is_ignored,
        (P.LIMITS,),
        HARDLY_ANY,
        SWEEPS_AND_OTHERS,
        seed=4,
    ),
    Mutant("the hours are ignored", _hours_are_ignored, (P.LIMITS,), HARDLY_ANY, SWEEPS, seed=2),
    Mutant("the maximum of nodes is ignored", _max_nodes_is_ignored, (P.LIMITS,), HARDLY_ANY, SWEEPS),
    Mutant(
        "sweeps are admitted without bound", _sweeps_are_admitted_without_bound, (P.LIMITS,), HARDLY_ANY, SWEEPS, seed=2
    ),
    Mutant(
        "a held sweep skips a state of its table",
        _a_held_sweep_skips_its_table,
        (P.ENDS,),
        HARDLY_ANY,
        SWEEPS | {"hold_sweep": 5},
        seed=2,
    ),
    Mutant(
        "a job that fits exactly is not tried",
        _a_job_that_fits_exactly_is_not_considered,
        (P.FITS,),
        HARDLY_ANY,
        seed=60,
    ),
    Mutant(
        "a measurement starts no scheduling pass",
        _a_measurement_starts_no_scheduling_pass,
        (P.FITS,),
        HARDLY_ANY,
        seed=35,
    ),
    Mutant(
        "no job waits for silent clusters after a start",
        _no_job_waits_for_silent_clusters,
        (P.ANSWERED,),
        {"koalad_killed": 4},
    ),
    Mutant("all components of a job go to one cluster", _a_job_goes_to_one_cluster_only, (P.FITS,), HARDLY_ANY),
    Mutant("no job goes into a batch queue", _no_job_is_sent_to_a_batch_queue, (P.FITS,), HARDLY_ANY),
    Mutant(
        "optional components need a batch queue too",
        _optional_components_need_a_batch_queue_too,
        (P.FITS,),
        {"batch_system_down": 3, "cluster_down": 3},
        {"submit_many": 6, "local_job": 6},
        OPTIONAL,
        seed=24,
    ),
    Mutant(
        "content hashes of staged files are not checked",
        _digests_of_staged_files_are_not_checked,
        (P.CONTENTS,),
        {"shared_lost": 6},
        seed=3,
    ),
    Mutant(
        "the output of the last component replaces that of others",
        _the_last_component_s_output_is_collected,
        (P.CONTENTS,),
        HARDLY_ANY,
    ),
    Mutant("one prerequisite is enough", _one_prerequisite_is_enough, (P.AFTER,), HARDLY_ANY, FLOWS),
    Mutant("a failure is not passed on", _a_failure_is_not_passed_on, (P.AFTER,), HARDLY_ANY, FLOWS),
    Mutant("a cancelled flow waits again", _a_cancelled_flow_waits_again, (P.ENDS,), HARDLY_ANY, FLOWS | {"cancel": 4}),
    Mutant(
        "a try in doubt is made again",
        _a_try_in_doubt_is_made_again,
        (P.NOTIFIED,),
        {"koalad_killed": 6},
        habits=NOTIFYING,
    ),
    Mutant(
        "a notification that may have arrived is sent again",
        _what_may_have_arrived_is_sent_again,
        (P.NOTIFIED,),
        HARDLY_ANY,
        habits=NOTIFYING,
    ),
    Mutant(
        "a cluster that refuses is tried again at once",
        _a_cluster_that_refuses_is_tried_again_at_once,
        (P.PAUSED,),
        {"submit_refused": 6},
    ),
    Mutant(
        "a cluster that refuses one job after another is still used",
        _a_cluster_that_refuses_all_is_used,
        (P.PAUSED,),
        {"submit_refused": 12},
        {"submit_many": 6},
    ),
    Mutant(
        "a refused choice is tried again",
        _a_refused_choice_is_tried_again,
        (P.CHOICES,),
        habits=MATCHING,
        seed=12,
    ),
    Mutant("requirements do not matter", _requirements_do_not_matter, (P.CHOICES,), HARDLY_ANY, habits=MATCHING),
    Mutant(
        "a group has processors too few", _a_group_has_processors_too_few, (P.CHOICES,), HARDLY_ANY, habits=MATCHING
    ),
    Mutant("a range gets its least", _a_range_gets_its_least, (P.RANGES,), HARDLY_ANY, habits=RANGES),
    Mutant("a range goes below its least", _a_range_goes_below_its_least, (P.RANGES,), HARDLY_ANY, habits=RANGES),
    Mutant(
        "a drained cluster is still offered to the broker",
        _drained_clusters_are_offered_to_the_broker,
        (P.DEPARTED,),
        HARDLY_ANY,
        {"drain_cluster": 3, "resume_clusters": 3},
    ),
    Mutant(
        "commands still go to a cluster that has left",
        _commands_go_to_clusters_that_have_left,
        (P.DEPARTED,),
        {"cluster_down": 3, "job_killed": 3},
        {"add_cluster": 4, "remove_cluster_by_force": 4},
    ),
    Mutant(
        "a pilot leaves before its batch job is over",
        _a_pilot_leaves_before_its_batch_job_is_over,
        (P.PILOT,),
        HARDLY_ANY,
        PILOTS,
        seed=3,
    ),
    Mutant(
        "an idle pilot is one that has run for its idle time",
        _an_idle_pilot_is_one_that_has_run_for_its_idle_time,
        (P.PILOT,),
        HARDLY_ANY,
        PILOTS,
        seed=3,
    ),
    Mutant(
        "jobs are placed on a pilot that ends",
        _jobs_are_placed_on_a_pilot_that_ends,
        (P.DEPARTED, P.PILOT),
        HARDLY_ANY,
        PILOTS,
        seed=11,
    ),
    Mutant(
        "a pilot without a job stays", _a_pilot_without_a_job_stays, (P.ENDS,), HARDLY_ANY, PILOTS, after_faults=True
    ),
    Mutant(
        "a starting koalad knows no pilots",
        _a_starting_koalad_knows_no_pilots,
        (P.DEPARTED, P.SOUND, P.AGREE, P.ENDS),
        {"koalad_killed": 3},
        PILOTS,
    ),
    Mutant(
        "a wrapper that finds no relay seeks it no more",
        _a_wrapper_seeks_no_more,
        (P.BACK,),
        AWAY,
        {"submit": 12},
        after_faults=True,
    ),
    Mutant(
        "a wrapper tries its relay again after ten minutes",
        lambda: patch.object(contact, "FIRST_RETRY", 10 * MINUTE),
        (P.BACK,),
        AWAY,
        {"submit": 12},
        after_faults=True,
    ),
    Mutant(
        "a wrapper waits for ever for a relay that does not answer",
        lambda: patch.object(contact, "CONNECT_WITHIN", 1 << 50),
        (P.BACK,),
        {"relay_cut": 6, "kcm_killed": 6, "node_cut_off": 6},
        {"submit": 12},
        after_faults=True,
        seed=7,
    ),
    Mutant(
        "bytes of a stream that come after a gap are taken",
        _bytes_after_a_gap_are_taken,
        (P.STREAMS,),
        CUTS,
        STREAMING,
        LONG,
    ),
    Mutant(
        "bytes of a stream that come again are taken again",
        _bytes_that_come_again_are_taken_again,
        (P.STREAMS,),
        CUTS,
        STREAMING,
        LONG,
        seed=150,
    ),
    Mutant(
        "an end of a stream waits for ever for one that is gone",
        _a_silent_end_is_waited_for,
        (P.STREAMS,),
        CUTS | {"wrapper_killed": 3, "job_killed": 3},
        STREAMING,
        LONG,
        after_faults=True,
    ),
    Mutant(
        "refused logins are tried for ever",
        _refused_logins_are_repeated_without_bound,
        (P.LOGINS,),
        {"logins_refused": 6},
    ),
    Mutant(
        "koala login is ignored after three refusals",
        _no_person_can_retry_after_three_refusals,
        (P.ENDS,),
        {"logins_refused": 6},
        after_faults=True,
        seed=5,
    ),
    Mutant(
        "a session that lasted does not reset the back-off",
        _a_long_session_does_not_reset_the_back_off,
        (P.RECONNECTED,),
        {"connection_cut": 4, "cluster_down": 4},
    ),
    Mutant(
        "jobs are vacated for a job that is not claimed",
        _jobs_are_vacated_without_a_claim,
        (P.PREEMPTS,),
        HARDLY_ANY,
        habits=URGENT,
    ),
    Mutant(
        "more jobs are vacated than are needed",
        _more_jobs_are_vacated_than_are_needed,
        (P.PREEMPTS,),
        HARDLY_ANY,
        habits=URGENT,
    ),
    Mutant(
        "a vacated job goes to the tail of the queue",
        _a_vacated_job_goes_to_the_tail,
        (P.COMES_BACK,),
        HARDLY_ANY,
        habits=URGENT,
    ),
    Mutant(
        "a vacated job starts again beside itself",
        _a_vacated_job_starts_again_beside_itself,
        (P.ALONE,),
        HARDLY_ANY,
        habits=Habits(long=0.6, urgent=0.1),
        seed=3,
    ),
    Mutant(
        "a suspended job is never resumed",
        _a_suspended_job_is_never_resumed,
        (P.SUSPENDED,),
        HARDLY_ANY,
        habits=Habits(long=0.9, urgent=0.4),
        seed=39,
    ),
    Mutant("one pilot holds two leases", _one_pilot_holds_two_leases, (P.POOL,), sites=3),
    Mutant(
        "the cluster of a lease never leaves",
        _the_cluster_of_a_lease_never_leaves,
        (P.LEASE_ENDS,),
        after_faults=True,
        sites=2,
    ),
    Mutant(
        "a returned lease costs its borrower nothing",
        _a_returned_lease_costs_its_borrower_nothing,
        (P.CHARGES,),
        after_faults=True,
        sites=2,
    ),
    Mutant(
        "the account of a lease has the borrower's own figure",
        _the_account_of_a_lease_has_the_borrowers_own_figure,
        (P.CHARGES,),
        after_faults=True,
        sites=2,
    ),
    Mutant(
        "a lease has ended before its pilot",
        _a_lease_is_over_before_its_pilot,
        (P.AFTER_LEASE,),
        HARDLY_ANY,
        {"end_lease": 10},
        sites=2,
    ),
    Mutant(
        "parameters stay on a lease that has ended",
        _parameters_stay_on_a_lease_that_is_over,
        (P.PARAMETERS,),
        {"pilot_killed": 6},
        {"submit_sweep": 20, "end_lease": 6},
        sites=2,
    ),
    Mutant(
        "a lease is offered before its examination", _a_lease_is_offered_before_its_examination, (P.EXAMINED,), sites=3
    ),
    Mutant(
        "messages that wait are lost as a neighbour changes",
        _messages_that_wait_are_lost_as_a_neighbour_changes,
        (P.LEASE_ENDS, P.ENDS),
        HARDLY_ANY,
        {"neighbour_changes": 20},
        after_faults=True,
        sites=2,
    ),
    Mutant(
        "a connection that comes too late is left open",
        _a_late_connection_is_left_open,
        (P.STRAYS,),
        HARDLY_ANY,
        {"logins_hang": 10},
        sites=2,
    ),
    Mutant("requests are not remembered", _requests_are_not_remembered, (P.SERVED,), UNSERVED, sites=5),
    Mutant(
        "the end of a lease that never was is entered",
        _the_end_of_a_lease_that_never_was_is_entered,
        (P.CHARGES,),
        HARDLY_ANY,
        {"forge_end": 20},
        after_faults=True,
        sites=2,
    ),
    Mutant(
        "a failure on a lease ends the job",
        _a_failure_on_a_lease_ends_the_job,
        (P.UNSUITED,),
        HARDLY_ANY,
        AT_HOME,
        sites=2,
    ),
    Mutant("a lender is not left out", _a_lender_is_not_left_out, (P.UNSUITED,), HARDLY_ANY, AT_HOME, sites=2),
    Mutant(
        "later leases of a lender are not closed",
        _later_leases_of_a_lender_are_not_closed,
        (P.UNSUITED,),
        HARDLY_ANY,
        AT_HOME,
        sites=2,
    ),
)


def hunt(mutant: Mutant) -> tuple[int, int, Violation | None]:
    """Run seeds until the mutant is caught. Returns the number of events, the last seed, and the violation or None.

    Raises AssertionError if the mutant's own function fails.
    """
    spent, seed = 0, mutant.seed
    with mutant.begin():
        while spent < ENOUGH:
            result = _run(mutant, seed)
            spent += result.happened
            if result.violation is not None:
                if result.violation.promise in mutant.promises:
                    return spent, seed, result.violation
                _fail_if_mistyped(result.violation)
            seed += 1
    return spent, seed, None


def _fail_if_mistyped(violation: Violation) -> None:
    """Fail at an error that the mutant's own function raised: it is mistyped, and shows nothing about koalapy."""
    error = violation.__cause__
    if error is not None and traceback.extract_tb(error.__traceback__)[-1].filename == __file__:
        raise AssertionError(f"the mutant is mistyped: {violation.details}") from error


def _run(mutant: Mutant, seed: int) -> Result:
    events = (RUN_EVENTS if mutant.sites == 1 else SITES_EVENTS) // (5 if mutant.after_faults else 1)
    actions = None
    if mutant.sites > 1:
        actions = schedule_of_sites(seed, events, tuple(mutant.faults), mutant.user_actions)
    elif mutant.user_actions or mutant.faults or not mutant.after_faults:
        actions = plan(
            seed, events, JOB_ACTIONS | dict(mutant.user_actions), mutant.faults or FAULTS, mixed=not mutant.faults
        )
    until, patience = (None, PATIENCE) if mutant.after_faults else (events, None)
    habits = None if mutant.after_faults else mutant.habits
    return run(seed, events, until=until, patience=patience, actions=actions, habits=habits, sites=mutant.sites)


@pytest.mark.parametrize(
    "mutant", half_of(MUTANTS), ids=lambda mutant: f"{mutant.promises[0]}: {mutant.name}".replace(" ", "-")
)
def test_mutant_is_caught(mutant: Mutant) -> None:
    spent, seed, violation = hunt(mutant)
    print(f"{mutant.name}: {spent} events, seed {seed}: {violation}")
    assert violation is not None, "the mutant was not caught"
    assert violation.promise in mutant.promises, str(violation)
    assert spent <= ENOUGH


def test_a_mistyped_mutant_fails_at_once() -> None:
    def mistyped(self: Any, deliveries: Any) -> None:
        self._no_such_attribute(deliveries)

    mutant = Mutant("a mistyped one", lambda: patch.object(Driver, "step", mistyped), (P.ENDS,))
    with pytest.raises(AssertionError, match="mistyped"):
        hunt(mutant)


def test_every_fault_and_user_action_of_a_mutant_exists() -> None:
    for mutant in MUTANTS:
        faults = {*FAULTS, *BYZANTINE} if mutant.sites == 1 else {*SITE_FAULTS}
        assert [name for name in mutant.faults if name not in faults] == [], mutant.name
        known = {*USER_ACTIONS, *PRUNING, *CLUSTER_ACTIONS, *FLOW_ACTIONS, *PILOT_ACTIONS, *STREAMS}
        known = known if mutant.sites == 1 else {*SITE_USERS, *BESIDE}
        assert [name for name in mutant.user_actions if name not in known] == [], mutant.name


def test_every_promise_has_a_mutant_that_breaks_it_alone() -> None:
    alone = {mutant.promises[0] for mutant in MUTANTS if len(mutant.promises) == 1}
    assert [each.name for each in P if each not in alone] == []


def test_the_table_of_promises_names_all_mutants_and_checkers() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)`: (.*) \|$", FAULTS_PAGE.read_text(), re.MULTILINE))
    assert list(rows) == [each.name for each in P]
    for each in P:
        words, watched, mutants = rows[each.name].split(" | ")
        assert words == each
        places = re.findall("`(.*?)`", watched)
        assert places
        for place in places:
            assert f"Promise.{each.name}," in (CHAOS / place).read_text(), (each.name, place)
        assert mutants.split("; ") == [mutant.name for mutant in MUTANTS if each in mutant.promises]


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for each in MUTANTS:
        if not chosen or any(word in each.name for word in chosen):
            print(each.name, *hunt(each), sep=": ", flush=True)
