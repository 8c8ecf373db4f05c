"""Sweeps that are held, unheld and cancelled while they still return their nodes, and their explanations."""

from collections.abc import Sequence

import pytest
from engine_play import check
from sweep_play import SweepPlay

from koalapy.coallocation.changeable import HOLD, RELEASE
from koalapy.model.errors import Reason
from koalapy.model.events import AttemptStuck, CancelRequested, Event, HoldRequested, ReleaseRequested
from koalapy.model.header import Outcome
from koalapy.model.identity import JobId
from koalapy.model.intervals import Intervals
from koalapy.model.states import JobState
from koalapy.policies.placement import worst_fit
from koalapy.views.explanation import explain, summary

SWEEP = JobId(1)
HELD, UNHELD, ENDED = HoldRequested(SWEEP), ReleaseRequested(SWEEP), CancelRequested(SWEEP)


def started_sweep() -> SweepPlay:
    play = SweepPlay({"alpha": 8, "beta": 8})
    assert play.sweep(100) == SWEEP
    play.start_all(SWEEP)
    play.want(SWEEP, "alpha", 8)
    return play


def explanation(play: SweepPlay) -> str:
    return summary(explain(play.engine, play.now, play.record(SWEEP), worst_fit))


@pytest.mark.parametrize(
    ("requests", "state"),
    [
        ([HELD, HELD], JobState.HELD),
        ([HELD, UNHELD], JobState.RUNNING),
        ([HELD, UNHELD, UNHELD], JobState.RUNNING),
        ([HELD, UNHELD, HELD], JobState.HELD),
        ([HELD, UNHELD, ENDED], JobState.CANCELLED),
        ([HELD, ENDED, UNHELD], JobState.CANCELLED),
        ([ENDED, HELD], JobState.CANCELLED),
    ],
)
@pytest.mark.parametrize("restarted", [False, True], ids=["runs_on", "restarted"])
def test_the_last_request_counts_while_a_sweep_returns_its_nodes(
    requests: Sequence[Event], state: JobState, restarted: bool
) -> None:
    play = started_sweep()
    for event in requests:
        play.apply(event)
    if restarted:
        play.restart()
    assert play.record(SWEEP).state is JobState.STOPPING
    play.go()
    play.measure()
    assert play.record(SWEEP).state is state
    check(play)


def test_a_sweep_that_returns_its_nodes_accepts_hold_and_release_by_its_next_state() -> None:
    play = started_sweep()
    play.apply(HELD)
    assert [each.refusal(SWEEP, play.record(SWEEP)) for each in (HOLD, RELEASE)] == [None, None]
    play.apply(UNHELD)
    assert HOLD.refusal(SWEEP, play.record(SWEEP)) is None
    assert "is not held" in str(RELEASE.refusal(SWEEP, play.record(SWEEP)))
    play.apply(ENDED)
    assert [each.refusal(SWEEP, play.record(SWEEP)) is None for each in (HOLD, RELEASE)] == [False, False]


def test_the_explanation_of_a_stopping_sweep_names_the_clusters_it_waits_for() -> None:
    play = started_sweep()
    ends = " waits for the end of its Launchers on alpha, beta."
    play.apply(HELD)
    assert explanation(play) == "It gives its nodes back, to be held, and" + ends
    play.apply(UNHELD)
    assert explanation(play) == "It gives its nodes back before it goes on, and" + ends
    play.apply(ENDED)
    assert explanation(play) == "It is stopping, and" + ends
    stuck = play.launchers(SWEEP)[0]
    assert play.record(SWEEP).outcome is Outcome.CANCELLED
    why = Reason("stuck", "cluster", "The batch system does not end it.", "Ask its administrator.")
    play.apply(AttemptStuck(attempt=stuck.id, reason=why))
    assert "on alpha (The batch system does not end it), beta. Ask" in explanation(play)
    assert explanation(play).endswith("Ask its administrator. `koala cancel --force 1` does not wait for it.")


@pytest.mark.parametrize("held", [False, True], ids=["running", "held"])
def test_no_parameter_is_out_after_the_end_of_a_sweep(held: bool) -> None:
    """The KCM returns its inventory later, or not at all."""
    play = started_sweep()
    if held:
        play.apply(HELD)
        play.go()
        assert play.record(SWEEP).state is JobState.HELD
    assert play.record(SWEEP).out
    play.apply(ENDED)
    play.go()
    play.back(SWEEP, "alpha", Intervals(((1, 8),)))
    assert (play.record(SWEEP).state, play.record(SWEEP).out) == (JobState.CANCELLED, ())
    check(play)
