"""The measured speed of a processor: the same work on every host, and a figure that a second measurement confirms."""

import sys
import zlib

import pytest
from koalapy_adapters.host import speed


def test_the_text_is_the_same_everywhere_and_can_be_compressed() -> None:
    text = speed.fixed_text()
    assert (len(text), zlib.crc32(text)) == (100_000, 842691200)
    assert len(zlib.compress(text)) < 60_000


def test_it_has_two_places_and_a_second_measurement_is_near() -> None:
    found = [speed.measure() for _ in range(3)]
    assert all(float(f"{each:.1e}") == each > 100 for each in found)
    assert max(found) < 3 * min(found)


def test_a_python_without_zlib_gives_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zlib", None)
    assert speed.measure() == 0
