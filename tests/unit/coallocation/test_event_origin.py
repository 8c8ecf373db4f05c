"""A cluster reports its own attempts only: reports about attempts, cancels and parameters elsewhere are ignored."""

from collections.abc import Callable
from typing import Any

import pytest
from engine_play import UNREACHABLE, Play, component
from sweep_play import SweepPlay, result

from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptStuck,
    AttemptSubmitted,
    BatchStatusSeen,
    CancelRequested,
    ClusterConnected,
    ClusterLost,
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    SubmissionFailed,
    WrapperReported,
)
from koalapy.model.identity import AttemptId
from koalapy.model.intervals import Intervals
from koalapy.model.job import Job
from koalapy.model.states import BatchState, JobState, ReportedEnding, WrapperPhase
from koalapy.model.units import Instant
from koalapy.views.clusters import cluster_reports, cluster_troubles, clusters_answer

WHY = Reason("refused", "transient", "The batch system is busy.", "")
Forge = Callable[[AttemptId], Any]
FORGED: dict[str, Forge] = {
    "submitted": lambda attempt: AttemptSubmitted(cluster="beta", attempt=attempt, batch_id="666"),
    "not submitted": lambda attempt: SubmissionFailed(cluster="beta", attempt=attempt, reason=WHY),
    "lost": lambda attempt: BatchStatusSeen(
        cluster="beta", attempt=attempt, batch_id="666", at=Instant(5), state=BatchState.ENDED
    ),
    "missing": lambda attempt: BatchStatusSeen(
        cluster="beta", attempt=attempt, batch_id="666", at=Instant(5), state=BatchState.MISSING
    ),
    "at its barrier": lambda attempt: WrapperReported(
        cluster="beta", attempt=attempt, batch_id="666", phase=WrapperPhase.AT_BARRIER, at_barrier_at=Instant(5)
    ),
    "ended": lambda attempt: WrapperReported(
        cluster="beta",
        attempt=attempt,
        batch_id="666",
        phase=WrapperPhase.ENDED,
        ending=ReportedEnding.EXITED,
        exit_status=0,
    ),
    "cleaned up": lambda attempt: AttemptCleanedUp(cluster="beta", attempt=attempt),
    "stuck": lambda attempt: AttemptStuck(cluster="beta", attempt=attempt, reason=WHY),
}


def on_alpha(play: Play) -> tuple[Job, AttemptId]:
    job = play.submit(component(4, cluster="alpha"))
    return play.job(job), play.attempts(job)[0]


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("running", [False, True], ids=["submitted", "running"])
def test_a_report_about_an_attempt_elsewhere_changes_nothing(forged: Callable[[AttemptId], Any], running: bool) -> None:
    play = Play()
    job, attempt = on_alpha(play)
    if running:
        play.run(job.id)
    before, history = play.job(job.id), list(play.history)
    assert play.apply(forged(attempt)) == []
    assert play.job(job.id) == before
    assert play.history == history
    assert play.engine.core.foreign.foreign["beta"].count == 1
    assert str(attempt) in play.engine.core.foreign.foreign["beta"].last


def test_a_report_of_the_attempt_s_own_cluster_is_accepted() -> None:
    play = Play()
    job, attempt = on_alpha(play)
    play.run(job.id)
    play.end(attempt)
    assert play.job(job.id).state in (JobState.STOPPING, JobState.DONE)
    assert play.engine.core.foreign.foreign == {}


def test_a_report_about_a_cleaned_up_attempt_is_not_counted_as_foreign() -> None:
    """A KCM may repeat a report about an attempt that was cleaned up long ago."""
    play = Play()
    job, attempt = on_alpha(play)
    play.run(job.id)
    play.end(attempt)
    play.apply(AttemptCleanedUp(cluster="alpha", attempt=attempt))
    play.apply(AttemptCleanedUp(cluster="alpha", attempt=attempt), AttemptCleanedUp(cluster="beta", attempt=attempt))
    assert play.engine.core.foreign.foreign == {}


