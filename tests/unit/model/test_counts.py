"""Counts in sentences: one thing is named in the singular, all other counts in the plural."""

import pytest

from koalapy.model.counts import counted_as


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("cluster",), "1 cluster"),
        (0, ("cluster",), "0 clusters"),
        (2, ("cluster",), "2 clusters"),
        (-1, ("node",), "-1 nodes"),
        (1.5, ("node",), "1.5 nodes"),
        ("1", ("seed",), "1 seed"),
        ("1,000", ("seed",), "1,000 seeds"),
        (1, ("entry was", "entries were"), "1 entry was"),
        (3, ("entry was", "entries were"), "3 entries were"),
    ],
)
def test_a_count_has_its_noun(number: object, words: tuple[str, ...], text: str) -> None:
    assert counted_as(number, *words) == text
