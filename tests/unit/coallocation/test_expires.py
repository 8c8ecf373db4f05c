"""The instants that users set: a job begins no sooner than one, and fails at another if it was never released."""

from dataclasses import replace

import pytest
from engine_play import INSTANCE, SIZES, Play, alike, check, component, make

from koalapy.broker.wait_deadlines import why_untimely
from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.events import AttemptCleanedUp, CancelRequested, ClusterConnected, HoldRequested, ReleaseRequested
from koalapy.model.identity import JobId
from koalapy.model.request import FlowJob, Moment, WhenBusy
from koalapy.model.states import JobState
from koalapy.model.units import DAY, HOUR, MINUTE, Duration, Instant, format_instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.explanation import explain, summary
from koalapy.views.history import sentence


def wake_until(game: Play, time: Duration) -> None:
    """Let time pass, with each instant at which the engine wants to be woken."""
    end = game.now + time
    for _ in range(100):
        moment = game.engine.next_wakeup()
        if moment is None or moment > end:
            break
        game.apply(after=Duration(max(1, moment - game.now)))
        game.obey()
    game.apply(after=Duration(max(1, end - game.now)))
    game.obey()


def state(game: Play, job: JobId) -> JobState:
    return game.job(job).state


def test_a_waiting_job_fails_at_its_time() -> None:
    game = Play(alike())
    game.measure(**SIZES)
    bounded, other = (game.submit(component(8), expires=expires) for expires in (Moment(after=HOUR), None))
    found = game.engine.job(bounded)
    assert found is not None
    assert "It fails if it has not started by" in summary(explain(game.engine, game.now, found, worst_fit))
    wake_until(game, Duration(HOUR - MINUTE))
    assert state(game, bounded) is JobState.WAITING
    wake_until(game, Duration(2 * MINUTE))
    assert (state(game, bounded), state(game, other)) == (JobState.FAILED, JobState.WAITING)
    reason = game.job(bounded).reason
    assert reason is not None
    assert (reason.code, reason.whose, reason.message) == ("expired", "request", "It has not started within 1h.")
    check(game)


def test_held_and_blocked_jobs_fail_too() -> None:
    game = Play(alike())
    game.measure(**SIZES)
    first = game.submit(component(8))
    blocked = game.submit(component(8), after=(first,), expires=Moment(after=HOUR))
    held = game.submit(component(8), expires=Moment(after=HOUR))
    game.apply(HoldRequested(work=held))
    assert (state(game, blocked), state(game, held)) == (JobState.BLOCKED, JobState.HELD)
    wake_until(game, Duration(HOUR + MINUTE))
    assert (state(game, blocked), state(game, held)) == (JobState.FAILED, JobState.FAILED)
    assert state(game, first) is JobState.WAITING


def test_a_claim_is_given_back() -> None:
    game = Play(alike(queue_after=Duration(0)))
    game.measure(**SIZES)
    job = game.submit(
        component(8, "alpha"),
        component(8, "beta"),
        when_busy=WhenBusy.QUEUE,
        expires=Moment(after=Duration(10 * MINUTE)),
    )
    game.come(game.attempts(job)[0])
    wake_until(game, Duration(11 * MINUTE))
    assert state(game, job) is JobState.FAILED
    assert not game.job(job).live
    check(game)


def test_a_job_that_was_released_is_not_bound_any_more() -> None:
    game = Play(alike())
    job = game.submit(component(8, "alpha"), expires=Moment(after=HOUR))
    game.run(job)
    wake_until(game, Duration(2 * HOUR))
    assert state(game, job) is JobState.RUNNING
    game.end(game.attempts(job)[0], None, "killed")
    game.measure(**SIZES)
    game.obey()
    wake_until(game, Duration(2 * HOUR))
    assert state(game, job) is JobState.WAITING
    game.apply(CancelRequested(work=job))


def test_a_released_hold_does_not_extend_the_time() -> None:
    game = Play(alike())
    game.measure(**SIZES)
    job = game.submit(component(8), expires=Moment(after=HOUR))
    game.apply(HoldRequested(work=job), after=Duration(30 * MINUTE))
    game.apply(ReleaseRequested(work=job), after=Duration(20 * MINUTE))
    assert state(game, job) is JobState.WAITING
    wake_until(game, Duration(11 * MINUTE))
    assert state(game, job) is JobState.FAILED


def test_a_job_that_comes_back_after_its_time_fails_at_once() -> None:
    """Nothing else need happen: the end of its lost claim is confirmed after its time."""
    game = Play(alike())
    job = game.submit(component(8, "alpha"), component(8, "beta"), expires=Moment(after=Duration(10 * MINUTE)))
    one, other = game.attempts(job)
    game.come(one)
    game.end(one, None, "killed")
    game.measure(**SIZES)
    game.apply(AttemptCleanedUp(attempt=one), AttemptCleanedUp(attempt=other), after=Duration(HOUR))
    assert state(game, job) is JobState.WAITING
    game.wake()
    assert state(game, job) is JobState.FAILED
    check(game)


