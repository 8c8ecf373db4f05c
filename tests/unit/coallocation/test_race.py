"""A component that waits has candidates in several queues: the first at its barrier wins, and the others leave."""

from typing import Any

import pytest
from engine_play import INSTANCE, SIZES, Play, alike, check, component, grid, present

from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import CancelAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptStuck,
    AttemptSubmitted,
    BatchStatusSeen,
    CancelRequested,
    ClusterLeft,
    SubmissionFailed,
)
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.request import Interactive, WhenBusy
from koalapy.model.settings import Race
from koalapy.model.states import AttemptState, BatchState, Ending, JobState
from koalapy.model.units import DAY, MINUTE, SECOND, Duration, Instant
from koalapy.model.usage import usage_of_try
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.history import sentence
from koalapy.views.jobs import candidates

BUSY = SIZES  # processors of others on each cluster: all of them
REFUSED = Reason("refused", "transient", "The batch system is busy.", "", command="sbatch", exit_status=1)


def race_of(most: int = 3, **fields: Any) -> Any:
    return alike(race=Race(most=most, processors=1_000, **fields))


@pytest.fixture
def game() -> Play:
    return Play(race_of())


def queued(game: Play, *components: Any, **fields: Any) -> JobId:
    """A job that waits in the queues of the busy clusters, with all candidates that it gets."""
    game.measure(**BUSY)
    job = game.submit(*components, when_busy=WhenBusy.QUEUE, **fields)
    for _ in range(50):
        if game.job(job).state is not JobState.WAITING:
            break
        game.wake()
        game.measure(**BUSY)
    accept(game, job)
    return job


def accept(game: Play, job: JobId) -> None:
    """Let further queues be entered, and the batch systems accept what waits for that."""
    game.apply(after=SECOND)
    for each in game.job(job).live:
        if each.state is AttemptState.SUBMITTING:
            game.apply(AttemptSubmitted(attempt=each.id, batch_id=str(each.id)))


def pass_time(game: Play, time: Duration) -> None:
    end = game.now + time
    while (moment := game.engine.next_wakeup()) is not None and moment < end:
        game.apply(after=Duration(max(1, moment - game.now)))
        game.obey()
        game.measure(**BUSY)
    game.apply(after=Duration(max(1, end - game.now)))
    game.obey()


def places(game: Play, job: JobId, index: int = 0) -> list[str]:
    """The clusters in whose queues a component waits, the present attempt's first."""
    found = game.job(job)
    lead = present(found, index)
    return [lead.cluster, *sorted(each.cluster for each in found.candidates_of(index))]


def candidate_on(game: Play, job: JobId, cluster: str, index: int = 0) -> Attempt:
    (found,) = [each for each in game.job(job).candidates_of(index) if each.cluster == cluster]
    return found


def counts(game: Play, kind: HistoryKind) -> int:
    return sum(line.kind == kind for line in game.history)


def test_a_waiting_component_enters_three_queues_and_starts_where_it_comes_first(game: Play) -> None:
    job = queued(game, component(8))
    assert sorted(places(game, job)) == ["alpha", "beta", "gamma"]
    assert len({each.id.number for each in game.job(job).live}) == 3
    first = present(game.job(job))
    winner, other = game.job(job).candidates_of(0)
    game.pending.clear()
    game.come(winner.id)
    assert [each.attempt for each in game.pending if isinstance(each, ReleaseAttempt)] == [winner.id]
    assert {each.attempt for each in game.pending if isinstance(each, CancelAttempt)} == {first.id, other.id}
    assert present(game.job(job)).id == winner.id
    assert game.job(job).state is JobState.RUNNING
    game.obey()
    assert game.job(job).candidates == ()
    game.end(winner.id)
    game.obey()
    assert game.job(job).state is JobState.DONE
    assert game.job(job).submission_failures == 0
    check(game)


def test_the_present_attempt_may_win_as_well(game: Play) -> None:
    job = queued(game, component(8))
    first = present(game.job(job))
    game.come(first.id)
    assert present(game.job(job)).id == first.id
    assert game.job(job).candidates_of(0) == []
    assert all(each.cancelling for each in game.job(job).candidates)


