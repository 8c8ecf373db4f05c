"""Refused submissions: the pauses of clusters, for one job and for all, and what counts as a failure."""

from typing import Any

import pytest
from engine_play import BUSY_QUEUE, Play, component

from koalapy.coallocation.refusals import FIRST_PAUSE, LONGEST_PAUSE
from koalapy.engine import Engine
from koalapy.information.kis import MOST_REFUSED
from koalapy.model.change import Snapshot
from koalapy.model.commands import SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import AttemptCleanedUp, AttemptSubmitted, CancelRequested, SubmissionFailed
from koalapy.model.identity import JobId
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.clusters import cluster_reports, cluster_troubles
from koalapy.views.explanation import explain, summary

LIMIT = Reason("submit_limit", "transient", "No more jobs are allowed.", "It is tried again.", command="sbatch")
UNKNOWN = Reason("unknown_words", "cluster", "sbatch failed with these words: moon.", "", command="sbatch")
UNREAD = Reason("unreadable_answer", "ours", "sbatch printed no job id.", "", command="sbatch")
CLOSED = Reason("queue_closed", "cluster", "The queue is closed.", "", command="sbatch")
TOO_LARGE = Reason("too_large_a_request", "request", "No queue is as large.", "", command="sbatch")


def refuse(play: Play, job: JobId, reason: Reason = BUSY_QUEUE) -> None:
    play.apply(*[SubmissionFailed(attempt=each, reason=reason) for each in play.attempts(job)])


def claimed_on(play: Play, job: JobId) -> list[str]:
    return [each.cluster for each in play.job(job).live] if play.job(job).state is JobState.CLAIMING else []


def left_out(play: Play, cluster: str) -> bool:
    (found,) = [each for each in play.engine.summaries(play.now) if each.name == cluster]
    return found.trouble is not None and found.trouble.code == "refuses_jobs"


def wait(play: Play, duration: int) -> None:
    """Let time pass, with measurements, until `duration` is over."""
    until = play.now + duration
    while play.now < until:
        play.apply(after=Duration(min(until - play.now, 30 * SECOND)))
        play.measure()


@pytest.mark.parametrize("reason", [BUSY_QUEUE, UNKNOWN, UNREAD, LIMIT], ids=lambda reason: reason.code)
def test_a_refusal_that_may_pass_pauses_the_cluster_for_the_job_twice_as_long_each_time(
    play: Any, reason: Reason
) -> None:
    job = play.submit(component(4, "alpha"))
    for pause in (5, 10, 20, 40, 80, 160, 320, 600):
        assert claimed_on(play, job) == ["alpha"]
        refuse(play, job, reason)
        begun = play.now
        wait(play, (pause - 1) * SECOND)
        assert claimed_on(play, job) == []
        assert dict(play.job(job).excluded)["alpha"] == begun + pause * SECOND
        wait(play, 2 * SECOND)
    assert (play.job(job).submission_failures, play.job(job).completion_failures) == (0, 0)


@pytest.mark.parametrize("reason", [BUSY_QUEUE, UNKNOWN, LIMIT], ids=lambda reason: reason.code)
def test_a_job_that_names_no_cluster_goes_elsewhere_at_once(play: Any, reason: Reason) -> None:
    job = play.submit(component(4))
    refuse(play, job, reason)
    assert claimed_on(play, job) == ["beta"]
    assert play.job(job).submission_failures == 0


