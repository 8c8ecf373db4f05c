"""Instants as commands show them."""

import time
from collections.abc import Iterator

import pytest

from koalapy.cli import times


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is 5 h 30 min ahead of UTC."""
    monkeypatch.setenv("TZ", "EAST-5:30")
    time.tzset()
    times.use_utc(False)
    yield
    monkeypatch.undo()
    time.tzset()
    times.use_utc(False)


def test_an_instant_is_local_in_whole_seconds_and_with_utc_has_a_z() -> None:
    assert times.shown("2026-01-31T20:00:00.999999Z") == "2026-02-01 01:30:00"
    times.use_utc(True)
    assert times.shown("2026-01-31T20:00:00.999999Z") == "2026-01-31 20:00:00Z"


def test_instants_in_a_sentence_lose_the_day_of_its_line() -> None:
    text = "It ended (started 2026-01-31T18:00:00.000000Z, ended 2026-01-31T20:00:00.500000Z)."
    reported = "It ended (started 2026-01-31 23:30:00, ended 2026-02-01 01:30:00)."
    assert times.in_text(text) == reported
    assert times.in_text(text, at="2026-01-31T20:00:01Z") == reported.replace("2026-02-01 ", "")
    times.use_utc(True)
    assert times.in_text(text, at="2026-01-31T20:00:01Z") == "It ended (started 18:00:00Z, ended 20:00:00Z)."


@pytest.mark.parametrize("text", ["2026-13-31T18:00:00Z", "2026-01-31", "2026-01-31T18:00:00", "v2026-01-31T1:00Z"])
def test_other_words_stay_as_they_are(text: str) -> None:
    assert times.in_text(text) == text