def test_a_loser_at_its_barrier_is_never_released(game: Play) -> None:
    job = queued(game, component(8))
    winner, loser = game.job(job).candidates_of(0)
    game.come(winner.id)
    game.pending.clear()
    game.come(loser.id)
    assert not [each for each in game.pending if isinstance(each, ReleaseAttempt)]
    assert present(game.job(job)).id == winner.id
    (entry,) = [each for each in usage_of_try(game.job(job), now=game.now) if each.attempt == loser.id]
    assert entry.released_at == entry.ended_at, "its time counts as held"


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_settings_and_the_job_set_the_number_of_queues(most: int) -> None:
    by_settings, by_job = Play(race_of(most)), Play(race_of(1))
    assert len(places(by_settings, queued(by_settings, component(8)))) == most
    assert len(places(by_job, queued(by_job, component(8), race=most))) == most


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (component(8, "alpha"), {}),
        (component(8), {"interactive": Interactive.INPUT}),
    ],
)
def test_components_that_name_a_cluster_and_attended_ones_wait_at_one_place(asked: Any, fields: Any) -> None:
    game = Play(race_of())
    assert len(places(game, queued(game, asked, **fields))) == 1


def test_only_the_clusters_that_allow_it_are_entered() -> None:
    game = Play(race_of(of=("beta",)))
    job = queued(game, component(8))
    assert set(places(game, job)[1:]) <= {"beta"}


def test_a_component_that_is_too_large_for_a_cluster_has_no_candidate_there(game: Play) -> None:
    assert places(game, queued(game, component(20))) == ["alpha"]


def test_a_candidate_that_is_refused_is_dropped_and_nothing_is_counted(game: Play) -> None:
    game.measure(**BUSY)
    job = game.submit(component(8), when_busy=WhenBusy.QUEUE)
    while game.job(job).state is JobState.WAITING:
        game.wake()
        game.measure(**BUSY)
    game.apply(after=SECOND)
    one, other = game.job(job).candidates_of(0)
    game.apply(SubmissionFailed(attempt=one.id, reason=REFUSED))
    assert [each.id for each in game.job(job).candidates] == [other.id]
    assert game.job(job).state is JobState.CLAIMING
    assert game.job(job).submission_failures == 0
    assert one.cluster in dict(game.job(job).excluded)
    assert counts(game, HistoryKind.CANDIDATE_LOST) == 1


def test_another_candidate_takes_the_place_of_a_present_attempt_that_fails(game: Play) -> None:
    job = queued(game, component(8))
    first = present(game.job(job))
    rivals = {each.id for each in game.job(job).candidates_of(0)}
    game.end(first.id, status=None, ending="lost")
    assert present(game.job(job)).id in rivals
    assert game.job(job).state is JobState.CLAIMING
    game.obey()
    assert {each.id for each in game.job(job).live} == rivals
    for each in rivals:
        game.end(each, status=None, ending="lost")
    game.obey()
    assert game.job(job).submission_failures == 1, "the last one fails as any attempt does"
    check(game)


def test_a_batch_job_that_will_never_start_leaves_the_race(game: Play) -> None:
    job = queued(game, component(8))
    first = present(game.job(job))
    game.apply(
        BatchStatusSeen(
            attempt=first.id, state=BatchState.HELD, words="JobHeldAdmin", stuck="held", batch_id="1", at=game.now
        )
    )
    assert first.cluster not in places(game, job)
    assert first.cluster in dict(game.job(job).excluded)
    assert [each.attempt for each in game.pending if isinstance(each, CancelAttempt)] == [first.id]
    assert game.job(job).state is JobState.CLAIMING


def test_a_request_that_is_wrong_itself_fails_at_once(game: Play) -> None:
    job = queued(game, component(8))
    wrong = Reason("no_such_file", "request", "There is no such program.", "Correct its path.")
    game.apply(game.report(present(game.job(job)).id, "ended", ending="failed", reason=wrong))
    assert game.job(job).state is JobState.STOPPING
    game.obey()
    assert game.job(job).state is JobState.FAILED


def test_further_queues_are_entered_once_a_minute_at_most(game: Play) -> None:
    job = queued(game, component(8))
    lost = game.job(job).candidates_of(0)[0]
    game.end(lost.id, status=None, ending="lost")
    game.obey()
    pass_time(game, Duration(MINUTE - 2 * SECOND))
    assert len(places(game, job)) == 2
    game.measure(**BUSY)
    pass_time(game, Duration(4 * SECOND))
    assert lost.cluster in places(game, job)
    assert counts(game, HistoryKind.CANDIDATE_QUEUED) == 3


