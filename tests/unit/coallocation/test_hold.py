"""Components that came through queues wait at their barriers; what is given back is uncounted, and keeps no other."""

from typing import Any

import pytest
from engine_play import INSTANCE, SIZES, Play, alike, check, component, present

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.commands import CancelAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import AttemptStuck, AttemptSubmitted, CancelRequested, ClusterConnected, ClusterLeft
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.request import WhenBusy
from koalapy.model.settings import BARRIER_WAIT
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration, Instant
from koalapy.model.usage import Usage
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.explanation import explain, summary
from koalapy.views.history import sentence

BUSY = SIZES  # processors of others on each cluster: all of them


def queued(game: Play, *components: Any, **fields: Any) -> JobId:
    """A job whose components are in the queues of their busy clusters."""
    game.measure(**BUSY)
    job = game.submit(*components, when_busy=WhenBusy.QUEUE, **fields)
    for _ in range(50):
        if game.job(job).state is not JobState.WAITING:
            break
        game.wake()
        game.measure(**BUSY)
    for each in game.job(job).live:
        game.apply(AttemptSubmitted(attempt=each.id, batch_id=str(each.id)))
    return job


def pass_time(game: Play, time: Duration) -> None:
    """Let time pass, with each instant at which the engine wants to be woken."""
    end = game.now + time
    while (moment := game.engine.next_wakeup()) is not None and moment < end:
        game.apply(after=Duration(max(1, moment - game.now)))
        game.obey()
        game.measure(**BUSY)
    game.apply(after=Duration(max(1, end - game.now)))
    game.obey()


@pytest.fixture
def game() -> Play:
    return Play(alike())


def two(game: Play, **fields: Any) -> JobId:
    return queued(game, component(8, "alpha"), component(8, "beta"), **fields)


def states(game: Play, job: JobId) -> list[AttemptState]:
    return [each.state for each in game.job(job).attempts if each is not None]


def kinds_of(game: Play, *kinds: HistoryKind) -> int:
    return sum(each.kind in kinds for each in game.history)


def test_a_component_waits_longer_than_the_barriers_time_out_and_the_job_starts(game: Play) -> None:
    job = two(game)
    one, other = game.attempts(job)
    game.come(one)
    pass_time(game, Duration(14 * MINUTE))
    assert game.job(job).state is JobState.CLAIMING
    commands = game.pending[:]
    game.come(other)
    released = [each.attempt for each in game.pending if isinstance(each, ReleaseAttempt) and each not in commands]
    assert released == [one, other]
    assert (game.job(job).submission_failures, game.job(job).held_processor_us) == (0, 8 * 14 * MINUTE) or game.job(
        job
    ).held_processor_us > 0
    check(game)


def test_only_what_is_held_is_given_back_and_queued_again_after_a_pause(game: Play) -> None:
    job = two(game)
    one, other = game.attempts(job)
    game.come(one)
    pass_time(game, Duration(16 * MINUTE))
    record = game.job(job)
    assert record.state is JobState.CLAIMING
    assert (record.submission_failures, record.completion_failures) == (0, 0)
    assert states(game, job) == [AttemptState.CLEANED_UP, AttemptState.QUEUED]
    assert record.held_processor_us == 8 * BARRIER_WAIT
    cancelled = {each.attempt for line in [game.pending] for each in line if isinstance(each, CancelAttempt)}
    assert other not in cancelled
    pass_time(game, Duration(15 * MINUTE))
    again = present(game.job(job))
    assert (again.id.number, again.cluster, again.state) == (2, "alpha", AttemptState.SUBMITTING)
    assert game.attempts(job)[1] == other, "it keeps its place"
    game.come(again.id)
    game.come(other)
    assert game.job(job).state is JobState.RUNNING
    for each in game.attempts(job):
        game.end(each)
    game.obey()
    assert game.job(job).state is JobState.DONE
    assert game.job(job).numbers == (2, 1)
    check(game)