def test_only_refusals_after_the_longest_pause_count_and_the_reason_has_all_of_them(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    refused = 0
    while play.job(job).state is not JobState.FAILED:
        assert claimed_on(play, job) == ["alpha"]
        refuse(play, job)
        refused += 1
        if play.job(job).state is not JobState.FAILED:
            wait(play, dict(play.job(job).excluded)["alpha"] - play.now + SECOND)
    assert refused == 8 + play.settings.max_submission_failures
    reason = play.job(job).reason
    assert reason.message == f"alpha refused it {refused} times: The batch system is busy."
    assert (reason.code, reason.command) == (BUSY_QUEUE.code, "sbatch")


def test_the_reason_of_a_job_names_every_cluster_that_refused_it(play: Any) -> None:
    job = play.submit(component(4))
    while play.job(job).state is not JobState.FAILED:
        refuse(play, job, BUSY_QUEUE if claimed_on(play, job) == ["alpha"] else UNKNOWN)
        while play.job(job).state is JobState.WAITING:
            play.wake()
            play.measure()
    assert all(f"{name} refused it" in play.job(job).reason.message for name in ("alpha", "beta", "gamma"))
    assert "The batch system is busy." in play.job(job).reason.message
    assert "moon" in play.job(job).reason.message


def test_a_limit_on_submitted_jobs_never_counts(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    for _ in range(30):
        assert claimed_on(play, job) == ["alpha"]
        refuse(play, job, LIMIT)
        wait(play, dict(play.job(job).excluded)["alpha"] - play.now + SECOND)
    assert play.job(job).submission_failures == 0
    assert not left_out(play, "alpha")


def test_one_job_that_a_limit_keeps_waiting_goes_for_each_that_ends(play: Any) -> None:
    """MaxSubmitJobs=1 and three jobs, in the order of the queue; the pauses begin anew."""
    first, second, third = (play.submit(component(4, "alpha")) for _ in range(3))
    play.run(first)
    for _ in range(4):  # up to a pause of 40 s
        for job in (third, second):
            refuse(play, job, LIMIT)
        wait(play, dict(play.job(second).excluded)["alpha"] - play.now + SECOND)
    for job in (third, second):
        refuse(play, job, LIMIT)
    play.end(play.attempts(first)[0])
    play.obey()
    assert play.job(first).state is JobState.DONE
    assert (claimed_on(play, second), claimed_on(play, third)) == (["alpha"], [])
    refuse(play, second, LIMIT)  # the batch system has not seen the end yet
    assert dict(play.job(second).excluded)["alpha"] == play.now + FIRST_PAUSE
    wait(play, FIRST_PAUSE)
    play.run(second)
    play.end(play.attempts(second)[0])
    play.obey()
    assert claimed_on(play, third) == ["alpha"]


def test_a_koalad_that_starts_again_keeps_the_pauses_of_a_job(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    refuse(play, job, LIMIT)
    kept = Snapshot(instance=play.engine.records.instance, jobs=(play.job(job),), counters=play.counters)
    engine = Engine(play.settings, Policies(worst_fit, fpfs), kept)
    assert engine.records.jobs[job].excluded == play.job(job).excluded
    assert engine.records.jobs[job].refusals[0].pause == FIRST_PAUSE
    assert engine.core.limited == {"alpha": {job: None}}


def test_an_accepted_submission_ends_the_refusals_of_the_job(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    refuse(play, job)
    wait(play, FIRST_PAUSE)
    assert play.job(job).refusals
    play.apply(AttemptSubmitted(attempt=play.attempts(job)[0], batch_id="1"))
    assert play.job(job).refusals == ()


def test_an_attempt_that_koalapy_withdrew_was_not_refused_by_its_cluster(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    refuse(play, job, Reason("void", "ours", "The attempt was made void before it could start.", ""))
    assert (claimed_on(play, job), play.job(job).submission_failures) == (["alpha"], 1)


def test_two_components_that_are_refused_together_are_one_refusal(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "alpha"))
    refuse(play, job)
    assert [(each.count, each.pause) for each in play.job(job).refusals] == [(1, FIRST_PAUSE)]
    assert play.job(job).submission_failures == 0


def test_an_optional_component_that_is_refused_is_left_out(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "beta", optional=True))
    required, optional = play.attempts(job)
    play.apply(SubmissionFailed(attempt=optional, reason=BUSY_QUEUE))
    play.come(required)
    play.apply(play.report(required, "running", released_at=play.now, started_at=play.now))
    assert play.job(job).state is JobState.RUNNING


# ---- a cluster that refuses one job after another


@pytest.mark.parametrize("reason", [BUSY_QUEUE, UNKNOWN, CLOSED], ids=lambda reason: reason.code)
def test_a_cluster_that_refuses_several_jobs_in_a_row_is_left_out_for_all_and_shown(play: Any, reason: Reason) -> None:
    for count in range(MOST_REFUSED):
        assert not left_out(play, "alpha")
        job = play.submit(component(4))
        assert claimed_on(play, job) == ["alpha"]
        refuse(play, job, reason)
        assert claimed_on(play, job) == ["beta"], count
        play.run(job)
        play.end(play.attempts(job)[0])
        play.obey()
        play.measure()
    assert left_out(play, "alpha")
    play.pending.clear()
    for _ in range(3):
        play.submit(component(1))
    placed = {each.cluster for each in play.pending if isinstance(each, SubmitAttempt)}
    assert placed
    assert "alpha" not in placed
    (shown,) = cluster_troubles(cluster_reports(play.engine, play.now))
    assert shown.startswith(f"alpha: it refuses one job after another, the last one so: {reason.message} Nothing is")
    named = play.submit(component(4, "alpha"))
    assert "refuses one job after another" in summary(explain(play.engine, play.now, play.job(named), worst_fit))


def test_one_job_that_is_refused_again_and_again_leaves_no_cluster_out(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    for _ in range(5):
        refuse(play, job)
        wait(play, dict(play.job(job).excluded)["alpha"] - play.now + SECOND)
    assert not left_out(play, "alpha")


def test_a_job_s_own_mistakes_leave_no_cluster_out(play: Any) -> None:
    for _ in range(5):
        refuse(play, play.submit(component(4, "alpha")), TOO_LARGE)
    assert not left_out(play, "alpha")


def test_a_refused_submission_of_an_attempt_that_is_being_cancelled_begins_no_pause(play: Any) -> None:
    """The batch system refuses what koalapy has withdrawn already: the word comes after the cancel."""
    for _ in range(MOST_REFUSED):
        job = play.submit(component(4, "alpha"))
        play.apply(CancelRequested(job))
        assert play.job(job).state is JobState.STOPPING
        refuse(play, job, CLOSED)
        assert (play.job(job).excluded, play.job(job).refusals) == ((), ())
    assert not left_out(play, "alpha")


def sick(play: Play) -> None:
    for _ in range(MOST_REFUSED):
        refuse(play, play.submit(component(4, "alpha")))
    assert left_out(play, "alpha")


def test_the_pause_ends_by_itself_and_the_next_refusal_doubles_it(play: Any) -> None:
    sick(play)
    for seconds in (30, 60, 120, 240, 480, 600, 600):
        job = play.submit(component(4, "alpha"))
        wait(play, (seconds - 1) * SECOND)
        assert (claimed_on(play, job), left_out(play, "alpha")) == ([], True)
        wait(play, 2 * SECOND)
        assert not left_out(play, "alpha")
        for each in play.jobs.values():
            if claimed_on(play, each.id):
                refuse(play, each.id)
        assert left_out(play, "alpha")


def test_an_accepted_submission_ends_the_pause_for_all(play: Any) -> None:
    before = play.submit(component(4, "alpha"))
    sick(play)
    waiting = play.submit(component(4, "alpha"))
    assert claimed_on(play, waiting) == []
    play.apply(AttemptSubmitted(attempt=play.attempts(before)[0], batch_id="1"))
    assert not left_out(play, "alpha")
    assert claimed_on(play, waiting) == ["alpha"]
    refuse(play, waiting)
    assert not left_out(play, "alpha")  # counted anew


def test_koalad_is_woken_at_the_end_of_the_pause(play: Any) -> None:
    sick(play)
    job = play.submit(component(4, "alpha"))
    play.engine.core.information.measured("alpha", play.measurement("alpha").state)
    until = play.now + 40 * SECOND
    while not claimed_on(play, job):
        play.wake()
        assert play.now < until


def test_a_limited_job_waits_though_jobs_of_other_clusters_end(play: Any) -> None:
    job, other = play.submit(component(4, "alpha")), play.submit(component(4, "beta"))
    refuse(play, job, LIMIT)
    play.run(other)
    play.end(play.attempts(other)[0])
    play.obey()
    assert claimed_on(play, job) == []
    play.apply(AttemptCleanedUp(attempt=play.attempts(other)[0]))
    assert claimed_on(play, job) == []


def test_the_longest_pause_is_ten_minutes() -> None:
    assert (FIRST_PAUSE, LONGEST_PAUSE, Instant(0)) == (5 * SECOND, 10 * MINUTE, 0)
