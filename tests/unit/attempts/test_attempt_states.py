"""The attempt's table of transitions: whatever happens, and in whichever order, no attempt leaves it."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from engine_play import INSTANCE, Play, component, make, present
from hypothesis import given, settings
from hypothesis import strategies as st

from koalapy.model.attempt import Attempt
from koalapy.model.change import Snapshot
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptStuck,
    AttemptSubmitted,
    BatchStatusSeen,
    CancelRequested,
    StoreRestored,
    SubmissionFailed,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.request import ComponentRequest
from koalapy.model.states import (
    ATTEMPT_TRANSITIONS,
    RELEASED_SINCE_BACKUP,
    AttemptState,
    BatchState,
    Ending,
    JobState,
    ReportedEnding,
)
from koalapy.model.units import MINUTE, Duration, Instant

A = AttemptState
WISH = ComponentRequest(processors=1, executable="./program")
REFUSED = Reason("refused", "request", "No such queue.", "", command="sbatch", exit_status=1)
STUCK = Reason("stuck", "cluster", "It is still listed.", "")
PHASES = ("started", "at_barrier", "released", "running", "ended")
SEEN = ("seen queued", "seen running", "seen suspended", "seen missing", "seen ended")
EVENTS = (
    *PHASES,
    *SEEN,
    "submitted",
    "refused",
    "cleaned_up",
    "stuck",
    "cancel",
    "force",
    "lose",
    "reach",
    "wait",
    "restored",
)
Move = tuple[str, int]


def in_state(state: AttemptState) -> tuple[Records, Attempt]:
    attempt = Attempt(
        id=AttemptId(JobId(7), 0, 1),
        cluster="alpha",
        request=WISH,
        state=state,
        ending=Ending.FAILED if state.ended else None,
    )
    job = Job(
        id=JobId(7), owner="me", request=make(WISH), state=JobState.CLAIMING, position=1, submitted_at=Instant(1),
        attempts=(attempt,), numbers=(1,),
    )  # fmt: skip
    records = Records(Snapshot(instance=INSTANCE, jobs=(job,)))
    return records, records.attempts[attempt.id]


@pytest.mark.parametrize("state", AttemptState)
@pytest.mark.parametrize("other", AttemptState)
def test_a_change_that_the_table_does_not_have_is_refused(state: AttemptState, other: AttemptState) -> None:
    records, attempt = in_state(state)
    if state.may_become(other):
        records.change_attempt(attempt, state=other)
        assert attempt.state is other
    else:
        with pytest.raises(ValueError, match=f"cannot go from {state} to {other}"):
            records.change_attempt(attempt, state=other)
        assert attempt.state is state


@pytest.mark.parametrize("state", AttemptState)
def test_only_what_was_not_released_may_be_found_released(state: AttemptState) -> None:
    records, attempt = in_state(state)
    if state in RELEASED_SINCE_BACKUP:
        records.find_released(attempt, Instant(5))
        assert (attempt.state, attempt.released_at) == (A.RELEASED, 5)
    else:
        with pytest.raises(ValueError, match=str(state)):
            records.find_released(attempt, Instant(5))


def test_an_attempt_is_cleaned_up_from_every_state_but_never_without_an_end() -> None:
    for state in AttemptState:
        if state is not A.CLEANED_UP:
            records, attempt = in_state(state)
            records.clean_up(attempt, Instant(9))
            assert attempt.state is A.CLEANED_UP
            assert attempt.ending is (Ending.FAILED if state.ended else Ending.CANCELLED)


def played(moves: list[Move]) -> Play:
    """A job of two components, and what befalls its attempts: the move's number chooses one."""
    play = Play()
    job = play.submit(component(2, "alpha"), component(2, "beta"))
    for kind, choice in moves:
        attempts = play.attempts(job)
        if kind in ("lose", "reach"):
            getattr(play, kind)(("alpha", "beta")[choice % 2])
        elif kind == "wait":
            play.apply(after=Duration(6 * MINUTE))
            play.measure()
        elif kind == "restored":
            play.apply(StoreRestored(epoch=9, last_number=99))
        elif attempts:
            attempt = attempts[choice % len(attempts)]
            if present(play.job(job), attempt.component).cluster not in play.down:
                play.apply(_event(play, kind, attempt))
    return play


def _event(play: Play, kind: str, attempt: AttemptId) -> Any:
    if kind == "ended":
        return play.report(attempt, kind, ended_at=play.now, ending="exited", exit_status=0)
    if kind in PHASES:
        return play.report(attempt, kind, at_barrier_at=play.now)
    if kind in SEEN:
        state = kind.removeprefix("seen ")
        return BatchStatusSeen(
            attempt=attempt, batch_id="1", at=play.now, state=BatchState(state), ending=ReportedEnding.KILLED
        )
    match kind:
        case "submitted":
            return AttemptSubmitted(attempt=attempt, batch_id="1")
        case "refused":
            return SubmissionFailed(attempt=attempt, reason=REFUSED)
        case "cleaned_up":
            return AttemptCleanedUp(attempt=attempt)
        case "stuck":
            return AttemptStuck(attempt=attempt, reason=STUCK)
    return CancelRequested(attempt.job, force=kind == "force")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 1)), max_size=25))
def test_no_order_of_events_leaves_the_table(moves: list[Move]) -> None:
    """Each change is checked where it is made: one that the table does not have raises."""
    play = played(moves)
    for job in play.jobs.values():
        assert job.state.active or not job.live


_TO_RELEASE = [("at_barrier", 0), ("at_barrier", 1)]


@contextmanager
def recorded() -> Iterator[set[tuple[AttemptState, AttemptState]]]:
    """The transitions that attempts make meanwhile."""
    found: set[tuple[AttemptState, AttemptState]] = set()
    real = Records.change_attempt

    def change(self: Records, attempt: Attempt, **changes: Any) -> None:
        before = attempt.state
        real(self, attempt, **changes)
        if attempt.state is not before:
            found.add((before, attempt.state))

    with patch.object(Records, "change_attempt", change):
        yield found


def test_the_table_has_no_transition_that_never_happens() -> None:
    """Walks from fixed seeds that favour what goes on; together they take every way that the table shows."""
    whole = {(before, after) for before, following in ATTEMPT_TRANSITIONS.items() for after in following}
    likely = ("submitted", "at_barrier", "at_barrier", "running", "seen suspended", "seen missing", "lose", "reach")
    with recorded() as found:
        for seed in range(400):
            dice = Random(seed)
            moves = [(dice.choice((*likely, *EVENTS)), dice.randrange(2)) for _ in range(20)]
            played([*(_TO_RELEASE if seed % 2 else []), *moves])
            if found == whole:
                break
    assert found == whole, whole - found