def test_each_pause_is_twice_as_long_up_to_two_hours(game: Play) -> None:
    job, pauses = two(game), []
    for _ in range(5):
        game.come(game.attempts(job)[0])
        pass_time(game, Duration(BARRIER_WAIT + SECOND))
        since = game.now
        (given_back,) = game.job(job).given_back
        pauses.append(given_back.pause // MINUTE)
        pass_time(game, Duration(given_back.again_at - since + SECOND))
        assert present(game.job(job)).state is AttemptState.SUBMITTING
    assert pauses == [15, 30, 60, 120, 120]
    assert game.job(job).submission_failures == 0


def test_a_component_that_comes_ends_the_pause_of_the_others(game: Play) -> None:
    job = two(game)
    one, other = game.attempts(job)
    game.come(one)
    pass_time(game, Duration(16 * MINUTE))
    game.come(other)
    assert present(game.job(job)).id.number == 2
    assert states(game, job) == [AttemptState.SUBMITTING, AttemptState.AT_BARRIER]
    assert game.job(job).state is JobState.CLAIMING, "the attempt that was given back does not count as come"


def test_nothing_is_queued_again_before_nothing_is_left_of_the_attempt(game: Play) -> None:
    job = two(game)
    one, other = game.attempts(job)
    game.come(one)
    game.down.add("alpha")  # its cluster confirms nothing
    pass_time(game, Duration(HOUR))
    game.come(other)
    assert game.job(job).state is JobState.CLAIMING, "nothing starts without it"
    assert present(game.job(job)).id == one
    assert present(game.job(job)).state is AttemptState.ENDED
    stuck = Reason("stuck", "cluster", "It does not go away.", "")
    game.apply(AttemptStuck(attempt=one, reason=stuck))
    assert present(game.job(job)).id.number == 2
    assert one in game.pending_cancels
    game.down.discard("alpha")
    game.obey()
    assert one not in game.pending_cancels


def test_a_job_that_is_cancelled_meanwhile_leaves_nothing(game: Play) -> None:
    for minutes in (1, 16, 32):
        job = two(game)
        game.come(game.attempts(job)[0])
        pass_time(game, Duration(minutes * MINUTE))
        game.apply(CancelRequested(work=job))
        game.obey()
        assert game.job(job).state is JobState.CANCELLED
    check(game)


def test_a_deadlock_gives_back_only_what_is_held(game: Play) -> None:
    older, younger = two(game), queued(game, component(8, "beta"), component(8, "alpha"))
    game.come(game.attempts(older)[0])
    game.come(game.attempts(younger)[0])
    game.now = Instant(game.now + SECOND)
    full = {name: SIZES[name] - 8 for name in ("alpha", "beta")}  # each holds 8 on one of them
    (waits_on_beta,), (waits_on_alpha,) = game.attempts(older)[1:], game.attempts(younger)[1:]
    game.apply(game.measurement("beta", full["beta"], [waits_on_beta]))
    game.apply(game.measurement("alpha", full["alpha"], [waits_on_alpha]))
    assert states(game, older) == [AttemptState.AT_BARRIER, AttemptState.QUEUED]
    assert states(game, younger) == [AttemptState.ENDED, AttemptState.QUEUED]
    assert game.job(younger).state is JobState.CLAIMING
    assert game.job(younger).submission_failures == 0
    game.obey()
    game.come(waits_on_alpha)
    assert present(game.job(younger)).state is AttemptState.CLEANED_UP, "the older job goes first"
    (given_back,) = game.job(younger).given_back
    assert given_back.again_at - game.now > 14 * MINUTE


def test_an_optional_component_in_a_queue_is_not_waited_for_longer_than_the_time_out(game: Play) -> None:
    job = queued(game, component(8, "alpha"), component(8, "beta", optional=True))
    game.come(game.attempts(job)[0])
    pass_time(game, Duration(6 * MINUTE))
    assert game.job(job).state is JobState.RUNNING


@pytest.mark.parametrize("fields", [{"barrier_wait": Duration(0)}, {}])
def test_without_a_wait_the_time_out_applies(fields: dict[str, Any]) -> None:
    game = Play(alike() if fields else alike(barrier_wait=Duration(0)))
    job = two(game, **fields)
    game.come(game.attempts(job)[0])
    pass_time(game, Duration(6 * MINUTE))
    assert game.job(job).submission_failures == 1


@pytest.mark.parametrize("limit", ["the job's", "the grid file's"])
def test_a_job_that_has_held_for_its_processor_hours_waits_for_idle_processors(limit: str) -> None:
    bound = 8 * 20 * MINUTE  # the first wait, and a third of the next one
    game = Play(alike() if limit == "the job's" else alike(held_limit=bound))
    job = two(game, **({"held_limit": bound} if limit == "the job's" else {}))
    game.come(game.attempts(job)[0])
    pass_time(game, Duration(BARRIER_WAIT + SECOND))
    assert game.job(job).state is JobState.CLAIMING, "its wait has ended first"
    pass_time(game, Duration(15 * MINUTE))
    game.come(game.attempts(job)[0])
    pass_time(game, Duration(5 * MINUTE + SECOND))
    record = game.job(job)
    assert record.held_processor_us == pytest.approx(bound, abs=8 * MILLISECOND)
    assert (record.state, record.submission_failures) == (JobState.WAITING, 0)
    assert not record.live
    assert record.reason is not None
    assert record.reason.code == "hold_used_up"
    pass_time(game, Duration(DAY))
    assert game.job(job).state is JobState.WAITING, "it enters no queue again"
    game.measure()
    assert game.job(job).state is JobState.CLAIMING
    game.come(*game.attempts(job))
    assert game.job(job).state is JobState.RUNNING
    check(game)


def test_what_all_components_hold_counts_together() -> None:
    game = Play(alike(held_limit=8 * 20 * MINUTE))
    job = queued(game, component(8, "alpha"), component(8, "beta"), component(8, "gamma"))
    one, other, _ = game.attempts(job)
    game.come(one)
    pass_time(game, Duration(8 * MINUTE))
    game.come(other)
    since = game.now
    assert game.engine.gives_back_at(game.job(job)) == pytest.approx(since + 6 * MINUTE, abs=10 * MILLISECOND)
    pass_time(game, Duration(6 * MINUTE + SECOND))
    assert game.job(job).state is JobState.WAITING


def test_a_job_of_one_component_enters_queues_whatever_it_has_held() -> None:
    game = Play(alike(held_limit=1))
    job = queued(game, component(8, "alpha"))
    assert game.job(job).state is JobState.CLAIMING


def test_the_batch_job_has_the_time_that_it_may_wait(game: Play) -> None:
    job = two(game, barrier_wait=Duration(20 * MINUTE))
    orders = [each for each in game.pending if isinstance(each, SubmitAttempt) and each.attempt.job == job]
    alone = queued(game, component(8, "alpha"))
    (other,) = [each for each in game.pending if isinstance(each, SubmitAttempt) and each.attempt.job == alone]
    assert {each.walltime - other.walltime for each in orders} == {20 * MINUTE}
    assert {each.barrier_timeout - other.barrier_timeout for each in orders} == {20 * MINUTE}


def test_a_restarted_koalad_goes_on(game: Play) -> None:
    job = two(game)
    one, other = game.attempts(job)
    game.come(one)
    pass_time(game, Duration(16 * MINUTE))
    unfinished = tuple(each for each in game.jobs.values() if not each.state.final)
    snapshot = Snapshot(instance=INSTANCE, counters=game.counters, jobs=unfinished)
    game.engine = Engine(game.settings, Policies(worst_fit, fpfs), snapshot)
    for cluster in SIZES:
        game.apply(ClusterConnected(cluster=cluster, version="22.05"))
    pass_time(game, Duration(16 * MINUTE))
    assert present(game.job(job)).id.number == 2
    game.come(*game.attempts(job))
    assert game.job(job).state is JobState.RUNNING
    assert game.attempts(job)[1] == other


def test_it_is_explained(game: Play) -> None:
    job = two(game)
    game.come(game.attempts(job)[0])

    def text() -> str:
        found = game.engine.job(job)
        assert found is not None
        return summary(explain(game.engine, game.now, found, worst_fit))

    assert "component 1 on beta, which is queued" in text()
    assert "Component 0 holds 8 processors at its barrier on alpha since" in text()
    assert "Its components in queues keep their places, and nothing is counted." in text()
    pass_time(game, Duration(16 * MINUTE))
    assert "component 0 on alpha, which is given back" in text()
    assert f"Its waits at barriers have cost {8 * BARRIER_WAIT // SECOND} processor seconds so far." in text()
    assert "holds" not in text()
    assert "Component 0 is queued again at" in text()
    pass_time(game, Duration(15 * MINUTE))
    lines = [sentence(each) for each in game.history if each.job == job]
    assert any("is given back, since others are still in queues; it is queued again at" in each for each in lines)
    assert any("Components at barriers wait 15m for those in queues." in each for each in lines)
    assert kinds_of(game, HistoryKind.COMPONENT_QUEUED_AGAIN) == 1


def test_the_usage_of_what_was_given_back_is_entered_once(game: Play) -> None:
    used: list[Usage] = []
    handle = game.engine.handle

    def noting(now: Instant, events: Any) -> Any:
        step = handle(now, events)
        used.extend(step.usage)
        return step

    game.engine.handle = noting  # type: ignore[method-assign]
    job = two(game)
    one = game.attempts(job)[0]
    game.come(one)
    pass_time(game, Duration(32 * MINUTE))
    (entry,) = used
    assert entry.attempt == one
    assert abs(entry.ended_at - entry.started_at - BARRIER_WAIT) < SECOND
    assert entry.released_at == entry.ended_at, "all of it is held"
    game.apply(CancelRequested(work=job))
    game.obey()
    assert [each.attempt for each in used] == [one]


def test_a_component_whose_cluster_has_left_meanwhile_is_placed_again(game: Play) -> None:
    job = queued(game, component(8, "alpha"), component(8))
    attempt = next(each for each in game.job(job).live if each.cluster != "alpha")
    game.come(attempt.id)
    pass_time(game, Duration(16 * MINUTE))
    game.down.add(attempt.cluster)
    game.apply(ClusterLeft(name=attempt.cluster))
    pass_time(game, Duration(16 * MINUTE))
    record = game.job(job)
    assert record.submission_failures == 0
    assert any(each.kind == HistoryKind.WORK_REQUEUED for each in game.history)
    assert attempt.cluster not in {each.cluster for each in record.live}
    check(game)
