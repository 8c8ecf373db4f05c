"""Each test breaks one promise on purpose, in one function of koalapy's own, and chaos must catch it.

`python tests/simulation/test_mutants.py` says of each how many events it took.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from koalapy_adapters import claims, messages
from koalapy_adapters.batch import wanting
from koalapy_adapters.kcm import ending, submitting, wrappers
from koalapy_adapters.kcm.commands import BatchSystem
from koalapy_adapters.launcher import journal
from koalapy_adapters.wrapper import events, start
from koalapy_adapters.wrapper.machine import AT_BARRIER
from koalapy_adapters.wrapper.machine import Machine as WrapperMachine

from koalapy.coallocation import barrier, stopping
from koalapy.coallocation.followup import FollowUps
from koalapy.coallocation.speaking import Speaking
from koalapy.driver import Driver
from koalapy.information import promises
from koalapy.model.intervals import Intervals
from koalapy.model.job import Outcome
from koalapy.model.states import ComponentState, JobState
from koalapy.model.sweep import ResultBatch
from koalapy.model.units import Duration, Instant
from koalapy.scavenging import parameters, reclaim
from koalapy.scheduler import queue
from koalapy.scheduler.ahead import Ahead
from koalapy.simulation.chaos.moves import FAULTS
from koalapy.simulation.chaos.plan import plan
from koalapy.simulation.chaos.run import Result, run
from koalapy.simulation.chaos.violation import Promise as P
from koalapy.simulation.chaos.violation import Violation
from koalapy.simulation.koalad.host import SimKoalad
from koalapy.simulation.koalad.life import Life
from koalapy.simulation.requests import Habits
from koalapy.store.memory import MemoryStore

ENOUGH = 50_000  # events, within which every one is caught
COURSE, PATIENCE = 5_000, 20_000
LONG, OPTIONAL = Habits(long=0.9, walltime=0, exit_status=0), Habits(optional=0.8)
SWEEPS = {"submit": 1, "submit_many": 0, "cancel": 0, "submit_sweep": 10}
SWEEPS_AND_OTHERS = {"submit": 0, "submit_many": 0, "submit_sweep": 3, "local_jobs_want_nodes": 3}
HARDLY_ANY = {"commands_fail": 1}
USUAL = {"submit": 12, "submit_many": 3, "cancel": 2, "release": 1}


class Mutant(NamedTuple):
    """`begin` replaces what is broken; one of these promises is then seen to be broken.

    `faults`: those that it takes, none for the usual ones; `doings` beside the usual, or as often in place of them; the
    users' `habits`. `calm`: it shows only when all should have come to rest. `seed`: where to look first.
    """

    name: str
    begin: Callable[[], Any]
    promises: tuple[P, ...]
    faults: Mapping[str, int] = {}
    doings: Mapping[str, int] = {}
    habits: Habits = Habits()
    calm: bool = False
    seed: int = 1


# ---- the cluster side


def _whoever_asks_has_the_claim() -> Any:
    real = claims.take

    def take(attempt: str, claim: Any, files: Any = claims.DISK) -> Any:
        real(attempt, claim, files)
        return claim

    return patch.object(claims, "take", take)


def _whoever_asks_has_the_claim_and_is_released_again() -> Any:
    """By its KCM, which keeps a release that was answered: a second start need not stand at a barrier in vain."""
    real = wrappers._answer_release

    def answer_release(attempt: Any) -> list[Any]:
        kept = attempt.release
        answers = real(attempt)
        attempt.release = kept
        return answers

    return _together(_whoever_asks_has_the_claim(), patch.object(wrappers, "_answer_release", answer_release))


def _a_revocation_is_not_looked_at() -> Any:
    real = start.decide

    def decide(*arguments: Any) -> str:
        verdict = real(*arguments)
        return start.RUN if verdict == start.LEAVE else verdict

    return patch.object(start, "decide", decide)


def _a_doubt_is_ignored() -> Any:
    real = submitting.asked
    return patch.object(
        submitting, "asked", lambda core, now, attempt, request, doubt: real(core, now, attempt, request, False)
    )


def _a_wrapper_releases_itself_at_its_barrier() -> Any:
    real = WrapperMachine._advance

    def advance(self: Any, now: int) -> list[Any]:
        before = self._report.phase
        commands = real(self, now)
        came = self._report.phase == AT_BARRIER and before != AT_BARRIER
        return [*commands, events.ReleaseNodes(0, [])] if came else commands

    return patch.object(WrapperMachine, "_advance", advance)


def _a_wrapper_forgets_its_barriers_deadline() -> Any:
    return _without_the_deadline("_leave_barrier")


def _without_the_deadline(act: str) -> Any:
    real, forgotten = WrapperMachine._deadlines, getattr(WrapperMachine, act)

    def deadlines(self: Any) -> list[Any]:
        return [(due, what) for due, what in real(self) if what.__func__ is not forgotten]

    return patch.object(WrapperMachine, "_deadlines", deadlines)


def _gone_is_said_too_early() -> Any:
    return patch.object(ending, "_harmless", lambda core, now, attempt, end: True)


def _an_orphan_runs_on() -> Any:
    return _without_the_deadline("_orphaned")


def _an_attempt_is_found_by_its_number_alone() -> Any:
    """Whichever store it is of."""
    real = BatchSystem.look

    def look(self: Any, tag: str, batch_id: str) -> Any:
        found = real(self, tag, batch_id)
        alike = [each for each in self.capacity().statuses.values() if each.name[6:] == tag[6:]]
        return found if found.listed or not alike else found._replace(listed=alike[-1])

    return patch.object(BatchSystem, "look", look)


# ---- the grid side


def _an_event_is_acknowledged_before_its_commit() -> Any:
    real = Driver.step

    def step(self: Any, deliveries: Any) -> None:
        for delivery in deliveries:
            if delivery.acknowledge is not None:
                self._links.acknowledge(*delivery.acknowledge)
        real(self, deliveries)

    return patch.object(Driver, "step", step)


def _a_command_leaves_before_its_commit() -> Any:
    real = Driver.retry

    def retry(self: Any) -> None:
        if self._uncommitted is not None:
            for entry in self._uncommitted[0].sent:
                self._links.send(entry, False)
        real(self)

    return patch.object(Driver, "retry", retry)


def _the_outbox_is_not_sent_again() -> Any:
    return patch.object(Driver, "_outbox_of", lambda self, clusters: [])


def _one_retry_too_many() -> Any:
    real = stopping.settle
    return patch.object(
        stopping,
        "settle",
        lambda records, now, job, submissions, completions: real(records, now, job, submissions + 1, completions + 1),
    )


def _an_optional_component_is_needed() -> Any:
    def go_without(records: Any, now: Any, job: Any, late: Any) -> None:
        reason = barrier._too_late("barrier_timeout", late, Duration(0))
        stopping.stop(records, now, job, Outcome.SUBMISSION_FAILURE, reason)

    return patch.object(barrier, "_go_without", go_without)


def _promised_processors_are_forgotten() -> Any:
    return patch.object(promises.Promises, "on", lambda self, cluster: (0, 0))


def _priority_counts_for_nothing() -> Any:
    real = queue.Place
    return patch.object(queue, "Place", lambda priority, place, job: real(0, place, job))


def _passing_is_not_counted() -> Any:
    return patch.object(Ahead, "overtake", lambda self: None)


def _released_although_one_is_missing() -> Any:
    def release(records: Any, now: Any, job: Any, at_barrier: Any) -> None:
        came = any(job.attempt_of(component) in at_barrier for component in job.present)
        if job.state is JobState.CLAIMING and came:
            barrier._release(records, now, job)

    return patch.object(barrier, "release_if_whole", release)


def _a_debt_is_not_kept() -> Any:
    real = MemoryStore.commit
    return patch.object(MemoryStore, "commit", lambda self, change: real(self, replace(change, debts=())))


def _time_stands_still_while_the_host_sleeps() -> Any:
    """For koalad, as CLOCK_MONOTONIC does: it notices no sleep, and no wrapper need say again where it is."""
    awake = patch.object(SimKoalad, "now", lambda self: Instant(self.agenda.now + self._ahead - self.slept))
    unnoticed = patch.object(Life, "slept", lambda self: Duration(0))
    return _together(awake, unnoticed, _who_came_to_a_barrier_counts_for_ever())


def _who_came_to_a_barrier_counts_for_ever() -> Any:
    """Whichever session its wrapper said so in."""

    def end_session(self: Any, cluster: str) -> None:
        for job, component in self._records.live(cluster):
            if component.state is ComponentState.AT_BARRIER:
                self._at_barrier.add(job.attempt_of(component), cluster)
        self.rouse(cluster)

    return patch.object(FollowUps, "end_session", end_session)


def _a_cluster_speaks_for_others() -> Any:
    return patch.object(Speaking, "heed", lambda self, records, event: event)


def _no_value_of_a_message_is_looked_at() -> Any:
    """By koalad: whatever a KCM says is taken as it is."""

    def unchecked(kind: Any) -> Any:
        return lambda data: kind(*(data.get(field, kind._field_defaults.get(field)) for field in kind._fields))

    heard = (messages.FROM_KCM, messages.EVENTS)
    return _together(*(patch.dict(each, {name: unchecked(messages.MESSAGES[name]) for name in each}) for each in heard))


@contextmanager
def _together(*mutants: Any) -> Iterator[None]:
    with ExitStack() as begun:
        for mutant in mutants:
            begun.enter_context(mutant)
        yield


# ---- sweeps


def _a_result_is_recorded_whenever_it_is_told() -> Any:
    """Whether it was recorded before, and whether its parameter is out on the cluster that tells it."""

    def ended(records: Any, event: Any, fed: Any = None) -> tuple[Any, int]:
        sweep = parameters.sweep_of(records, event.sweep)
        if sweep is None:
            return (), 0
        runner, numbers = sweep.runner, Intervals.numbers(each.number for each in event.results)
        out, returned = parameters.without(runner.out, numbers), parameters.without(runner.returned, numbers)
        parameters.put_runner(records, sweep, done=runner.done | numbers, out=out, returned=returned)
        records.result(ResultBatch(sweep.id, event.cluster, event.attempt, tuple(event.results)))
        return tuple(event.results), 0

    return patch.object(parameters, "ended", ended)


def _nodes_are_not_given_back() -> Any:
    return patch.object(reclaim, "lacking", lambda known, promises, launchers: 0)


def _nobody_is_seen_to_wait() -> Any:
    """By the KCM, which knows of others' jobs from the batch system's queue alone."""
    return patch.object(wanting, "wanted", lambda waits, free, sizes, idle: 0)


def _a_journal_is_not_read() -> Any:
    return patch.object(journal, "read", lambda attempt, files=None, among=None: [])


MUTANTS = (
    Mutant(
        "whoever asks has the claim",
        _whoever_asks_has_the_claim,
        (P.ONCE, P.ALONE, P.NOTHING_LEFT),
        {"job_vanishes": 3, "submit_hangs": 2, "submit_unanswered": 2, "connection_cut": 2},
    ),
    Mutant(
        "whoever asks has the claim and is released again",
        _whoever_asks_has_the_claim_and_is_released_again,
        (P.ONCE,),
        {"job_restarted": 4},
        {"cancel": 0},
        LONG,
    ),
    Mutant(
        "a revocation is not looked at",
        _a_revocation_is_not_looked_at,
        (P.NOTHING_LEFT,),
        {"submit_hangs": 3, "connection_cut": 2, "job_vanishes": 1},
    ),
    Mutant(
        "a doubt is ignored",
        _a_doubt_is_ignored,
        (P.DOUBT, P.NOTHING_LEFT),
        {"connection_cut": 4, "kcm_killed": 4, "koalad_killed": 3, "submit_unanswered": 2},
        {"local_job": 6},
    ),
    Mutant("a wrapper releases itself", _a_wrapper_releases_itself_at_its_barrier, (P.WHOLE,)),
    Mutant(
        "a wrapper forgets its deadline",
        _a_wrapper_forgets_its_barriers_deadline,
        (P.DEADLINE,),
        {"cluster_down": 3, "job_pending_for_ever": 3},
    ),
    Mutant(
        "gone is said too early",
        _gone_is_said_too_early,
        (P.NOTHING_LEFT, P.ALONE),
        {"job_vanishes": 5, "relay_cut": 2},
        {"cancel": 4},
        LONG,
    ),
    Mutant(
        "an orphan runs on",
        _an_orphan_runs_on,
        (P.NOTHING_LEFT, P.ALONE),
        {"node_cut_off": 6},
        habits=LONG,
    ),
    Mutant(
        "an attempt is found by its number alone",
        _an_attempt_is_found_by_its_number_alone,
        (P.OTHERS,),
        {"connection_cut": 3, "submit_unanswered": 3, "job_vanishes": 2},
        {"job_of_another_store": 12, "cancel": 3},
    ),
    Mutant("acknowledged before committed", _an_event_is_acknowledged_before_its_commit, (P.COMMITTED,)),
    Mutant("sent before committed", _a_command_leaves_before_its_commit, (P.COMMITTED,)),
    Mutant("the outbox is not sent again", _the_outbox_is_not_sent_again, (P.ENDS,), calm=True),
    Mutant("one retry too many", _one_retry_too_many, (P.ENDS,), {"job_killed": 3, "submit_refused": 3}),
    Mutant(
        "optional is needed",
        _an_optional_component_is_needed,
        (P.OPTIONAL,),
        {"job_pending_for_ever": 6, "relay_cut": 1, "batch_system_down": 1},
        {"submit_many": 6, "local_job": 6},
        OPTIONAL,
        seed=34,
    ),
    Mutant("promised processors are forgotten", _promised_processors_are_forgotten, (P.PROCESSORS,)),
    Mutant("priority counts for nothing", _priority_counts_for_nothing, (P.ORDER,)),
    Mutant("passing is not counted", _passing_is_not_counted, (P.ORDER,), {"job_killed": 2}, {"local_job": 4}, seed=6),
    Mutant("released although one is missing", _released_although_one_is_missing, (P.WHOLE,)),
    Mutant(
        "time stands still while the host sleeps",
        _time_stands_still_while_the_host_sleeps,
        (P.WHOLE,),
        {"host_sleeps": 4, "barrier_never_reached": 1, "job_pending_for_ever": 1},
        {"submit_many": 6, "local_job": 6},
    ),
    Mutant(
        "who came to a barrier counts for ever",
        _who_came_to_a_barrier_counts_for_ever,
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
        seed=40,
    ),
    Mutant(
        "a cluster speaks for others",
        _a_cluster_speaks_for_others,
        (P.WHOLE, P.AGREE, P.NOTHING_LEFT, P.ALONE, P.ONCE, P.OTHERS),
        {"cluster_lies": 1},
        seed=6,
    ),
    Mutant("no value of a message is looked at", _no_value_of_a_message_is_looked_at, (P.SOUND,), {"cluster_lies": 1}),
    Mutant("a debt is not kept", _a_debt_is_not_kept, (P.AGREE, P.COMMITTED)),
    Mutant(
        "a result is recorded whenever it is told",
        _a_result_is_recorded_whenever_it_is_told,
        (P.RECORDED,),
        {"koalad_killed": 1},
        SWEEPS,
        seed=5,
    ),
    Mutant(
        "a journal is not read",
        _a_journal_is_not_read,
        (P.REPEATED,),
        {"wrapper_killed": 3, "job_killed": 3, "relay_cut": 4},
        SWEEPS,
        seed=29,
    ),
    Mutant("nodes are not given back", _nodes_are_not_given_back, (P.GIVEN_BACK,), HARDLY_ANY, SWEEPS_AND_OTHERS),
    Mutant(
        "nobody is seen to wait",
        _nobody_is_seen_to_wait,
        (P.GIVEN_BACK,),
        HARDLY_ANY,
        SWEEPS_AND_OTHERS,
        calm=True,
        seed=22,
    ),
)


def hunt(mutant: Mutant) -> tuple[int, int, Violation | None]:
    """Events until it was caught, the seed that did, and what was seen to be broken."""
    spent, seed = 0, mutant.seed
    with mutant.begin():
        while spent < ENOUGH:
            result = _course(mutant, seed)
            spent += result.happened
            if result.violation is not None:
                return spent, seed, result.violation
            seed += 1
    return spent, seed, None


def _course(mutant: Mutant, seed: int) -> Result:
    events = COURSE // 5 if mutant.calm else COURSE
    moves = None
    if mutant.doings or not mutant.calm:
        moves = plan(seed, events, USUAL | mutant.doings, mutant.faults or FAULTS, mixed=not mutant.faults)
    until, patience = (None, PATIENCE) if mutant.calm else (events, None)
    return run(seed, events, until=until, patience=patience, moves=moves, habits=None if mutant.calm else mutant.habits)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.promises[0]}: {mutant.name}".replace(" ", "-"))
def test_mutant_is_caught(mutant: Mutant) -> None:
    spent, seed, violation = hunt(mutant)
    print(f"{mutant.name}: {spent} events, seed {seed}: {violation}")
    assert violation is not None, "nobody noticed"
    assert violation.promise in mutant.promises, str(violation)
    assert spent <= ENOUGH


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for each in MUTANTS:
        if not chosen or any(word in each.name for word in chosen):
            print(each.name, *hunt(each), sep=": ", flush=True)
