"""Sweeps that are held, released and cancelled while they still give their nodes back, and what is told of them."""

from collections.abc import Sequence

import pytest
from engine_play import check
from sweep_play import SweepPlay

from koalapy.model.errors import Reason
from koalapy.model.events import AttemptStuck, CancelRequested, Event, HoldRequested, ReleaseRequested
from koalapy.model.identity import JobId
from koalapy.model.intervals import Intervals
from koalapy.model.job import Outcome
from koalapy.model.states import JobState
from koalapy.policies.placement import worst_fit
from koalapy.views.changes import HOLD, RELEASE
from koalapy.views.explanation import explain, summary

SWEEP = JobId(1)
HELD, LET_GO, ENDED = HoldRequested(SWEEP), ReleaseRequested(SWEEP), CancelRequested(SWEEP)


def begun() -> SweepPlay:
    play = SweepPlay({"alpha": 8, "beta": 8})
    assert play.sweep(100) == SWEEP
    play.start_all(SWEEP)
    play.want(SWEEP, "alpha", 8)
    return play


def told(play: SweepPlay) -> str:
    return summary(explain(play.engine, play.now, play.job(SWEEP), worst_fit))


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ([HELD, HELD], JobState.HELD),
        ([HELD, LET_GO], JobState.RUNNING),
        ([HELD, LET_GO, LET_GO], JobState.RUNNING),
        ([HELD, LET_GO, HELD], JobState.HELD),
        ([HELD, LET_GO, ENDED], JobState.CANCELLED),
        ([HELD, ENDED, LET_GO], JobState.CANCELLED),
        ([ENDED, HELD], JobState.CANCELLED),
    ],
)
@pytest.mark.parametrize("restarted", [False, True], ids=["runs_on", "restarted"])
def test_the_last_word_counts_while_nodes_are_given_back(
    said: Sequence[Event], state: JobState, restarted: bool
) -> None:
    play = begun()
    for event in said:
        play.tell(event)
    if restarted:
        play.restart()
    assert play.job(SWEEP).state is JobState.STOPPING
    play.go()
    play.measure()
    assert play.job(SWEEP).state is state
    check(play)


def test_what_can_be_done_with_a_sweep_that_gives_its_nodes_back() -> None:
    play = begun()
    play.tell(HELD)
    assert [each.refusal(SWEEP, play.job(SWEEP)) for each in (HOLD, RELEASE)] == [None, None]
    play.tell(LET_GO)
    assert HOLD.refusal(SWEEP, play.job(SWEEP)) is None
    assert "is not held" in str(RELEASE.refusal(SWEEP, play.job(SWEEP)))
    play.tell(ENDED)
    assert [each.refusal(SWEEP, play.job(SWEEP)) is None for each in (HOLD, RELEASE)] == [False, False]


def test_what_a_stopping_sweep_waits_for_is_told() -> None:
    play = begun()
    ends = " waits for the end of its Launchers on alpha, beta."
    play.tell(HELD)
    assert told(play) == "It gives its nodes back, to be held, and" + ends
    play.tell(LET_GO)
    assert told(play) == "It gives its nodes back before it goes on, and" + ends
    play.tell(ENDED)
    assert told(play) == "It is stopping, and" + ends
    stuck = play.launchers(SWEEP)[0]
    assert play.job(SWEEP).outcome is Outcome.CANCELLED
    why = Reason("stuck", "cluster", "The batch system does not end it.", "Ask its administrator.")
    play.tell(AttemptStuck(attempt=stuck.attempt_of(stuck.components[0]), reason=why))
    assert "on alpha (The batch system does not end it), beta. Ask" in told(play)
    assert told(play).endswith("Ask its administrator. `koala cancel --force 1` does not wait for it.")


@pytest.mark.parametrize("held", [False, True], ids=["running", "held"])
def test_nothing_is_out_of_a_sweep_that_is_over(held: bool) -> None:
    """What a KCM has in store comes back later, or not at all."""
    play = begun()
    if held:
        play.tell(HELD)
        play.go()
        assert play.job(SWEEP).state is JobState.HELD
    assert play.runner(SWEEP).out
    play.tell(ENDED)
    play.go()
    play.back(SWEEP, "alpha", Intervals(((1, 8),)))
    assert (play.job(SWEEP).state, play.runner(SWEEP).out) == (JobState.CANCELLED, ())
    check(play)
