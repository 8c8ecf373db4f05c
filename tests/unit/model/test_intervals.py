"""Intervals against plain sets of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from koalapy.model.intervals import Intervals

NUMBERS = st.frozensets(st.integers(0, 40))


@given(NUMBERS, NUMBERS)
def test_they_are_sets(left: frozenset[int], right: frozenset[int]) -> None:
    ours, theirs = Intervals.numbers(left), Intervals.numbers(right)
    assert list(ours) == sorted(left)
    assert set(ours | theirs) == left | right
    assert set(ours & theirs) == left & right
    assert set(ours - theirs) == left - right
    assert len(ours) == len(left)
    assert bool(ours) == bool(left)
    assert all((number in ours) == (number in left) for number in range(41))


@given(NUMBERS, NUMBERS)
def test_they_are_written_in_one_way(left: frozenset[int], right: frozenset[int]) -> None:
    ours, theirs = Intervals.numbers(left), Intervals.numbers(right)
    for each in (ours | theirs, ours & theirs, ours - theirs):
        assert each == Intervals.numbers(each)
        assert all(last + 1 < first for (_, last), (first, _) in zip(each.pairs, each.pairs[1:], strict=False))


@given(NUMBERS, st.integers(-1, 45))
def test_the_lowest(numbers: frozenset[int], count: int) -> None:
    assert list(Intervals.numbers(numbers).lowest(count)) == sorted(numbers)[: max(0, count)]


def test_a_million_in_order_are_one_pair() -> None:
    assert Intervals.of(((500_001, 1_000_000), (1, 500_000))).pairs == ((1, 1_000_000),)
    assert Intervals.of(((5, 4),)) == Intervals()
