"""The engine where clusters are out of reach: what it takes for unknown, for lost and for a debt."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import BUSY_QUEUE, INSTANCE, SIZES, Play, alike, component

from koalapy.api.documents.jobs import job as job_document
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
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import SECOND, Duration, Instant, format_instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.clusters import cluster_reports, cluster_troubles
from koalapy.views.explanation import explain, summary


def test_an_unreachable_cluster_costs_no_retry(play: Any) -> None:
    play.lose("gamma")
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    play.measure()
    assert play.job(job).state is JobState.WAITING
    play.reach("gamma")
    assert play.job(job).state is JobState.CLAIMING
    assert play.job(job).submission_failures == 0


def test_what_cannot_be_reached_is_a_debt_until_it_can_be(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "gamma"))
    first, lost = play.attempts(job)
    play.come(first)
    play.lose("gamma")
    play.wake()
    play.obey()
    assert play.job(job).state is JobState.WAITING
    assert list(play.debts) == [lost]
    play.reach("gamma")
    assert not play.debts
    play.measure()
    assert play.job(job).state is JobState.CLAIMING


def test_a_component_running_out_of_reach_is_unknown_until_its_cluster_answers(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    attempt = play.attempts(job)[0]
    play.lose("alpha")
    assert play.job(job).components[0].state is ComponentState.UNKNOWN
    assert play.job(job).state is JobState.RUNNING
    play.reach("alpha")
    play.tell(play.report(attempt, "running", released_at=play.now, started_at=play.now))
    assert play.job(job).components[0].state is ComponentState.RUNNING
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_only_force_ends_a_job_that_runs_out_of_reach(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.tell(CancelRequested(job))
    assert play.job(job).state is JobState.STOPPING
    play.tell(CancelRequested(job, force=True))
    assert play.job(job).state is JobState.CANCELLED
    assert play.debts
    play.reach("alpha")
    assert not play.debts


STUCK = Reason("stuck", "cluster", "The batch system lists batch job 1 still.", "Its administrator can remove it.")


def test_a_job_whose_program_has_ended_does_not_wait_for_its_batch_job_to_go(play: Any) -> None:
    """What nobody told the batch system before its daemon was killed, only its administrator can."""
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.end(attempt)
    assert play.job(job).state is JobState.STOPPING
    play.tell(AttemptStuck(attempt=attempt, reason=STUCK))
    assert play.job(job).state is JobState.DONE
    assert [debt.stuck for debt in play.debts.values()] == [STUCK]
    play.tell(AttemptCleanedUp(attempt=attempt))
    assert not play.debts


def test_a_batch_job_that_lingers_costs_the_next_try_nothing(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.tell(play.report(attempt, "ended", ended_at=play.now, ending="killed", exit_status=137))
    play.tell(AttemptStuck(attempt=attempt, reason=STUCK))
    play.measure()
    assert (play.job(job).state, play.job(job).completion_failures) == (JobState.CLAIMING, 1)
    assert list(play.debts) == [attempt]


def test_only_force_ends_a_job_that_may_run_in_a_batch_job_that_lingers(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.tell(CancelRequested(job))
    play.tell(AttemptStuck(attempt=attempt, reason=STUCK))
    assert play.job(job).state is JobState.STOPPING
    told = summary(explain(play.engine, play.now, play.job(job), worst_fit))
    assert "The batch system lists batch job 1 still" in told
    assert told.endswith(f"Its administrator can remove it. `koala cancel --force {job}` does not wait for it.")
    play.tell(CancelRequested(job, force=True))
    assert play.job(job).state is JobState.CANCELLED
    assert [debt.stuck for debt in play.debts.values()] == [STUCK]


def test_a_job_out_of_reach_does_not_hold_up_the_others() -> None:
    settings = alike(max_overtakes=0)
    play = Play(settings)
    play.lose("gamma")
    play.submit(component(4, "gamma"))
    job = play.submit(component(4, "beta"))
    assert play.job(job).state is JobState.CLAIMING


def test_forgotten_is_not_finished(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    attempt = play.attempts(job)[0]
    play.tell(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state="missing"))
    assert play.job(job).components[0].state is ComponentState.UNKNOWN
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_explain_show_and_status_say_since_when_a_running_component_is_silent(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    since = Instant(play.now - 60 * SECOND)
    play.tell(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state="running", silent_since=since))
    assert play.job(job).state is JobState.RUNNING
    assert told_of(play, job) == (
        "It is running, as far as is known; nothing is heard of component 0 on alpha (its wrapper has been silent "
        f"since {format_instant(since)}; its batch system says that it runs). "
        f"If its node is dead, `koala cancel --force {job}` ends it."
    )
    assert job_document(play.job(job))["components"][0]["silent_since"] == format_instant(since)
    (trouble,) = cluster_troubles(cluster_reports(play.engine, play.now))
    assert trouble.startswith(
        f"alpha: Nothing has been heard of 1 running component (job {job}) since {format_instant(since)}. "
    )


@pytest.mark.parametrize("heard", ["report", "batch_system"])
def test_a_component_that_is_heard_again_is_silent_no_more(play: Any, heard: str) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    silent = BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state="running", silent_since=play.now)
    play.tell(silent)
    assert told_of(play, job) != "It is running."
    again = play.report(attempt, "running", released_at=play.now, started_at=play.now)
    play.tell(again if heard == "report" else replace(silent, silent_since=None))
    assert told_of(play, job) == "It is running."
    assert job_document(play.job(job))["components"][0]["silent_since"] is None
    assert cluster_troubles(cluster_reports(play.engine, play.now)) == []


def test_a_silent_component_that_its_batch_system_forgets_or_whose_cluster_is_lost_stays_silent(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    since = Instant(play.now - 60 * SECOND)
    play.tell(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state="running", silent_since=since))
    play.tell(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state="missing"))
    said = f"its wrapper has been silent since {format_instant(since)}"
    assert f"({said}; its batch system does not list it)." in told_of(play, job)
    play.lose("alpha")
    assert f"; {said})." in told_of(play, job)
    assert "says that it runs" not in told_of(play, job)


def told_of(play: Any, job: JobId) -> str:
    return summary(explain(play.engine, play.now, play.job(job), worst_fit))


def test_unknown_has_an_end(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.tell(BatchStatusSeen(attempt=play.attempts(job)[0], batch_id="1", at=play.now, state="missing"))
    play.wake()
    play.obey()
    play.measure()
    assert play.job(job).completion_failures == 1


def test_the_directory_of_a_debt_is_forgotten_when_it_is_settled(play: Any) -> None:
    job = play.submit(component(4, "gamma"))
    (lost,) = play.attempts(job)
    play.lose("gamma")
    assert ForgetAttempt(cluster="gamma", attempt=lost) not in play.wake()
    assert list(play.debts) == [lost]
    play.down.clear()
    play.tell(CancelRequested(job))
    commands = play.tell(AttemptCleanedUp(attempt=lost))
    assert commands == [ForgetAttempt(cluster="gamma", attempt=lost)]
    assert not play.debts


def test_what_is_missing_out_of_reach_is_not_lost(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    missing = BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state="missing")
    play.tell(missing)
    play.lose("alpha")
    assert play.engine.next_wakeup() is None
    play.tell(after=Duration(2 * play.settings.orphan_timeout))
    play.reach("alpha")
    assert play.job(job).state is JobState.RUNNING
    play.tell(missing)
    play.tell(after=Duration(play.settings.orphan_timeout))
    assert play.job(job).state is JobState.RUNNING
    play.wake()
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "lost"


def test_a_koalad_that_slept_takes_nothing_for_lost(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.tell(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state="missing"))
    play.engine = Engine(
        play.settings, Policies(worst_fit, fpfs), Snapshot(instance=INSTANCE, jobs=tuple(play.jobs.values()))
    )
    play.tell(after=Duration(2 * play.settings.orphan_timeout))
    play.tell(ClusterConnected(cluster="alpha", version="22.05"))
    assert play.job(job).state is JobState.RUNNING
    play.end(attempt)
    play.obey()
    assert play.job(job).state is JobState.DONE


def test_what_a_kcm_said_is_missing_stays_missing_when_it_welcomes_a_second_time(play: Any) -> None:
    """It does so once shared directory and batch system can be used, and says nothing twice."""
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.tell(BatchStatusSeen(attempt=play.attempts(job)[0], batch_id="1", at=play.now, state="missing"))
    play.tell(ClusterConnected(cluster="alpha", version="22.05.2"))
    play.wake()
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "lost"


def test_what_the_queue_lists_again_is_not_missing(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    for state in ("missing", "running"):
        play.tell(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=state))
    assert play.job(job).components[0].state is ComponentState.RUNNING
    assert play.engine.next_wakeup() is None
    for state in ("missing", "suspended"):
        play.tell(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state=state))
    assert play.job(job).components[0].state is ComponentState.SUSPENDED
    assert play.engine.next_wakeup() is None


def test_a_cluster_out_of_reach_is_told_once(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.tell(ClusterLost(cluster="alpha", reason=BUSY_QUEUE))
    assert play.kinds.count("component_unknown") == 1


def test_the_next_try_does_not_wait_for_a_cluster_where_the_program_has_ended(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.end(attempt, 137, "killed")
    play.lose("alpha")
    assert play.job(job).state is JobState.WAITING
    assert list(play.debts) == [attempt]


def test_all_components_of_a_job_on_a_cluster_out_of_reach_are_unknown(play: Any) -> None:
    job = play.submit(component(4, "alpha"), component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    assert [each.state for each in play.job(job).components] == [ComponentState.UNKNOWN] * 2


def test_the_next_try_waits_for_what_was_only_taken_for_lost(play: Any) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.tell(BatchStatusSeen(attempt=attempt, batch_id="1", at=play.now, state="missing"))
    play.wake()
    assert play.job(job).state is JobState.STOPPING
    play.lose("alpha")
    assert play.job(job).state is JobState.STOPPING
    play.reach("alpha")
    assert play.job(job).completion_failures == 1


def test_an_attempt_that_never_ran_is_no_reason_to_wait_for_its_cluster(play: Any) -> None:
    """It is taken for lost at its barrier, and its cluster goes out of reach before the cancel is confirmed."""
    job = play.submit(component(4, "alpha"), component(4, "beta"))
    first, second = play.attempts(job)
    play.come(first)
    play.tell(CancelRequested(job))
    play.tell(AttemptCleanedUp(attempt=second))
    play.tell(BatchStatusSeen(attempt=first, batch_id=str(first), at=play.now, state="missing"))
    play.tell(after=Duration(3600 * SECOND))
    assert play.job(job).state is JobState.STOPPING
    assert play.job(job).components[0].state is ComponentState.FAILED
    play.lose("alpha")
    assert play.job(job).state is JobState.CANCELLED
    assert list(play.debts) == [first]


def test_a_measurement_that_becomes_too_old_lets_others_pass_a_job_that_waits_for_its_cluster() -> None:
    """By time alone: no event comes at that instant."""
    clusters = tuple(ClusterSettings(name=name, batch="slurm") for name in SIZES)
    play = Play(Settings(clusters=clusters, max_overtakes=0))
    play.measure(alpha=32)
    measured_at = play.now - 1000
    first, second = play.submit(component(4, "alpha")), play.submit(component(4, "gamma"))
    play.tell(play.measurement("gamma"), after=Duration(SECOND))
    assert play.job(second).state is JobState.WAITING
    wakeup = play.engine.next_wakeup()
    assert wakeup == measured_at + clusters[0].max_age + 1
    play.tell(after=Duration(wakeup - play.now))
    assert (play.job(first).state, play.job(second).state) == (JobState.WAITING, JobState.CLAIMING)


def test_measurements_wake_nobody_while_no_job_waits(play: Any) -> None:
    assert play.engine.next_wakeup() is None