def test_a_job_enters_the_wait_queue_at_its_begin() -> None:
    game = Play(alike())
    job = game.submit(component(8, "alpha"), begin=Moment(after=HOUR))
    assert state(game, job) is JobState.BLOCKED
    found = game.engine.job(job)
    assert found is not None
    begins = format_instant(Instant(found.submitted_at + HOUR))
    assert summary(explain(game.engine, game.now, found, worst_fit)) == f"It begins no sooner than {begins}."
    lines = [sentence(each) for each in game.history if each.job == job]
    assert lines == [f"Submitted by me; its request is ordered; it begins no sooner than {begins}."]
    wake_until(game, Duration(HOUR - MINUTE))
    assert state(game, job) is JobState.BLOCKED
    wake_until(game, Duration(2 * MINUTE))
    game.measure()
    assert state(game, job) is JobState.CLAIMING
    check(game)


def test_an_instant_is_a_begin_and_an_end_too() -> None:
    game = Play(alike())
    game.measure(**SIZES)
    now = game.now
    late = game.submit(
        component(8), begin=Moment(instant=Instant(now + HOUR)), expires=Moment(instant=Instant(now + DAY))
    )
    past = game.submit(component(8), begin=Moment(instant=Instant(now)))
    assert (state(game, late), state(game, past)) == (JobState.BLOCKED, JobState.WAITING)
    wake_until(game, Duration(2 * HOUR))
    assert state(game, late) is JobState.WAITING
    wake_until(game, DAY)
    assert state(game, late) is JobState.FAILED
    reason = game.job(late).reason
    assert reason is not None
    assert reason.message == f"It has not started by {format_instant(Instant(now + DAY))}."


@pytest.mark.parametrize("begins_first", [True, False])
def test_a_job_waits_for_its_begin_and_for_others(begins_first: bool) -> None:
    game = Play(alike())
    first = game.submit(component(8, "alpha"))
    job = game.submit(component(8, "alpha"), after=(first,), begin=Moment(after=HOUR))
    if begins_first:
        wake_until(game, Duration(2 * HOUR))
        assert state(game, job) is JobState.BLOCKED
        game.measure()
    game.run(first)
    for each in game.attempts(first):
        game.end(each)
    game.obey()
    assert state(game, first) is JobState.DONE
    if not begins_first:
        assert state(game, job) is JobState.BLOCKED
        wake_until(game, Duration(HOUR + MINUTE))
    game.measure()
    assert state(game, job) is JobState.CLAIMING


def test_a_job_that_is_unheld_waits_for_its_begin_again() -> None:
    game = Play(alike())
    job = game.submit(component(8, "alpha"), begin=Moment(after=HOUR))
    game.apply(HoldRequested(work=job))
    game.apply(ReleaseRequested(work=job))
    assert state(game, job) is JobState.BLOCKED
    game.apply(HoldRequested(work=job), after=HOUR)
    assert state(game, job) is JobState.HELD
    game.measure()
    game.apply(ReleaseRequested(work=job))
    assert state(game, job) is JobState.CLAIMING


def test_a_restarted_koalad_lets_a_job_begin() -> None:
    game = Play(alike())
    job = game.submit(component(8, "alpha"), begin=Moment(after=HOUR))
    snapshot = Snapshot(instance=INSTANCE, counters=game.counters, jobs=tuple(game.jobs.values()))
    game.engine = Engine(game.settings, Policies(worst_fit, fpfs), snapshot)
    for cluster in SIZES:
        game.apply(ClusterConnected(cluster=cluster, version="22.05"))
    wake_until(game, Duration(HOUR + MINUTE))
    game.measure()
    assert state(game, job) is JobState.CLAIMING


@pytest.mark.parametrize(
    ("begin", "expires", "code"),
    [
        (Moment(instant=Instant(9 * HOUR)), None, "begin_past"),
        (None, Moment(instant=Instant(10 * HOUR)), "expires_past"),
        (Moment(after=HOUR), Moment(after=HOUR), "begin_after_expires"),
        (Moment(instant=Instant(12 * HOUR)), Moment(after=HOUR), "begin_after_expires"),
        (Moment(after=HOUR), Moment(instant=Instant(10 * HOUR + MINUTE)), "begin_after_expires"),
        (Moment(instant=Instant(10 * HOUR)), Moment(after=MINUTE), None),
    ],
)
def test_a_job_that_could_never_begin_is_refused(
    begin: Moment | None, expires: Moment | None, code: str | None
) -> None:
    job = make(component(8), begin=begin, expires=expires)
    for request in (job, replace(make(component(8)), components=(), jobs=(FlowJob(request=job),))):
        reason = why_untimely(request, Instant(10 * HOUR))
        assert (None if reason is None else reason.code) == code
        assert reason is None or reason.advice
