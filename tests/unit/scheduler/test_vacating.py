"""Preemption: who is vacated for a job of high priority, for which job, and how they come back."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from engine_play import INSTANCE, SIZES, Play, alike, component

from koalapy.core.startup import StartupGate
from koalapy.engine import Engine
from koalapy.model.change import Change, Snapshot
from koalapy.model.commands import CancelAttempt, CompareAds, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AdsCompared,
    AttemptStuck,
    CancelRequested,
    ClusterMeasured,
    HoldRequested,
    OutputCollected,
    SubmissionFailed,
)
from koalapy.model.header import Outcome
from koalapy.model.identity import JobId
from koalapy.model.matching import Answer, Match, Verdict
from koalapy.model.settings import Preempt, PreemptBy
from koalapy.model.states import JobState
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.policies.vacating import (
    RunningJob,
    VacatingPolicy,
    lowest_priority_first,
    vacating_error,
    youngest_first,
)
from koalapy.scheduler.schedule import Policies
from koalapy.views.explanation import explain, summary
from koalapy.views.history import sentence
from koalapy.views.metrics import Counting

W, C, R, S = JobState.WAITING, JobState.CLAIMING, JobState.RUNNING, JobState.STOPPING
BUSY = Reason("busy", "transient", "No.", "")


def game(vacating: VacatingPolicy = youngest_first, max_submission_failures: int = 3, **rules: object) -> Play:
    """A grid of alpha (32 processors), beta (16) and gamma (16) that vacates jobs."""
    preempt = Preempt(**{"how": PreemptBy.VACATE, **rules})  # type: ignore[arg-type]
    play = Play(alike(preempt=preempt, max_submission_failures=max_submission_failures))
    snapshot = Snapshot(instance=INSTANCE)
    play.engine = Engine(play.settings, Policies(worst_fit, fpfs, vacating), snapshot)
    for cluster in SIZES:
        play.reach(cluster)
    return play


def running(play: Play, *jobs: JobId) -> list[JobId]:
    """Run these jobs, and measure the clusters then."""
    for job in jobs:
        play.run(job)
    play.measure()
    return list(jobs)


def states(play: Play, *jobs: JobId) -> list[JobState]:
    return [play.job(job).state for job in jobs]


def full_alpha(play: Play) -> list[JobId]:
    """Four jobs of 8 processors each on alpha, the oldest first."""
    return running(play, *[play.submit(component(8, "alpha")) for _ in range(4)])


def urgent(play: Play, processors: int, cluster: str | None = "alpha", **fields: object) -> JobId:
    job = play.submit(component(processors, cluster), priority=0, **fields)
    play.measure()
    return job


def test_the_youngest_jobs_are_vacated_and_no_more_than_are_needed() -> None:
    play = game()
    jobs = full_alpha(play)
    job = urgent(play, 16)
    assert states(play, job, *jobs) == [C, R, R, S, S]
    assert [play.job(each).outcome for each in jobs[2:]] == [Outcome.VACATED] * 2
    kinds = [each.kind for each in play.history if each.job == job]
    assert kinds == ["work_submitted", "job_preempts", "job_claimed"]


def test_nobody_is_vacated_for_a_job_that_may_have_run_on_a_silent_cluster() -> None:
    play = game()
    jobs = full_alpha(play)
    filled = [play.submit(component(16, cluster)) for cluster in ("beta", "gamma")]
    running(play, *filled)
    gate = StartupGate(["gamma"], [replace(play.job(jobs[0]), state=W)])
    play.engine.core.startup_gate.inherit(gate)
    anywhere, there = urgent(play, 8, None), urgent(play, 8, "alpha")
    assert states(play, anywhere, there, *jobs) == [W, C, R, R, R, S]
    play.reach("gamma")
    play.measure()
    assert play.job(anywhere).state is C


def test_the_vacating_and_the_claim_are_one_step() -> None:
    play = game()
    full_alpha(play)
    play.pending.clear()
    job = urgent(play, 8)
    commands = [command for command in play.pending if isinstance(command, CancelAttempt | SubmitAttempt)]
    assert [type(command) for command in commands] == [CancelAttempt, SubmitAttempt]
    assert commands[1].attempt.job == job


def test_a_vacated_job_waits_at_its_position_uncounted_and_runs_again_later() -> None:
    play = game()
    jobs = full_alpha(play)
    before = play.job(jobs[3]).position
    job = urgent(play, 8)
    play.obey()
    found = play.job(jobs[3])
    assert (found.state, found.position) == (W, before)
    assert (found.submission_failures, found.completion_failures) == (0, 0)
    running(play, job)
    assert states(play, job, jobs[3]) == [R, W]
    play.end(play.attempts(job)[0])
    play.obey()
    play.measure()
    assert states(play, job, jobs[3]) == [JobState.DONE, C]
    running(play, jobs[3])
    assert play.attempts(jobs[3])[0].number == 2


def test_a_vacated_job_whose_only_choice_is_taken_waits_for_it_uncounted() -> None:
    play = game(max_submission_failures=1)
    job = play.submit(component(16, rank="other.Speed"))
    answer_alpha(play)
    running(play, job, play.submit(component(16, "alpha")))
    assert len(play.job(job).choices) == 1
    urgents = [urgent(play, 16), urgent(play, 16)]
    play.obey()
    answer_alpha(play)
    running(play, *urgents)
    found = play.job(job)
    assert (found.state, found.submission_failures, found.choices) == (W, 0, ())


def answer_alpha(play: Play) -> None:
    """Answer the newest questions about ads: alpha alone matches."""
    hint = [each for each in play.hints if isinstance(each, CompareAds)][-1]
    answers = []
    for question in hint.questions:
        alpha = {ad: ad.cluster == "alpha" for ad in question.clusters}
        matches = [Match(ad, Verdict.MATCH, 1.0) if its else Match(ad, Verdict.UNDEFINED) for ad, its in alpha.items()]
        answers.append(Answer(question.job, tuple(matches)))
    play.apply(AdsCompared(tuple(answers)))


def test_both_stories_report_it() -> None:
    play = game()
    jobs = full_alpha(play)
    job = urgent(play, 16)
    play.obey()
    reported = {each.job: [] for each in play.history}  # type: dict[JobId, list[str]]
    for each in play.history:
        reported[each.job].append(sentence(each))
    assert f"It did not fit, so jobs {jobs[3]}, {jobs[2]} are vacated for it." in reported[job]
    assert any(
        f"It is vacated, and nothing is counted: Job {job}, of priority 0," in each for each in reported[jobs[3]]
    )
    explained = summary(explain(play.engine, play.now, play.job(jobs[3]), worst_fit))
    assert f"It was vacated: Job {job}, of priority 0, needs its processors." in explained


def test_metrics_count_vacated_jobs() -> None:
    play = game()
    full_alpha(play)
    urgent(play, 16)
    counting = Counting()
    counting.committed(Change(history=tuple(play.history)))
    assert counting.counted().vacated == 2


def test_nobody_is_vacated_unless_the_grid_file_allows_it() -> None:
    play = game(how=PreemptBy.OFF)
    jobs = full_alpha(play)
    job = urgent(play, 8)
    assert states(play, job, *jobs) == [W, R, R, R, R]


@pytest.mark.parametrize("reason", ["priority", "user", "too few", "others wait", "old measurement"])
def test_nobody_is_vacated_for_a_job_that_may_not_or_would_not_start(reason: str) -> None:
    play = game(users=("somebody",) if reason == "user" else None)
    jobs = full_alpha(play)
    if reason == "too few":
        important = play.submit(component(16, "beta"), priority=5)
        running(play, important)
        job = play.submit(component(32, "alpha"), component(16, "beta"), priority=0)
        play.measure()
        assert states(play, important) == [R]
    elif reason == "others wait":
        job = play.submit(component(8, "alpha"), priority=0)
        state = replace(play.measurement("alpha").state, wanted_local=32, waiting_local=1)
        play.apply(ClusterMeasured(cluster="alpha", state=state))
    elif reason == "old measurement":
        job = play.submit(component(8, "alpha"), priority=0)
    else:
        job = play.submit(component(8, "alpha"), priority=1 if reason == "priority" else 0)
        play.measure()
    assert states(play, job, *jobs) == [W, R, R, R, R]


def test_only_jobs_of_low_priority_are_vacated() -> None:
    play = game(lowest=15)
    low, high = running(play, play.submit(component(16, "alpha"), priority=15), play.submit(component(16, "alpha")))
    job = urgent(play, 16)
    assert states(play, job, low, high) == [C, S, R]
    assert states(play, urgent(play, 16)) == [W]


def test_a_co_allocated_job_is_vacated_as_a_whole() -> None:
    play = game()
    whole = play.submit(component(32, "alpha"), component(16, "beta"))
    running(play, whole)
    job = urgent(play, 32)
    cancelled = {each.cluster for each in play.pending if isinstance(each, CancelAttempt)}
    assert states(play, job, whole) == [C, S]
    assert cancelled == {"alpha", "beta"}


def test_a_co_allocated_job_with_a_component_out_of_reach_is_left_alone() -> None:
    play = game()
    whole = play.submit(component(32, "alpha"), component(16, "beta"))
    running(play, whole)
    play.lose("beta")
    assert states(play, urgent(play, 32), whole) == [W, R]


def test_a_job_with_a_stuck_batch_job_is_left_alone_since_its_processors_may_not_come_free() -> None:
    play = game()
    *others, youngest = full_alpha(play)
    (attempt,) = play.attempts(youngest)
    play.apply(AttemptStuck(attempt=attempt, reason=BUSY))
    urgent(play, 8)
    assert states(play, *others, youngest) == [R, R, S, R]


def test_a_claiming_job_makes_room_too() -> None:
    play = game()
    claiming = play.submit(component(32, "alpha"))
    play.come(*play.attempts(claiming))
    other = play.submit(component(8, "beta"))
    play.measure()
    assert states(play, urgent(play, 32), claiming, other) == [C, R, C] or states(play, claiming) == [S]


def test_processors_that_become_idle_soon_are_waited_for() -> None:
    play = game()
    jobs = full_alpha(play)
    play.apply(CancelRequested(jobs[0]))
    job = urgent(play, 8)
    assert states(play, job, *jobs[1:]) == [W, R, R, R]
    play.obey()
    assert states(play, job, *jobs[1:]) == [W, R, R, R]  # the measurement still shows it
    play.measure()
    assert states(play, job, *jobs[1:]) == [C, R, R, R]


def test_a_second_job_does_not_count_the_processors_of_the_first() -> None:
    play = game()
    jobs = full_alpha(play)
    first, second = urgent(play, 16), urgent(play, 8)
    assert states(play, first, second, *jobs) == [C, C, R, S, S, S]


def test_the_freed_processors_are_for_nobody_else() -> None:
    play = game()
    jobs = full_alpha(play)
    job = urgent(play, 16)
    small = play.submit(component(4, "alpha"))
    play.obey()
    play.measure()
    assert states(play, job, small, *jobs[2:]) == [C, W, W, W]


def test_a_job_preempts_once_until_it_has_started() -> None:
    play = game()
    jobs = full_alpha(play)
    job = urgent(play, 8)
    (attempt,) = play.attempts(job)
    play.apply(SubmissionFailed(attempt=attempt, reason=BUSY))
    play.measure(alpha=8)
    play.obey()
    play.measure(alpha=8)
    assert states(play, job, *jobs) == [W, R, R, R, W]
    assert "are not again until it has started" in summary(explain(play.engine, play.now, play.job(job), worst_fit))


def test_a_job_that_ended_well_before_it_was_stopped_is_complete() -> None:
    play = game()
    short = play.submit(component(32, "alpha"), stage_out=("result",))
    running(play, short)
    urgent(play, 8)
    assert states(play, short) == [S]
    play.end(play.attempts(short)[0])
    play.obey()
    assert (states(play, short), play.job(short).collecting) == ([R], True)
    play.apply(OutputCollected(job=short))
    play.obey()
    assert states(play, short) == [JobState.DONE]


def test_a_program_that_ends_because_it_was_stopped_is_not_complete() -> None:
    play = game()
    jobs = full_alpha(play)
    urgent(play, 8)
    play.end(play.attempts(jobs[3])[0], status=0, ending="cancelled")
    play.obey()
    assert states(play, jobs[3]) == [W]


def test_a_vacated_job_can_be_held_and_cancelled() -> None:
    play = game()
    jobs = full_alpha(play)
    urgent(play, 16)
    play.apply(HoldRequested(jobs[3]))
    play.apply(CancelRequested(jobs[2]))
    play.obey()
    assert states(play, *jobs[2:]) == [JobState.CANCELLED, JobState.HELD]


def test_after_the_urgent_job_is_cancelled_the_vacated_one_starts_again() -> None:
    play = game()
    jobs = full_alpha(play)
    job = urgent(play, 8)
    play.apply(CancelRequested(job))
    play.obey()
    play.measure()
    assert states(play, job, jobs[3]) == [JobState.CANCELLED, C]


def test_a_restarted_koalad_vacates_nobody_again() -> None:
    play = game()
    jobs = full_alpha(play)
    job = urgent(play, 8)
    snapshot = Snapshot(instance=INSTANCE, jobs=tuple(play.jobs.values()), counters=play.counters)
    play.engine = Engine(play.settings, Policies(worst_fit, fpfs), snapshot)
    for cluster in SIZES:
        play.reach(cluster)
    play.measure()
    play.obey()
    assert states(play, job, *jobs) == [C, R, R, R, W]


def test_a_policy_that_fails_vacates_nobody_and_is_reported_once() -> None:
    def broken(found: Sequence[RunningJob]) -> Sequence[RunningJob]:
        raise ValueError("no order")

    play = game(broken)
    jobs = full_alpha(play)
    job = urgent(play, 8)
    play.measure()
    assert states(play, job, *jobs) == [W, R, R, R, R]
    reported = [each.details["message"] for each in play.history if each.kind == "policy_failed"]
    assert reported == ["The vacating policy broken failed: it raised ValueError: no order."]


def test_a_policy_may_spare_jobs() -> None:
    def oldest_only(found: Sequence[RunningJob]) -> Sequence[RunningJob]:
        return list(youngest_first(found))[-1:]

    play = game(oldest_only)
    jobs = full_alpha(play)
    assert states(play, urgent(play, 8), *jobs) == [C, S, R, R, R]


def test_orders() -> None:
    def ran(job: int, priority: int, began_at: int) -> RunningJob:
        return RunningJob(job=job, owner="me", priority=priority, processors=1, began_at=began_at)  # type: ignore[arg-type]

    jobs = [ran(1, 20, 10), ran(2, 15, 30), ran(3, 20, 20), ran(4, 15, 30)]
    assert [each.job for each in youngest_first(jobs)] == [4, 2, 3, 1]
    assert [each.job for each in lowest_priority_first(jobs)] == [3, 1, 4, 2]
    assert vacating_error(jobs[:2], jobs) == ""
    assert vacating_error(jobs, jobs[:2])
    assert vacating_error([jobs[0], jobs[0]], jobs)