def test_a_pending_cancel_is_confirmed_by_its_own_cluster_only() -> None:
    play = Play()
    job, attempt = on_alpha(play)
    play.run(job.id)
    play.down.add("alpha")
    play.apply(ClusterLost(cluster="alpha", reason=UNREACHABLE))
    play.apply(CancelRequested(job.id, force=True))
    assert list(play.pending_cancels) == [attempt]
    play.apply(AttemptCleanedUp(cluster="beta", attempt=attempt))
    assert list(play.pending_cancels) == [attempt]
    play.apply(ClusterConnected(cluster="alpha", version="22.05"), AttemptCleanedUp(cluster="alpha", attempt=attempt))
    assert play.pending_cancels == {}


def test_foreign_reports_are_counted_and_shown() -> None:
    play = Play()
    _, attempt = on_alpha(play)
    for _ in range(3):
        play.apply(AttemptCleanedUp(cluster="beta", attempt=attempt))
    reports = cluster_reports(play.engine, play.now)
    counts = {each["name"]: each["foreign_reports"] for each in clusters_answer(reports)["clusters"]}
    assert counts == {"alpha": 0, "beta": 3, "gamma": 0}
    (trouble,) = cluster_troubles(reports)
    assert trouble.startswith("beta: It has reported 3 times on attempts that are not on it")
    assert f"AttemptCleanedUp of attempt {attempt}" in trouble


# ---- sweeps


def running_sweep() -> tuple[SweepPlay, Any, Attempt]:
    """A sweep with a Launcher on each cluster, and parameters out on alpha."""
    play = SweepPlay()
    sweep = play.sweep()
    play.start_all(sweep)
    (launcher, *_) = play.staying(sweep, "alpha")
    return play, sweep, launcher


def test_only_results_of_parameters_that_are_out_on_the_cluster_count() -> None:
    play, sweep, launcher = running_sweep()
    fed = [*play.want(sweep, "alpha", 4)]
    (theirs, *_) = play.staying(sweep, "beta")
    play.ran(theirs, fed[:2])
    assert play.recorded(sweep) == []
    assert play.engine.core.foreign.foreign["beta"].count == 1
    never = max(fed) + 1
    play.ran(launcher, [*fed, never])
    assert play.recorded(sweep) == fed
    assert play.engine.core.foreign.foreign["alpha"].count == 1


def test_a_returned_parameter_may_still_have_a_result() -> None:
    play, sweep, launcher = running_sweep()
    fed = [*play.want(sweep, "alpha", 2)]
    play.back(sweep, "alpha", Intervals.numbers(fed))
    play.ran(launcher, fed)
    assert play.recorded(sweep) == fed
    play.ran(launcher, fed)  # a repeated report
    assert play.engine.core.foreign.foreign == {}


def test_only_a_launcher_of_the_sweep_on_the_cluster_has_results() -> None:
    play, sweep, _ = running_sweep()
    fed = [*play.want(sweep, "alpha", 2)]
    job = play.submit(component(1, cluster="alpha"))
    (theirs, *_) = play.staying(sweep, "beta")
    for forger in (play.attempts(job)[0], theirs.id):
        rows = tuple(result(number) for number in fed)
        play.apply(ParametersEnded(cluster="alpha", sweep=sweep, attempt=forger, results=rows))
    assert play.recorded(sweep) == []
    assert play.engine.core.foreign.foreign["alpha"].count == 2


def test_reports_about_launchers_elsewhere_are_ignored() -> None:
    play, sweep, launcher = running_sweep()
    (theirs, *_) = play.staying(sweep, "beta")
    own, other = (each.id for each in (launcher, theirs))
    play.apply(LaunchersSeen(cluster="alpha", launchers=((own, 1, play.now), (other, 5, play.now))))
    assert play.engine.scavenger.running_parameters == {own: 1}
    play.apply(LauncherSuspected(cluster="alpha", attempt=other, host="n1"))
    assert not play.hints or not any(type(hint).__name__ == "TrustLauncher" for hint in play.hints)
    assert play.engine.core.foreign.foreign["alpha"].count == 2
