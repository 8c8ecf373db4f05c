"""The engine with unreachable clusters: which attempts are unknown, lost, or pending cancels."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import BUSY_QUEUE, INSTANCE, SIZES, Play, alike, component, present

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import ForgetAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptStuck,
    BatchStatusSeen,
    CancelRequested,
    ClusterConnected,
    ClusterLost,
)
from koalapy.model.identity import JobId
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState, BatchState, Ending, JobState
from koalapy.model.units import SECOND, Duration, Instant, format_instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.clusters import cluster_reports, cluster_troubles
from koalapy.views.explanation import explain, summary
from koalapy.views.jobs import job as job_document


def test_an_unreachable_cluster_costs_no_retry(play: Any) -> None:
    play.lose("gamma")
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    play.measure()
    assert play.job(job).state is JobState.WAITING
    play.reach("gamma")
    assert play.job(job).state is JobState.CLAIMING
    assert play.job(job).submission_failures == 0


def test_a_cancel_on_an_unreachable_cluster_is_pending_until_the_cluster_is_reachable(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    first, lost = play.attempts(job)
    play.come(first)
    play.lose("gamma")
    play.wake()
    play.obey()
    assert play.job(job).state is JobState.WAITING
    assert list(play.pending_cancels) == [lost]
    play.reach("gamma")
    assert not play.pending_cancels
    play.measure()
    assert play.job(job).state is JobState.CLAIMING


SHUT_OUT = Reason("shut_out", "cluster", "The node n1 cannot connect to the relay.", "Set `relay: files`.")


@pytest.mark.parametrize("others", [True, False])
def test_a_cluster_is_excluded_for_a_node_that_is_shut_out_only_if_no_other_is_connected(
    play: Any, others: bool
) -> None:
    first, second = (play.submit(component(4, "alpha")) for _ in range(2))
    if others:
        play.come(*play.attempts(first))
    (attempt,) = play.attempts(second)
    play.end(attempt, None, "failed", reason=SHUT_OUT)
    play.obey()
    play.measure()
    found = play.job(second)
    assert bool(found.excluded) is not others
    assert ("cluster_excluded" in play.kinds) is not others
    assert found.submission_failures == 1
    assert found.state is (JobState.CLAIMING if others else JobState.WAITING)
    message = next(line.details["message"] for line in play.history if line.kind == "attempt_ended")
    assert ("Other nodes are connected" in message, "relay: files" in message) == (others, not others)


def test_who_came_to_the_relay_of_an_earlier_session_shows_nothing_of_this_one(play: Any) -> None:
    first, second = (play.submit(component(4, "alpha")) for _ in range(2))
    play.come(*play.attempts(first))
    play.lose("alpha")
    play.reach("alpha")
    play.end(play.attempts(second)[0], None, "failed", reason=SHUT_OUT)
    assert play.job(second).excluded


def test_a_component_on_an_unreachable_cluster_is_unknown_until_its_cluster_answers(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    attempt = play.attempts(job)[0]
    play.lose("alpha")
    assert present(play.job(job)).state is AttemptState.UNKNOWN
    assert play.job(job).state is JobState.RUNNING
    play.reach("alpha")
    play.apply(play.report(attempt, "running", released_at=play.now, started_at=play.now))
    assert present(play.job(job)).state is AttemptState.RUNNING
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_only_force_ends_a_job_that_runs_on_an_unreachable_cluster(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.apply(CancelRequested(job))
    assert play.job(job).state is JobState.STOPPING
    play.apply(CancelRequested(job, force=True))
    assert play.job(job).state is JobState.CANCELLED
    assert play.pending_cancels
    play.reach("alpha")
    assert not play.pending_cancels


STUCK = Reason("stuck", "cluster", "The batch system lists batch job 1 still.", "Its administrator can remove it.")


def test_a_job_whose_program_has_ended_does_not_wait_for_a_stuck_batch_job(play: Any) -> None:
    """If a node's daemon was killed before it reported the end, only an administrator can remove the batch job."""
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.end(attempt)
    assert play.job(job).state is JobState.STOPPING
    play.apply(AttemptStuck(attempt=attempt, reason=STUCK))
    assert play.job(job).state is JobState.DONE
    assert [each.stuck for each in play.pending_cancels.values()] == [STUCK]
    play.apply(AttemptCleanedUp(attempt=attempt))
    assert not play.pending_cancels


