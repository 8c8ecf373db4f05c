"""Jobs that do not wait for ever: each fails at the instant that its user set, if it was never released."""

from engine_play import SIZES, Play, alike, check, component

from koalapy.model.events import AttemptCleanedUp, CancelRequested, HoldRequested, ReleaseRequested
from koalapy.model.identity import JobId
from koalapy.model.request import WhenBusy
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, Duration
from koalapy.policies.placement import worst_fit
from koalapy.views.explanation import explain, summary


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
    bounded, other = (game.submit(component(8), expires=expires) for expires in (Duration(HOUR), None))
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
    blocked = game.submit(component(8), after=(first,), expires=Duration(HOUR))
    held = game.submit(component(8), expires=Duration(HOUR))
    game.apply(HoldRequested(work=held))
    assert (state(game, blocked), state(game, held)) == (JobState.BLOCKED, JobState.HELD)
    wake_until(game, Duration(HOUR + MINUTE))
    assert (state(game, blocked), state(game, held)) == (JobState.FAILED, JobState.FAILED)
    assert state(game, first) is JobState.WAITING


def test_a_claim_is_given_back() -> None:
    game = Play(alike(queue_after=Duration(0)))
    game.measure(**SIZES)
    job = game.submit(
        component(8, "alpha"), component(8, "beta"), when_busy=WhenBusy.QUEUE, expires=Duration(10 * MINUTE)
    )
    game.come(game.attempts(job)[0])
    wake_until(game, Duration(11 * MINUTE))
    assert state(game, job) is JobState.FAILED
    assert not game.job(job).live
    check(game)


def test_a_job_that_was_released_is_not_bound_any_more() -> None:
    game = Play(alike())
    job = game.submit(component(8, "alpha"), expires=Duration(HOUR))
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
    job = game.submit(component(8), expires=Duration(HOUR))
    game.apply(HoldRequested(work=job), after=Duration(30 * MINUTE))
    game.apply(ReleaseRequested(work=job), after=Duration(20 * MINUTE))
    assert state(game, job) is JobState.WAITING
    wake_until(game, Duration(11 * MINUTE))
    assert state(game, job) is JobState.FAILED


def test_a_job_that_comes_back_after_its_time_fails_at_once() -> None:
    """Nothing else need happen: the end of its lost claim is confirmed after its time."""
    game = Play(alike())
    job = game.submit(component(8, "alpha"), component(8, "beta"), expires=Duration(10 * MINUTE))
    one, other = game.attempts(job)
    game.come(one)
    game.end(one, None, "killed")
    game.measure(**SIZES)
    game.apply(AttemptCleanedUp(attempt=one), AttemptCleanedUp(attempt=other), after=Duration(HOUR))
    assert state(game, job) is JobState.WAITING
    game.wake()
    assert state(game, job) is JobState.FAILED
    check(game)
