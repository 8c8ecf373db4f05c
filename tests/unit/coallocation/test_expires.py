"""The instants that users set: a job begins no sooner than one, and fails at another if it was never released."""

from dataclasses import replace

import pytest
from engine_play import INSTANCE, SIZES, Play, alike, check, component, make

from koalapy.broker.wait_deadlines import why_untimely
from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.commands import ReleaseAttempt, SubmitAttempt
from koalapy.model.events import AttemptCleanedUp, CancelRequested, ClusterConnected, HoldRequested, ReleaseRequested
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.request import FlowJob, Moment, WhenBusy
from koalapy.model.settings import BARRIER_WAIT
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


def claimed_early(game: Play, **fields: object) -> JobId:
    """A job that begins after an hour, and is claimed from ten minutes before on."""
    begin = {"begin": Moment(after=HOUR), "claim_before": Duration(10 * MINUTE)}
    job = game.submit(component(8, "alpha"), component(8, "beta"), **begin, **fields)
    wake_until(game, Duration(49 * MINUTE))
    assert state(game, job) is JobState.BLOCKED
    wake_until(game, Duration(2 * MINUTE))
    return job


def released(game: Play) -> list[AttemptId]:
    return [each.attempt for each in game.pending if isinstance(each, ReleaseAttempt)]


def test_the_components_of_a_job_are_held_until_its_begin() -> None:
    game = Play(alike())
    job = claimed_early(game)
    game.measure()
    assert state(game, job) is JobState.CLAIMING
    found = game.job(job)
    orders = [each for each in game.pending if isinstance(each, SubmitAttempt)]
    early = found.submitted_at + HOUR - (found.claimed_at or 0)
    assert {each.walltime - each.request.walltime - game.settings.beside_program for each in orders} == {early}
    game.come(*game.attempts(job))
    wake_until(game, Duration(8 * MINUTE))
    assert (state(game, job), released(game)) == (JobState.CLAIMING, [])
    assert "It begins no sooner than" in summary(explain(game.engine, game.now, found, worst_fit))
    moment = game.engine.next_wakeup()
    assert moment == found.submitted_at + HOUR
    game.apply(after=Duration(moment - game.now))
    assert released(game) == game.attempts(job)
    assert (state(game, job), game.job(job).submission_failures) == (JobState.RUNNING, 0)
    check(game)


def test_the_times_at_barriers_begin_with_the_job() -> None:
    game = Play(alike())
    job = claimed_early(game)
    game.measure()
    game.come(game.attempts(job)[0])
    game.apply(game.report(game.attempts(job)[1], "started"))
    wake_until(game, Duration(13 * MINUTE))
    assert state(game, job) is JobState.CLAIMING, "not yet five minutes after its begin"
    wake_until(game, Duration(3 * MINUTE))
    assert game.job(job).submission_failures == 1


def test_a_component_that_is_held_early_is_given_back_after_the_begin() -> None:
    game = Play(alike(queue_after=Duration(0)))
    game.measure(**SIZES)
    job = claimed_early(game, when_busy=WhenBusy.QUEUE)
    game.measure(**SIZES)
    assert game.job(job).barrier_wait == BARRIER_WAIT
    game.come(game.attempts(job)[0])
    gives_back = game.job(job).submitted_at + HOUR + BARRIER_WAIT
    wake_until(game, Duration(gives_back - game.now - MINUTE))
    assert not game.job(job).given_back
    wake_until(game, Duration(2 * MINUTE))
    assert [each.component for each in game.job(job).given_back] == [0]


def test_a_queue_that_takes_no_such_walltime_is_left_out_until_it_does() -> None:
    game = Play(alike())
    limit = HOUR + game.settings.beside_program + 5 * MINUTE  # five minutes more than the program asks for
    game.measure(**SIZES)
    job = claimed_early(game)

    def measure() -> None:
        for name in ("alpha", "beta"):
            found = game.measurement(name, 0)
            game.apply(replace(found, state=replace(found.state, walltime_limit=Duration(limit))))

    measure()
    assert state(game, job) is JobState.WAITING
    wake_until(game, Duration(5 * MINUTE))
    measure()
    assert state(game, job) is JobState.CLAIMING