def test_nothing_wakes_the_engine_once_every_queue_is_entered(game: Play) -> None:
    job = queued(game, component(8))
    assert game.engine.core.run_list.races[job] is None


def test_candidates_of_all_jobs_ask_for_a_fourth_of_a_cluster_and_one_always_may() -> None:
    game = Play(alike(race=Race(most=3)))
    for _ in range(3):
        queued(game, component(8))
    there = [each for job in game.jobs.values() for each in job.candidates]
    assert sorted(each.cluster for each in there) == ["alpha", "beta", "gamma"]
    small = Play(alike(race=Race(most=3)))
    many = [queued(small, component(2)) for _ in range(6)]
    asked = dict.fromkeys(SIZES, 0)
    for job in many:
        for each in small.job(job).candidates:
            asked[each.cluster] += each.processors
    assert (asked["beta"], asked["gamma"]) == (4, 4)
    assert 0 < asked["alpha"] <= 8


def test_components_that_communicate_stay_in_one_network() -> None:
    apart = [ClusterSettings(name=name, batch="slurm", network=name) for name in SIZES]
    game = Play(grid(*apart, race=Race(most=3, processors=1_000)))
    together, alone = queued(game, component(4), component(4)), queued(game, component(4))
    assert [len(places(game, together, index)) for index in (0, 1)] == [1, 1]
    assert len(places(game, alone)) == 3


def test_components_of_one_job_race_each_for_itself(game: Play) -> None:
    job = queued(game, component(4), component(4))
    assert [len(places(game, job, index)) for index in (0, 1)] == [3, 3]
    first = game.job(job).candidates_of(0)[0]
    game.come(first.id)
    assert present(game.job(job)).id == first.id
    assert len(places(game, job, 1)) == 3, "the candidates of the other component keep their places"
    second = game.job(job).candidates_of(1)[0]
    game.come(second.id)
    assert game.job(job).state is JobState.RUNNING
    game.obey()
    assert [each.id for each in game.job(job).live] == [first.id, second.id]
    check(game)


def test_a_component_that_was_given_back_races_again(game: Play) -> None:
    job = queued(game, component(4), component(4))
    held = game.job(job).candidates_of(0)[0]
    game.come(held.id)
    pass_time(game, Duration(16 * MINUTE))
    assert present(game.job(job)).state is AttemptState.CLEANED_UP
    pass_time(game, Duration(17 * MINUTE))
    again = present(game.job(job))
    assert again.state in (AttemptState.SUBMITTING, AttemptState.QUEUED)
    assert again.id.number == 4, "no attempt has the number of an earlier candidate"
    accept(game, job)
    pass_time(game, Duration(2 * MINUTE))
    assert len(places(game, job)) == 3


def test_the_younger_of_two_jobs_in_a_deadlock_gives_back(game: Play) -> None:
    older, younger = queued(game, component(4), component(4)), queued(game, component(4), component(4))
    first = present(game.job(older))
    second = next(each for each in game.job(younger).live if each.cluster != first.cluster)
    game.come(first.id)
    game.come(second.id)
    game.now = Instant(game.now + SECOND)
    for name in SIZES:
        waiting = [each.id for job in (older, younger) for each in game.job(job).live if each.cluster == name]
        game.apply(game.measurement(name, SIZES[name], waiting))
    assert present(game.job(older)).state is AttemptState.AT_BARRIER
    assert present(game.job(younger), second.id.component).state is AttemptState.ENDED
    assert game.job(younger).state is JobState.CLAIMING
    assert game.job(younger).submission_failures == 0


def test_a_cancelled_job_leaves_every_queue(game: Play) -> None:
    job = queued(game, component(8))
    game.pending.clear()
    everywhere = {each.id for each in game.job(job).live}
    game.apply(CancelRequested(work=job))
    assert {each.attempt for each in game.pending if isinstance(each, CancelAttempt)} == everywhere
    game.obey()
    assert game.job(job).state is JobState.CANCELLED
    check(game)


def test_a_loser_on_an_unreachable_cluster_does_not_keep_the_job_from_its_end(game: Play) -> None:
    job = queued(game, component(8))
    winner, loser = game.job(job).candidates_of(0)
    game.lose(loser.cluster)
    game.come(winner.id)
    game.end(winner.id)
    game.obey()
    assert game.job(job).state is JobState.DONE
    assert loser.id in game.pending_cancels
    assert game.pending_cancels[loser.id].superseded


