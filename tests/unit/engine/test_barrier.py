"""The engine at the barrier: which attempts it awaits, for how long, and what happens to those that wait."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import Play, alike, component, grid, present

from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import (
    CancelAttempt,
    ReleaseAttempt,
    SubmitAttempt,
)
from koalapy.model.events import AttemptSubmitted, CancelRequested, ClusterConnected, FilesMoved, FilesStaged
from koalapy.model.request import WhenBusy
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.units import HOUR, SECOND, Duration, Instant, format_instant
from koalapy.policies.placement import worst_fit
from koalapy.views.explanation import answer, explain, summary
from koalapy.views.metrics import load_of


def test_a_claim_time_out_cancels_all_attempts_and_counts_as_one_submission_failure(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    play.come(play.attempts(job)[0])
    play.wake()
    assert play.job(job).state is JobState.STOPPING
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "claim_timeout"
    position = play.job(job).position
    play.obey()
    again = play.job(job)
    assert again.submission_failures == 1
    assert again.position > position
    assert again.held_processor_us >= 4 * play.settings.claim_timeout


def local_jobs_wait(play: Any, *clusters: str) -> None:
    """Measure clusters on which jobs of other users wait, though processors are idle: one has reserved them."""
    for name in clusters:
        seen = play.measurement(name)
        play.apply(replace(seen, state=replace(seen.state, waiting_local=1)))


def test_a_claim_time_out_behind_local_jobs_is_given_back_uncounted(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    position = play.job(job).position
    for number in range(1, 6):
        (attempt,) = play.attempts(job)
        assert attempt.number == number
        play.apply(AttemptSubmitted(attempt=attempt, batch_id=str(number)))
        local_jobs_wait(play, "alpha")
        play.wake()
        reason = play.job(job).reason
        assert reason.code == "claim_timeout"
        assert "alpha had not started, and other users' jobs wait there" in str(reason)
        assert "nothing is counted" in str(reason)
        play.obey()
        again = play.job(job)
        assert (again.state, again.submission_failures, again.position) == (JobState.WAITING, 0, position)
        assert dict(again.excluded)["alpha"] > play.now
        play.now = Instant(dict(again.excluded)["alpha"])
        play.measure()
    assert play.job(job).state is JobState.CLAIMING


def test_a_claim_behind_local_jobs_goes_to_another_cluster(play: Any) -> None:
    job = play.submit(component(4))
    (first,) = play.job(job).present
    play.apply(AttemptSubmitted(attempt=first.id, batch_id="1"))
    local_jobs_wait(play, first.cluster)
    play.wake()
    play.obey()
    play.measure()
    (second,) = play.job(job).present
    assert second.cluster != first.cluster
    assert play.job(job).submission_failures == 0


@pytest.mark.parametrize("accepted", ["alpha", "none"])
def test_a_claim_time_out_counts_unless_all_late_components_are_behind_local_jobs(play: Any, accepted: str) -> None:
    """A batch job that was not accepted is late for another reason, and so is one on a cluster where nobody waits."""
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    for each in play.job(job).present:
        if accepted != "none":
            play.apply(AttemptSubmitted(attempt=each.id, batch_id=str(each.id)))
    local_jobs_wait(play, *(["alpha"] if accepted == "alpha" else ["alpha", "gamma"]))
    play.wake()
    play.obey()
    assert play.job(job).submission_failures == 1


def test_the_start_of_a_component_does_not_restart_the_claim_time_out(play: Any) -> None:
    """The barrier's time-out is longer, so that it does not end the claim first."""
    job = play.submit(component(4, "alpha"), component(4, "beta"), component(4, "gamma"))
    claimed, (alpha, beta, _) = play.now, play.attempts(job)
    for attempt in (alpha, beta):
        play.now = Instant(play.now + play.settings.claim_timeout // 3)
        play.come(attempt)
    play.wake()
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "claim_timeout"
    assert play.now <= claimed + play.settings.claim_timeout * 1.25


def test_the_claim_time_out_counts_from_the_last_file_transfer(play: Any) -> None:
    """A transfer that makes progress extends the claim; a transfer that makes none does not."""
    job = play.submit(component(4, "alpha"))
    attempt = play.attempts(job)[0]
    for _ in range(3):
        play.now = Instant(play.now + play.settings.claim_timeout // 2)
        play.apply(FilesMoved(attempt))
        assert play.job(job).state is JobState.CLAIMING
    play.apply(FilesStaged(attempt, files=2, size=10, version="abc"))
    assert [line.details["version"] for line in play.history if line.kind == "files_staged"] == ["abc"]
    play.wake()
    assert play.job(job).state is JobState.STOPPING


def test_file_transfers_of_an_attempt_that_does_not_wait_for_them_change_nothing(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    attempt = play.attempts(job)[0]
    play.come(attempt)
    before = play.job(job)
    play.apply(FilesMoved(attempt))
    play.apply(FilesStaged(attempt, files=2, size=10, version="abc"))
    play.apply(FilesMoved(attempt._replace(number=9)))
    assert play.job(job) == before


def test_a_slow_clock_does_not_put_a_program_s_start_before_its_release(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    play.come(*play.attempts(job))
    first = play.attempts(job)[0]
    early = Instant(play.now - 2 * SECOND)
    play.apply(play.report(first, "running", released_at=early, started_at=early))
    play.apply(play.report(first, "ended", exit_status=0, ending="exited", started_at=early, ended_at=early))
    ran, other = play.job(job).present
    assert ran.ended_at >= ran.started_at >= ran.released_at >= other.at_barrier_at
    for attempt in play.attempts(job):
        play.end(attempt)


def test_the_release_waits_for_an_unreachable_cluster(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    first, second = play.attempts(job)
    play.come(first)
    play.apply(AttemptSubmitted(attempt=second, batch_id="2"))
    play.lose("alpha")
    play.apply(play.report(second, "at_barrier", at_barrier_at=play.now))
    assert play.job(job).state is JobState.CLAIMING
    play.reach("alpha")
    play.apply(play.report(first, "at_barrier"))
    assert play.job(job).state is JobState.RUNNING


def test_an_attempt_at_the_barrier_counts_in_a_new_session_once_its_wrapper_reports_again(play: Any) -> None:
    """The wrapper may have left the barrier since, or been killed. A repeated report changes nothing else."""
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    first, second = play.attempts(job)
    play.come(first)
    play.lose("alpha")
    play.reach("alpha")
    play.come(second)
    assert play.job(job).state is JobState.CLAIMING, "the first has not reported in this session"
    before = play.job(job)
    play.apply(play.report(second, "at_barrier"))
    assert play.job(job) == before
    play.apply(play.report(first, "at_barrier", at_barrier_at=present(before).at_barrier_at))
    assert play.job(job).state is JobState.RUNNING
    for attempt in play.attempts(job):
        play.end(attempt)


def test_a_second_welcome_of_one_session_keeps_the_attempts_at_the_barrier(play: Any) -> None:
    """A KCM sends Welcome twice if its batch system could not be used at first."""
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    first, second = play.attempts(job)
    play.come(first)
    play.apply(ClusterConnected(cluster="alpha", version="22.05"))
    play.come(second)
    assert play.job(job).state is JobState.RUNNING
    for attempt in play.attempts(job):
        play.end(attempt)


def test_an_optional_component_that_does_not_report_again_is_late(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma", optional=True))
    first, second = play.attempts(job)
    play.come(second)
    play.lose("gamma")
    play.reach("gamma")
    play.come(first)
    play.wake()
    assert play.job(job).state is JobState.RUNNING
    assert present(play.job(job), 1).ending is Ending.CANCELLED
    play.end(first)
    play.obey()


def test_a_deadlock_is_broken_at_once_and_not_counted_as_a_failure(play: Any) -> None:
    clusters = tuple(replace(each, backlog=100) for each in play.settings.clusters)
    play = Play(replace(play.settings, clusters=clusters, queue_after=Duration(0), barrier_wait=Duration(0)))
    play.measure(alpha=32, beta=16)
    older = play.submit(component(32, "alpha"), component(16, "beta"), when_busy=WhenBusy.QUEUE)
    younger = play.submit(component(16, "beta"), component(32, "alpha"), when_busy=WhenBusy.QUEUE)
    assert [play.job(job).state for job in (older, younger)] == [JobState.CLAIMING] * 2
    a_alpha, a_beta = play.attempts(older)
    b_beta, b_alpha = play.attempts(younger)
    for attempt in (a_alpha, a_beta, b_beta, b_alpha):
        play.apply(AttemptSubmitted(attempt=attempt, batch_id=str(attempt)))
    play.come(a_alpha)
    play.come(b_beta)
    play.apply(play.measurement("alpha", pending=[b_alpha]), play.measurement("beta", pending=[a_beta]))
    assert play.job(younger).state is JobState.STOPPING
    assert play.job(older).state is JobState.CLAIMING
    play.obey()
    assert play.job(younger).submission_failures == 0


def test_a_job_is_released_without_an_optional_component_that_is_late(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma", optional=True))
    needed, late = play.attempts(job)
    play.come(needed)
    play.apply(AttemptSubmitted(attempt=late, batch_id="late"))
    play.wake()
    assert play.job(job).state is JobState.RUNNING
    assert present(play.job(job), 1).ending is Ending.CANCELLED
    play.end(needed)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_an_optional_component_that_ends_early_is_cancelled_once(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta", optional=True))
    early = play.attempts(job)[1]
    play.come(early)
    commands = play.end(early, 137, "killed")
    assert [command for command in commands if isinstance(command, CancelAttempt)] == [
        CancelAttempt(cluster="beta", attempt=early, batch_id=str(early))
    ]


def test_no_attempt_is_released_after_the_barrier_time_out(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    first, second = play.attempts(job)
    play.come(first)
    play.apply(AttemptSubmitted(attempt=second, batch_id="2"), play.report(second, "started"))
    late = Duration(play.settings.barrier_timeout * 2)
    commands = play.apply(play.report(second, "at_barrier", at_barrier_at=Instant(play.now + late)), after=late)
    assert not any(isinstance(command, ReleaseAttempt) for command in commands)
    assert play.job(job).state is JobState.STOPPING


@pytest.mark.parametrize("minutes", [1, 5, 60])
def test_koalad_ends_a_barrier_before_any_wrapper_leaves_it(minutes: int) -> None:
    play = Play(alike(barrier_timeout=Duration(minutes * 60 * SECOND)))
    for _ in range(20):
        job = play.submit(component(1, "alpha"), component(1, "beta"))
        first, second = play.attempts(job)
        submits = [each for each in play.pending if isinstance(each, SubmitAttempt) and each.attempt == first]
        play.come(first)
        play.apply(play.report(second, "started"))
        ends = play.engine.next_wakeup()
        assert ends is not None
        at_barrier_at = present(play.job(job)).at_barrier_at
        assert at_barrier_at is not None
        assert ends + 5 * SECOND < at_barrier_at + submits[0].barrier_timeout
        play.apply(CancelRequested(job))
        play.obey()


def test_at_the_claim_time_out_only_attempts_that_have_not_started_are_late(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma", optional=True))
    needed, late = play.attempts(job)
    play.apply(play.report(needed, "started"), AttemptSubmitted(attempt=late, batch_id="late"))
    play.wake()
    assert play.job(job).state is JobState.CLAIMING
    assert present(play.job(job), 1).ending is Ending.CANCELLED
    play.apply(play.report(needed, "at_barrier", at_barrier_at=play.now))
    assert play.job(job).state is JobState.RUNNING


def test_a_started_attempt_that_never_reaches_the_barrier_is_a_submission_failure(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.apply(play.report(play.attempts(job)[0], "started"))
    play.lose("alpha")
    play.wake()
    assert play.job(job).submission_failures == 1
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "barrier_timeout"


@pytest.mark.parametrize("waits", [False, True], ids=["given back whole", "what is held given back"])
def test_all_deadlocks_are_broken_in_the_step_that_detects_them(waits: bool) -> None:
    sizes = dict.fromkeys(("a", "b", "c", "d"), 4)
    clusters = (ClusterSettings(name=name, batch="slurm", backlog=100) for name in sizes)
    play = Play(grid(*clusters, queue_after=Duration(0), barrier_wait=Duration(HOUR if waits else 0)), sizes=sizes)
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    play.measure(a=4, b=4, c=4, d=4)
    jobs = [play.submit(component(4, x), component(4, y), when_busy=WhenBusy.QUEUE) for x, y in pairs[::2]]
    play.come(*(play.attempts(job)[0] for job in jobs))
    jobs += [play.submit(component(4, x), component(4, y), when_busy=WhenBusy.QUEUE) for x, y in pairs[1::2]]
    play.come(*(play.attempts(job)[0] for job in jobs[2:]))
    queued = [play.attempts(job)[1] for job in jobs]
    play.apply(*(AttemptSubmitted(attempt=attempt, batch_id=str(attempt)) for attempt in queued))
    play.apply()
    play.apply(*(play.measurement(name, pending=queued) for name in sizes))
    assert [play.job(job).state for job in jobs[:2]] == [JobState.CLAIMING] * 2
    if waits:
        assert [present(play.job(job)).state for job in jobs[2:]] == [AttemptState.ENDED] * 2
    else:
        assert [play.job(job).state for job in jobs[2:]] == [JobState.STOPPING] * 2


def test_processor_time_at_the_barrier_counts_for_attempts_that_left_it(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(2, "beta"))
    first, _ = play.attempts(job)
    play.come(first)
    began = present(play.job(job)).at_barrier_at
    assert began is not None
    play.apply(after=Duration(7 * SECOND))
    play.end(first, ending="left_barrier")
    ended = present(play.job(job)).ended_at
    assert ended is not None
    assert play.job(job).held_processor_us == 4 * (ended - began)
    play.obey()
    assert play.job(job).held_processor_us == 4 * (ended - began)


def test_a_koalad_that_wakes_after_the_barrier_time_out_releases_no_part_of_a_job(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma", optional=True))
    needed, late = play.attempts(job)
    play.come(needed)
    play.apply(play.report(late, "started"))
    commands = play.apply(after=Duration(2 * play.settings.barrier_timeout))
    assert not any(isinstance(command, ReleaseAttempt) for command in commands)
    assert play.job(job).state is JobState.STOPPING


def test_the_reason_names_the_component_that_was_late_at_the_barrier(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    first, second = play.attempts(job)
    play.come(first)
    play.apply(play.report(second, "started"))
    play.wake()
    assert "component 1 on beta was not at its barrier" in str(play.job(job).reason)


def test_a_barrier_time_out_on_an_unreachable_cluster_names_the_cluster(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    first, second = play.attempts(job)
    play.come(first)
    play.lose("alpha")
    play.come(second)
    play.wake()
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "barrier_timeout"
    assert "component 0 on alpha did not get its release" in str(play.job(job).reason)


def test_the_explanation_of_a_claiming_job_states_what_it_holds_and_until_when(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    first = explain(play.engine, play.now, play.job(job), worst_fit)
    assert (first.held, first.waited) == ((), 0)
    assert "barrier" not in summary(first)
    play.come(play.attempts(job)[0])
    (held,) = explain(play.engine, play.now, play.job(job), worst_fit).held
    assert held.at_barrier_at is not None
    since = format_instant(held.at_barrier_at)
    play.now = Instant(held.at_barrier_at + 5 * SECOND)
    found = explain(play.engine, play.now, play.job(job), worst_fit)
    ends = play.engine.gives_back_at(play.job(job))
    until = format_instant(ends)
    assert summary(found) == (
        "It waits for component 1 on gamma, which is submitting. "
        f"Component 0 holds 4 processors at its barrier on alpha since {since}. "
        "Its waits at barriers have cost 20 processor seconds so far. "
        f"Unless it is released before, it gives back its processors at {until}."
    )
    document = answer(found, play.now)
    assert document["held"] == [
        {"component": 0, "cluster": "alpha", "processors": 4, "since": since, "processor_seconds": 20}
    ]
    assert document["gives_back_at"] == until
    assert load_of(play.engine.records, play.now).held == {"alpha": 4}
    play.wake()
    assert play.job(job).state is JobState.STOPPING
    assert play.now == ends


def test_the_explanation_of_a_waiting_job_counts_the_jobs_before_it(play: Any) -> None:
    play.submit(component(32, "alpha"))
    waiting = [play.submit(component(32, "alpha"), when_busy=WhenBusy.WAIT) for _ in range(3)]
    summaries = [summary(explain(play.engine, play.now, play.job(job), worst_fit)) for job in waiting]
    assert "before it" not in summaries[0]
    assert summaries[1].endswith(f" Job {waiting[0]} comes before it in the queue.")
    assert summaries[2].endswith(f" 2 jobs come before it in the queue; job {waiting[0]} is the first.")


def test_jobs_whose_components_have_all_come_are_released_in_the_order_of_their_ids() -> None:
    play = Play(sizes={"alpha": 32})
    jobs = [play.submit(component(4, "alpha")) for _ in range(8)]
    play.apply(*(AttemptSubmitted(attempt=each, batch_id=str(each)) for job in jobs for each in play.attempts(job)))
    came = [play.report(play.attempts(job)[0], "at_barrier", at_barrier_at=play.now) for job in (jobs[7], jobs[0])]
    released = [each.attempt.job for each in play.apply(*came) if isinstance(each, ReleaseAttempt)]
    assert released == [jobs[0], jobs[7]]


def test_a_job_is_examined_once_after_a_change_and_its_timer_is_set_to_a_whole_microsecond(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    play.come(play.attempts(job)[0])
    play.apply()
    assert not play.engine.core.run_list.dirty
    assert type(play.engine.core.run_list.timers.next()) is int
