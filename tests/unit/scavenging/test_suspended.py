"""Launchers that their batch system suspends, and of which koalad gets no sign for a while."""

from typing import Any

from engine_play import UNREACHABLE
from sweep_play import SweepPlay

from koalapy.model.attempt import Attempt
from koalapy.model.events import BatchStatusSeen, ClusterConnected, ClusterLost
from koalapy.model.identity import JobId
from koalapy.model.states import BatchState, Ending, JobState, ReportedEnding

ONE = {"alpha": 16}


def begun() -> tuple[SweepPlay, JobId, list[Attempt]]:
    play = SweepPlay(ONE)
    sweep = play.sweep(100)
    play.start_all(sweep)
    return play, sweep, play.staying(sweep)


def see(play: SweepPlay, launchers: list[Attempt], state: str, ending: str = "") -> None:
    """The batch system's word of these."""
    attempts = [each.id for each in launchers]
    reported: dict[str, Any] = {
        "batch_id": "1",
        "state": BatchState(state),
        "ending": ReportedEnding(ending),
        "at": play.now,
    }
    play.apply(*(BatchStatusSeen(attempt=each, **reported) for each in attempts))
    play.measure()


def reconnect(play: SweepPlay) -> None:
    """Its Launchers are unknown until they report again."""
    play.apply(ClusterLost(cluster="alpha", reason=UNREACHABLE))
    play.apply(ClusterConnected(cluster="alpha", version="22.05"))


def reported(play: SweepPlay, sweep: JobId) -> list[str]:
    return [line.kind for line in play.history if line.job == sweep and line.kind.endswith(("suspended", "resumed"))]


def test_that_it_stands_still_is_reported_once_and_that_it_goes_on_wherever_koalad_was_meanwhile() -> None:
    play, sweep, launchers = begun()
    see(play, launchers[:2], "suspended")
    reconnect(play)
    see(play, launchers[:2], "suspended")
    play.restart()
    see(play, launchers[:2], "suspended")
    assert reported(play, sweep) == ["sweep_suspended"]
    reconnect(play)
    see(play, launchers, "running")
    reconnect(play)
    see(play, launchers, "running")
    assert reported(play, sweep) == ["sweep_suspended", "sweep_resumed"]


def test_those_that_stood_still_until_their_walltime_have_not_failed() -> None:
    """However many: nothing shows that the next would fare no better."""
    play, sweep, launchers = begun()
    for launcher in launchers:
        see(play, [launcher], "suspended")
        see(play, [launcher], "ended", "walltime")
        play.go()
    play.measure()
    assert play.record(sweep).state is JobState.RUNNING
    assert {"launcher_lost", "cluster_excluded"}.isdisjoint(line.kind for line in play.history if line.job == sweep)
    assert {play.pilots[launcher.id].ending for launcher in launchers} == {Ending.FAILED}
    assert play.holds(sweep) == {"alpha": 4}