def test_a_stuck_loser_becomes_a_pending_cancel(game: Play) -> None:
    job = queued(game, component(8))
    winner, loser = game.job(job).candidates_of(0)
    game.down.add(loser.cluster)
    game.come(winner.id)
    game.apply(AttemptStuck(attempt=loser.id, reason=Reason("stuck", "cluster", "It does not go away.", "")))
    assert loser.id not in [each.id for each in game.job(job).candidates]
    assert loser.id in game.pending_cancels


def test_a_cluster_that_leaves_the_grid_takes_its_candidate_with_it(game: Play) -> None:
    job = queued(game, component(8))
    gone = game.job(job).candidates_of(0)[0]
    game.apply(ClusterLeft(name=gone.cluster))
    assert gone.cluster not in places(game, job)
    assert game.job(job).state is JobState.CLAIMING
    assert game.job(job).submission_failures == 0


def test_a_restart_keeps_all_places(game: Play) -> None:
    job = queued(game, component(8))
    stored = game.job(job)
    engine = Engine(
        race_of(), Policies(worst_fit, fpfs), Snapshot(instance=INSTANCE, jobs=(stored,), counters=game.counters)
    )
    found = engine.job(job)
    assert found == stored
    step = engine.handle(Instant(game.now + DAY), [])
    assert not [each for each in step.commands if isinstance(each, SubmitAttempt)], "nothing is connected yet"


def test_an_answer_of_the_policy_that_is_no_queue_is_noted_once_and_the_shortest_are_entered() -> None:
    def wrong(queues: Any, most: int) -> list[str]:
        return ["nowhere"]

    game = Play(race_of())
    game.engine.core.candidates = wrong
    jobs = [queued(game, component(4)) for _ in range(2)]
    assert [len(places(game, job)) for job in jobs] == [3, 3]
    lines = [line for line in game.history if line.kind == HistoryKind.POLICY_FAILED]
    assert [line.job for line in lines] == jobs
    assert "nowhere" in lines[0].details["message"]


def test_a_candidate_that_was_cancelled_ends_as_cancelled(game: Play) -> None:
    job = queued(game, component(8))
    winner, loser = game.job(job).candidates_of(0)
    game.come(winner.id)
    game.end(loser.id, status=None, ending="void")
    (ended,) = [each for each in game.job(job).candidates if each.id == loser.id]
    assert ended.ending is Ending.CANCELLED
    assert loser.cluster not in dict(game.job(job).excluded)


def test_the_history_has_the_end_of_each_candidate(game: Play) -> None:
    job = queued(game, component(8))
    first = present(game.job(job))
    winner, loser = game.job(job).candidates_of(0)
    game.end(loser.id, status=None, ending="lost")
    game.come(winner.id)
    game.obey()
    found = candidates(line for line in game.history if line.job == job)
    assert {(each["cluster"], each["ended"]) for each in found} == {
        (first.cluster, "cancelled"),
        (winner.cluster, "won"),
        (loser.cluster, "lost"),
    }
    assert all(each["batch_id"] for each in found)
    texts = [sentence(line) for line in game.history]
    assert any("is the first of its component to start; it leaves the queue of" in text for text in texts)
    assert any("enters the queue of" in text for text in texts)


def test_a_component_leaves_a_queue_where_it_has_no_room_beside_another_of_its_job() -> None:
    roomy = [ClusterSettings(name=name, batch="slurm", backlog=64) for name in SIZES]
    game = Play(grid(*roomy, race=Race(most=3, processors=1_000)))
    job = queued(game, component(12), component(12))
    pass_time(game, Duration(2 * MINUTE))
    assert [len(places(game, job, index)) for index in (0, 1)] == [3, 3]
    first = candidate_on(game, job, "beta")
    game.come(first.id)
    assert sorted(places(game, job, 1)) == ["alpha", "gamma"], "beta has 16 processors"
    assert game.job(job).state is JobState.CLAIMING
    check(game)


def test_no_queue_is_entered_where_another_component_has_taken_too_much(game: Play) -> None:
    job = queued(game, component(12, "beta"), component(12))
    game.come(game.attempts(job)[0])
    pass_time(game, Duration(3 * MINUTE))
    assert "beta" not in places(game, job, 1)
