"""The engine when attempts end: what is counted, what is final, and what is left behind."""

from typing import Any

import pytest
from engine_play import BUSY_QUEUE, component, present
from koalapy_adapters.kcm.attempts.wrapper_messages import OTHER_VERSION

from koalapy.model.commands import (
    CancelAttempt,
    CollectOutput,
    ForgetAttempt,
)
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    BatchStatusSeen,
    CancelRequested,
    OutputCollected,
    SubmissionFailed,
)
from koalapy.model.request import RetryOn
from koalapy.model.states import BatchState, Ending, JobState, ReportedEnding
from koalapy.policies.placement import worst_fit
from koalapy.views.explanation import explain, summary
from koalapy.views.history import sentence


def test_at_the_maximum_of_submission_failures_the_job_fails_with_the_last_reason(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    for _ in range(play.settings.max_submission_failures):
        assert play.job(job).state is JobState.CLAIMING
        play.lose_claim(job)
        play.measure()
    assert play.job(job).state is JobState.FAILED
    assert "killed" in str(play.job(job).reason)


def test_completion_failures_are_bounded_and_reset_the_submission_count(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.lose_claim(job)
    for count in range(play.settings.max_completion_failures + 1):
        assert play.job(job).state is JobState.CLAIMING
        play.run(job)
        play.end(play.attempts(job)[0], 137, "killed")
        play.obey()
        assert play.job(job).completion_failures == count + 1
        assert play.job(job).submission_failures == 0
        play.measure()
    assert play.job(job).state is JobState.FAILED


@pytest.mark.parametrize(
    ("retry_on", "state"), [((RetryOn.LOST,), JobState.FAILED), ((RetryOn.EXIT,), JobState.CLAIMING)]
)
def test_a_non_zero_exit_status_is_final_unless_retry_on_includes_exit(
    play: Any, retry_on: tuple[RetryOn, ...], state: JobState
) -> None:
    job = play.submit(component(4), retry_on=retry_on)
    play.run(job)
    play.end(play.attempts(job)[0], 3)
    play.obey()
    play.measure()
    assert play.job(job).state is state


def test_a_missing_executable_fails_at_once(play: Any) -> None:
    job = play.submit(component(4), component(4))
    reason = Reason("no_executable", "request", "There is no ./program.", "Stage it in.")
    play.apply(AttemptSubmitted(attempt=play.attempts(job)[0], batch_id="1"))
    play.end(play.attempts(job)[0], ending="failed", reason=reason)
    play.obey()
    assert play.job(job).state is JobState.FAILED
    assert "no_executable" in play.job(job).reason.code


def test_a_cluster_that_refuses_is_excluded_and_the_next_choice_is_tried(play: Any) -> None:
    job = play.submit(component(4))
    refused = Reason("no_such_queue", "request", "No queue.", "", command="sbatch", exit_status=1)
    play.apply(SubmissionFailed(attempt=play.attempts(job)[0], reason=refused))
    assert present(play.job(job)).cluster == "beta"
    assert play.job(job).submission_failures == 0


def test_the_explanation_gives_the_refusal_and_its_advice(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    refused = Reason("no_shape", "cluster", "So many on each node, it says.", "Say `processors_per_node`.")
    play.apply(SubmissionFailed(attempt=play.attempts(job)[0], reason=refused))
    (lack,) = explain(play.engine, play.now, play.job(job), worst_fit).lacks
    assert lack.reason.message.endswith("So many on each node, it says.")
    assert lack.reason.advice.startswith("Say `processors_per_node`. The job ")


def setup_failure(words: str) -> Reason:
    return Reason("setup_failed", "request", "A line of `setup` failed.", "Correct it.", "The shell", words=words)


def fail_setup(play: Any, attempt: Any, words: str) -> None:
    play.apply(AttemptSubmitted(attempt=attempt, batch_id="1"))
    play.end(attempt, ending="failed", reason=setup_failure(words))
    play.obey()
    play.measure()


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        ("/tmp/k-1/setup: line 3: mpicc: not found", "/tmp/k-27/setup: line 4: mpicc: not found", JobState.FAILED),
        ("mpicc: not found", "module: not found", JobState.CLAIMING),
    ],
)
def test_a_setup_that_fails_twice_with_the_same_words_fails_its_job(
    play: Any, first: str, second: str, state: JobState
) -> None:
    job = play.submit(component(4, setup=("mpicc",)), component(4, setup=("mpicc",)))
    fail_setup(play, play.attempts(job)[0], first)
    assert play.job(job).state is JobState.CLAIMING
    fail_setup(play, play.attempts(job)[1], second)
    found = play.job(job)
    assert found.state is state
    if state is JobState.FAILED:
        assert "A line of `setup` failed. It failed in the same way before." in str(found.reason)


def test_a_setup_that_succeeds_elsewhere_is_not_wrong_itself(play: Any) -> None:
    job = play.submit(component(4, "alpha", setup=("mpicc",)), component(4, setup=("mpicc",)))
    for _ in range(2):
        play.measure()
        one, other = play.attempts(job)
        play.come(one)
        fail_setup(play, other, "mpicc: not found")
        assert not play.job(job).state.final


def test_the_explanation_names_the_excluded_clusters_of_a_job_that_waits_for_several(play: Any) -> None:
    job = play.submit(*[component(16)] * 4)
    first = play.attempts(job)[0]
    where = present(play.job(job)).cluster
    fail_setup(play, first, "mpicc: not found")
    text = summary(explain(play.engine, play.now, play.job(job), worst_fit))
    assert text.startswith("It waits: each of its components would fit somewhere now, but not all of them at once.")
    assert f" {where} is excluded for this job for another 9m" in text
    assert "A line of `setup` failed." in text


def test_output_is_collected_before_the_job_is_done(play: Any) -> None:
    job = play.submit(component(4), stage_out=("result.npy",))
    play.run(job)
    commands = play.end(play.attempts(job)[0])
    assert [type(command) for command in commands] == [CancelAttempt, CollectOutput]
    play.obey()
    assert play.job(job).state is JobState.RUNNING
    play.apply(OutputCollected(job=job))
    assert play.job(job).state is JobState.DONE


def test_a_batch_job_killed_by_an_administrator_is_a_completion_failure(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    play.run(job)
    first, second = play.attempts(job)
    play.apply(
        BatchStatusSeen(
            attempt=first, batch_id="1", at=play.now, state=BatchState.ENDED, ending=ReportedEnding.CANCELLED
        )
    )
    assert play.job(job).state is JobState.STOPPING
    play.obey()
    play.end(second, 143, "cancelled")
    assert play.job(job).completion_failures == 1


@pytest.mark.parametrize("state", ["queued", "ended"])
def test_a_batch_job_that_can_never_start_fails_at_once_in_the_batch_systems_words(play: Any, state: str) -> None:
    """The batch system may still list it, or may have removed it by itself."""
    job = play.submit(component(4, "alpha"))
    attempt = play.attempts(job)[0]
    play.apply(AttemptSubmitted(attempt=attempt, batch_id="1"))
    words = "failed 26: opening input/output file"
    seen = BatchStatusSeen(
        attempt=attempt, batch_id="1", at=play.now, state=BatchState(state), stuck="error_state", words=words
    )
    play.apply(seen)
    play.obey()
    found = play.job(job)
    assert found.state is JobState.FAILED
    assert (found.reason.code, found.submission_failures) == ("error_state", 0)
    assert "opening input/output file" in str(found.reason)


@pytest.mark.parametrize(("ending", "status"), [("killed", 143), ("restarted", None), ("left_barrier", None)])
def test_a_wrapper_report_with_a_reason_does_not_make_a_killed_attempt_s_job_final(
    play: Any, ending: str, status: int | None
) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    reported = Reason("signalled", "cluster", "The batch system stopped the job (SIGTERM).", "Ask it why.")
    play.end(play.attempts(job)[0], status, ending, reason=reported)
    play.obey()
    play.measure()
    assert play.job(job).completion_failures == 1
    assert play.job(job).state is JobState.CLAIMING


def test_the_directories_of_earlier_attempts_are_forgotten(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    attempt = play.attempts(job)[0]
    play.end(attempt, 137, "killed")
    (cancel,) = [command for command in play.pending if isinstance(command, CancelAttempt)]
    commands = play.apply(AttemptCleanedUp(attempt=cancel.attempt))
    assert ForgetAttempt(cluster="alpha", attempt=attempt) in commands


def test_the_last_attempts_of_a_final_job_are_kept_for_its_output(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.apply(CancelRequested(job, force=True))
    play.reach("alpha")
    assert not play.pending_cancels
    assert not [command for command in play.pending if isinstance(command, ForgetAttempt)]


def test_no_attempt_is_forgotten_before_its_cancel_is_confirmed(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    first, second = play.attempts(job)
    refused = Reason("no_shape", "cluster", "No such shape.", "", command="sbatch")
    play.apply(SubmissionFailed(attempt=first, reason=refused))
    commands = play.apply(SubmissionFailed(attempt=second, reason=refused))
    assert not commands
    assert play.job(job).state is JobState.STOPPING
    commands = play.apply(AttemptCleanedUp(attempt=second))
    assert ForgetAttempt(cluster="beta", attempt=second) in commands
    assert play.job(job).submission_failures == 1


def test_a_late_report_about_an_earlier_attempt_changes_nothing(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    (attempt,) = play.attempts(job)
    play.measure(alpha=32)
    play.apply(SubmissionFailed(attempt=attempt, reason=BUSY_QUEUE))
    before = play.job(job)
    play.apply(AttemptSubmitted(attempt=attempt, batch_id="7"))
    assert play.job(job) == before


def test_a_refusal_is_final_if_no_other_cluster_is_large_enough(play: Any) -> None:
    job = play.submit(component(32))
    refused = Reason("no_such_queue", "request", "No queue.", "", command="sbatch", exit_status=1)
    play.apply(SubmissionFailed(attempt=play.attempts(job)[0], reason=refused))
    assert play.job(job).state is JobState.FAILED


def test_a_cancelled_attempt_has_not_failed(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.apply(CancelRequested(job))
    (attempt,) = play.attempts(job)
    play.apply(
        BatchStatusSeen(
            attempt=attempt, batch_id="1", at=play.now, state=BatchState.ENDED, ending=ReportedEnding.CANCELLED
        )
    )
    assert present(play.job(job)).ending is Ending.CANCELLED
    (ended,) = [each for each in play.history if each.kind == "attempt_ended"]
    assert "message" not in ended.details


def test_a_wrapper_of_another_version_is_replaced_and_the_history_gives_the_reason(play: Any) -> None:
    """This happens after an upgrade of koalapy while a batch job is queued or at its barrier."""
    job = play.submit(component(4, "alpha"))
    (before,) = play.attempts(job)
    play.apply(AttemptSubmitted(attempt=before, batch_id="1"))
    reported = OTHER_VERSION
    reason = Reason(reported["code"], reported["whose"], reported["message"], reported["advice"])
    play.end(before, None, "restarted", reason=reason)
    play.obey()
    play.measure()
    assert play.job(job).state is JobState.CLAIMING
    (after,) = play.attempts(job)
    assert after != before
    assert any("of another version of koalapy than koalad" in sentence(line) for line in play.history)


def test_a_job_whose_first_sign_after_its_release_is_its_end_has_started_too(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    (attempt,) = play.attempts(job)
    play.come(attempt)
    assert play.job(job).state is JobState.RUNNING
    began = play.now
    play.end(attempt, released_at=began, started_at=began)
    assert play.job(job).started_at == began
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_a_second_cancel_by_force_reaches_the_cluster_as_such(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    orders = [play.apply(CancelRequested(job, force=force)) for force in (False, True)]
    assert [[each.force for each in given if isinstance(each, CancelAttempt)] for given in orders] == [[False], [True]]
