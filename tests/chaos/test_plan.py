"""A seed's actions are reproducible, and lists of their numbers are formatted and parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.chaos.plan import format_only, parse_only, plan

USER_ACTIONS, FAULTS = {"submit": 3, "cancel": 1}, {"cut": 1, "kill": 2}


@given(seed=st.integers(0, 1 << 40), events=st.integers(0, 5_000))
def test_actions_are_in_order_within_the_run_and_reproducible(seed: int, events: int) -> None:
    actions = plan(seed, events, USER_ACTIONS, FAULTS)
    assert actions == plan(seed, events, USER_ACTIONS, FAULTS)
    assert all(0 < action.at < events for action in actions)
    assert [action.at for action in actions] == sorted(action.at for action in actions)
    assert {action.kind for action in actions} <= USER_ACTIONS.keys() | FAULTS.keys()


def test_a_longer_run_begins_with_the_actions_of_a_shorter_one() -> None:
    short, long = plan(7, 2_000, USER_ACTIONS, FAULTS), plan(7, 9_000, USER_ACTIONS, FAULTS)
    assert long[: len(short)] == short


def test_each_seed_has_its_own_mixture_of_faults() -> None:
    mixtures = {frozenset(action.kind for action in plan(seed, 5_000, USER_ACTIONS, FAULTS)) for seed in range(40)}
    assert len(mixtures) > 2


@given(numbers=st.sets(st.integers(0, 300)).map(sorted))
def test_a_formatted_list_of_actions_is_parsed_back(numbers: list[int]) -> None:
    assert parse_only(format_only(numbers), 301) == numbers


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("a", "'a' names no actions"), ("1,2-x", "'2-x' names no actions"), ("1,9", "There is no action 9")],
)
def test_an_invalid_list_of_actions_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_only(text, 9)
