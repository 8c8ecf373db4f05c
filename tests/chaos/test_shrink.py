"""The shrinker finds a minimal failing list within its number of tries."""

from hypothesis import given
from hypothesis import strategies as st

from koalapy.chaos.plan import shrink

ITEMS = st.lists(st.integers(0, 50), max_size=60, unique=True)


@given(items=ITEMS, data=st.data())
def test_a_list_shrinks_to_the_items_that_fail_in_order(items: list[int], data: st.DataObject) -> None:
    needed = set(data.draw(st.lists(st.sampled_from(items), max_size=4))) if items else set()
    assert shrink(items, lambda part: needed <= set(part), 10_000) == [item for item in items if item in needed]


@given(items=ITEMS.filter(len), limit=st.integers(0, 40))
def test_the_answer_is_minimal(items: list[int], limit: int) -> None:
    def fails(part: list[int]) -> bool:
        return sum(part) > limit

    if fails(items):
        shortest = shrink(items, fails, 10_000)
        assert fails(shortest)
        assert not any(fails(shortest[:i] + shortest[i + 1 :]) for i in range(len(shortest)))


@given(items=ITEMS, tries=st.integers(0, 10))
def test_the_answer_fails_even_after_few_tries(items: list[int], tries: int) -> None:
    asked = []

    def fails(part: list[int]) -> bool:
        asked.append(part)
        return len(part) >= len(items) // 2

    assert len(shrink(items, fails, tries)) >= len(items) // 2
    assert len(asked) <= tries
