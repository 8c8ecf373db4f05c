"""A seed's moves are the same every time, and lists of their numbers are read and written alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.chaos.plan import format_only, parse_only, plan

DOINGS, FAULTS = {"submit": 3, "cancel": 1}, {"cut": 1, "kill": 2}


@given(seed=st.integers(0, 1 << 40), events=st.integers(0, 5_000))
def test_moves_come_in_order_within_the_course_and_the_same_every_time(seed: int, events: int) -> None:
    moves = plan(seed, events, DOINGS, FAULTS)
    assert moves == plan(seed, events, DOINGS, FAULTS)
    assert all(0 < move.at < events for move in moves)
    assert [move.at for move in moves] == sorted(move.at for move in moves)
    assert {move.kind for move in moves} <= DOINGS.keys() | FAULTS.keys()


def test_a_longer_course_begins_like_a_shorter_one() -> None:
    short, long = plan(7, 2_000, DOINGS, FAULTS), plan(7, 9_000, DOINGS, FAULTS)
    assert long[: len(short)] == short


def test_seeds_mix_faults_of_their_own() -> None:
    mixtures = {frozenset(move.kind for move in plan(seed, 5_000, DOINGS, FAULTS)) for seed in range(40)}
    assert len(mixtures) > 2


@given(numbers=st.sets(st.integers(0, 300)).map(sorted))
def test_a_list_of_moves_is_read_as_it_was_written(numbers: list[int]) -> None:
    assert parse_only(format_only(numbers), 301) == numbers


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("a", "'a' names no moves"), ("1,2-x", "'2-x' names no moves"), ("1,9", "There is no move 9")],
)
def test_a_bad_list_of_moves_is_refused_in_words(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_only(text, 9)
