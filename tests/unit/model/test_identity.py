"""Names that batch systems and people read."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.model.identity import (
    FIRST_LAUNCHER,
    LAUNCHERS_END,
    MAX_ATTEMPTS,
    MAX_COMPONENTS,
    MAX_JOBS,
    AttemptId,
    JobId,
    Tag,
    attempt_of,
    instance_id,
    is_tag,
    launcher_id,
    launcher_named,
    tag_of,
)
from koalapy.model.units import Duration, Instant, format_duration, format_instant, parse_duration, parse_instant

ATTEMPTS = st.builds(
    AttemptId,
    st.integers(0, MAX_JOBS - 1).map(JobId),
    st.integers(0, MAX_COMPONENTS - 1),
    st.integers(0, MAX_ATTEMPTS - 1),
)


@given(st.binary(min_size=4, max_size=16), ATTEMPTS)
def test_a_tag_names_its_store_and_attempt_and_fits_every_batch_system(entropy: bytes, attempt: AttemptId) -> None:
    tag = tag_of(instance_id(entropy), attempt)
    assert attempt_of(tag) == (instance_id(entropy), attempt)
    assert len(tag) == 15
    assert tag.isalnum()
    assert tag[0] == "k"
    assert tag == tag.lower()


def test_tags_in_the_docs_are_tags() -> None:
    docs = Path(__file__).parents[3] / "docs"
    words = {
        word for page in docs.glob("*.md") for word in re.findall(r"\bk(?=\w*\d{3})[0-9a-z]{9,}\b", page.read_text())
    }
    assert words
    assert [word for word in sorted(words) if not is_tag(word)] == []


@pytest.mark.parametrize("name", ["", "kabc", "job", "Kabcde000000000", "kabcde00000000u", "kabcde0000000000"])
def test_other_names_are_no_tags(name: str) -> None:
    assert not is_tag(name)
    with pytest.raises(ValueError, match="not a tag"):
        attempt_of(Tag(name))


def test_an_attempt_is_written_as_people_write_it() -> None:
    assert str(AttemptId(JobId(7), 0, 2)) == "7.0.2"
    assert str(AttemptId(JobId(FIRST_LAUNCHER + 11), 0, 1)) == "p12"


def test_a_pilot_is_found_by_its_name() -> None:
    for each in (FIRST_LAUNCHER, FIRST_LAUNCHER + 11, LAUNCHERS_END - 1):
        assert launcher_named(str(launcher_id(each))) == launcher_id(each)
    for wrong in ("p0", "p", "12", "p01", "q3", "p-1", "p٣", f"p{LAUNCHERS_END - FIRST_LAUNCHER + 1}"):
        assert launcher_named(wrong) is None


@given(st.integers(0, 4_000_000_000_000_000))
def test_an_instant_is_read_back_as_it_was_written(moment: int) -> None:
    assert parse_instant(format_instant(Instant(moment))) == moment


@given(st.integers(1, 10_000_000))
def test_a_duration_is_read_back_as_it_was_written(seconds: int) -> None:
    assert parse_duration(format_duration(Duration(seconds * 1_000_000))) == seconds * 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("30d", 2_592_000), ("1h30m", 5400), ("250ms", 0.25)]
)
def test_durations_of_files(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds * 1_000_000


@pytest.mark.parametrize("text", ["", "10", "h", "10 minutes", "-5s", "1h x"])
def test_what_is_no_duration_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)