def test_a_stuck_batch_job_does_not_delay_the_next_attempt(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.apply(play.report(attempt, "ended", ended_at=play.now, ending="killed", exit_status=137))
    play.apply(AttemptStuck(attempt=attempt, reason=STUCK))
    play.measure()
    assert (play.job(job).state, play.job(job).completion_failures) == (JobState.CLAIMING, 1)
    assert list(play.pending_cancels) == [attempt]


def test_only_force_ends_a_job_that_may_run_in_a_stuck_batch_job(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.apply(CancelRequested(job))
    play.apply(AttemptStuck(attempt=attempt, reason=STUCK))
    assert play.job(job).state is JobState.STOPPING
    explained = summary(explain(play.engine, play.now, play.job(job), worst_fit))
    assert "The batch system lists batch job 1 still" in explained
    assert explained.endswith(f"Its administrator can remove it. `koala cancel --force {job}` does not wait for it.")
    play.apply(CancelRequested(job, force=True))
    assert play.job(job).state is JobState.CANCELLED
    assert [each.stuck for each in play.pending_cancels.values()] == [STUCK]


def test_a_job_for_an_unreachable_cluster_does_not_delay_other_jobs() -> None:
    settings = alike(max_overtakes=0)
    play = Play(settings)
    play.lose("gamma")
    play.submit(component(4, "gamma"))
    job = play.submit(component(4, "beta"))
    assert play.job(job).state is JobState.CLAIMING


def test_a_missing_batch_job_has_not_ended(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    attempt = play.attempts(job)[0]
    play.apply(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState.MISSING))
    assert present(play.job(job)).state is AttemptState.UNKNOWN
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_explain_show_and_status_give_the_instant_since_when_a_running_component_is_silent(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    since = Instant(play.now - 60 * SECOND)
    play.apply(
        BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState.RUNNING, silent_since=since)
    )
    assert play.job(job).state is JobState.RUNNING
    assert summary_of(play, job) == (
        "It is running, as far as is known; there is no sign of life of component 0 on alpha "
        f"(its wrapper has been silent since {format_instant(since)}; its batch system lists it as running). "
        f"If its node is dead, `koala cancel --force {job}` ends it."
    )
    assert job_document(play.job(job))["components"][0]["silent_since"] == format_instant(since)
    (trouble,) = cluster_troubles(cluster_reports(play.engine, play.now))
    assert trouble.startswith(
        f"alpha: There is no sign of life of 1 running component (job {job}) since {format_instant(since)}. "
    )


@pytest.mark.parametrize("sign", ["report", "batch_system"])
def test_a_component_that_gives_a_sign_again_is_no_longer_silent(play: Any, sign: str) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    silent = BatchStatusSeen(
        attempt=attempt, batch_id="1", at=play.now, state=BatchState.RUNNING, silent_since=play.now
    )
    play.apply(silent)
    assert summary_of(play, job) != "It is running."
    again = play.report(attempt, "running", released_at=play.now, started_at=play.now)
    play.apply(again if sign == "report" else replace(silent, silent_since=None))
    assert summary_of(play, job) == "It is running."
    assert job_document(play.job(job))["components"][0]["silent_since"] is None
    assert cluster_troubles(cluster_reports(play.engine, play.now)) == []


def test_a_silent_component_stays_silent_when_it_is_missing_or_its_cluster_is_lost(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    since = Instant(play.now - 60 * SECOND)
    play.apply(
        BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState.RUNNING, silent_since=since)
    )
    play.apply(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState.MISSING))
    silence = f"its wrapper has been silent since {format_instant(since)}"
    gone = f"its batch system has not listed it since {format_instant(play.now)}"
    assert f"({silence}; {gone})." in summary_of(play, job)
    play.lose("alpha")
    assert f"; {silence})." in summary_of(play, job)
    assert "lists it as running" not in summary_of(play, job)


def summary_of(play: Any, job: JobId) -> str:
    return summary(explain(play.engine, play.now, play.job(job), worst_fit))


def test_an_unknown_component_is_lost_after_orphan_timeout(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.apply(BatchStatusSeen(attempt=play.attempts(job)[0], batch_id="1", at=play.now, state=BatchState.MISSING))
    play.wake()
    play.obey()
    play.measure()
    assert play.job(job).completion_failures == 1


def test_the_directory_of_an_attempt_is_forgotten_when_its_pending_cancel_is_confirmed(play: Any) -> None:
    job = play.submit(component(4, "gamma"))
    (lost,) = play.attempts(job)
    play.lose("gamma")
    assert ForgetAttempt(cluster="gamma", attempt=lost) not in play.wake()
    assert list(play.pending_cancels) == [lost]
    play.down.clear()
    play.apply(CancelRequested(job))
    commands = play.apply(AttemptCleanedUp(attempt=lost))
    assert commands == [ForgetAttempt(cluster="gamma", attempt=lost)]
    assert not play.pending_cancels


def test_an_attempt_missing_on_an_unreachable_cluster_is_not_lost(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    missing = BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState.MISSING)
    play.apply(missing)
    play.lose("alpha")
    assert play.engine.next_wakeup() is None
    play.apply(after=Duration(2 * play.settings.orphan_timeout))
    play.reach("alpha")
    assert play.job(job).state is JobState.RUNNING
    play.apply(missing)
    play.apply(after=Duration(play.settings.orphan_timeout))
    assert play.job(job).state is JobState.RUNNING
    play.wake()
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "lost"


def test_time_for_which_koalad_slept_does_not_make_an_attempt_lost(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.apply(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState.MISSING))
    play.engine = Engine(
        play.settings, Policies(worst_fit, fpfs), Snapshot(instance=INSTANCE, jobs=tuple(play.jobs.values()))
    )
    play.apply(after=Duration(2 * play.settings.orphan_timeout))
    play.apply(ClusterConnected(cluster="alpha", version="22.05"))
    assert play.job(job).state is JobState.RUNNING
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_a_second_welcome_of_a_kcm_keeps_a_missing_attempt_missing(play: Any) -> None:
    """A KCM sends it once shared directory and batch system can be used, and repeats no report."""
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.apply(BatchStatusSeen(attempt=play.attempts(job)[0], batch_id="1", at=play.now, state=BatchState.MISSING))
    play.apply(ClusterConnected(cluster="alpha", version="22.05.2"))
    play.wake()
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "lost"


def test_an_attempt_that_the_queue_lists_again_is_not_missing(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    for state in ("missing", "running"):
        play.apply(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState(state)))
    assert present(play.job(job)).state is AttemptState.RUNNING
    assert play.engine.next_wakeup() is None
    for state in ("missing", "suspended"):
        play.apply(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState(state)))
    assert present(play.job(job)).state is AttemptState.SUSPENDED
    assert play.engine.next_wakeup() is None


def test_an_unreachable_cluster_makes_a_component_unknown_once(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.apply(ClusterLost(cluster="alpha", reason=BUSY_QUEUE))
    assert play.kinds.count("attempt_unknown") == 1


def test_the_next_attempt_does_not_wait_for_a_cluster_where_the_program_has_ended(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.end(attempt, 137, "killed")
    play.lose("alpha")
    assert play.job(job).state is JobState.WAITING
    assert list(play.pending_cancels) == [attempt]


def test_all_components_of_a_job_on_an_unreachable_cluster_are_unknown(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    assert [each.state for each in play.job(job).present] == [AttemptState.UNKNOWN] * 2


def test_the_next_attempt_waits_for_an_attempt_that_was_only_presumed_lost(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.apply(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=BatchState.MISSING))
    play.wake()
    assert play.job(job).state is JobState.STOPPING
    play.lose("alpha")
    assert play.job(job).state is JobState.STOPPING
    play.reach("alpha")
    assert play.job(job).completion_failures == 1


def test_a_job_does_not_wait_for_the_cluster_of_an_attempt_that_never_ran(play: Any) -> None:
    """It is presumed lost at its barrier, and its cluster becomes unreachable before the cancel is confirmed."""
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    first, second = play.attempts(job)
    play.come(first)
    play.apply(CancelRequested(job))
    play.apply(AttemptCleanedUp(attempt=second))
    play.apply(BatchStatusSeen(attempt=first, batch_id=str(first), at=play.now, state=BatchState.MISSING))
    play.apply(after=Duration(3600 * SECOND))
    assert play.job(job).state is JobState.STOPPING
    assert present(play.job(job)).ending is Ending.FAILED
    play.lose("alpha")
    assert play.job(job).state is JobState.CANCELLED
    assert list(play.pending_cancels) == [first]


def test_a_job_that_waits_for_a_cluster_is_overtaken_once_the_cluster_s_measurement_is_too_old() -> None:
    """Time alone has this effect: no event comes at that instant."""
    clusters = tuple(ClusterSettings(name=name, batch="slurm") for name in SIZES)
    play = Play(Settings(clusters=clusters, max_overtakes=0))
    play.measure(alpha=32)
    measured_at = play.now - 1000
    first, second = play.submit(component(4, "alpha")), play.submit(component(4, "gamma"))
    play.apply(play.measurement("gamma"), after=Duration(SECOND))
    assert play.job(second).state is JobState.WAITING
    wakeup = play.engine.next_wakeup()
    assert wakeup == measured_at + clusters[0].max_age + 1
    play.apply(after=Duration(wakeup - play.now))
    assert (play.job(first).state, play.job(second).state) == (JobState.WAITING, JobState.CLAIMING)


def test_measurements_set_no_timer_while_no_job_waits(play: Any) -> None:
    assert play.engine.next_wakeup() is None
