"""koalad put together: what has to be there before what."""

import time
from pathlib import Path
from typing import Any

import pytest

from koalapy.config import read_grid
from koalapy.model.units import HOUR
from koalapy.runtime.koalad import Koalad

GRID = b"grid: here\nclusters: {near: {connect: 'local:', batch: local, shared: %s}}\n"


def test_the_driver_begins_when_there_is_somebody_to_send_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends at once what the last koalad had not brought home."""
    grid = read_grid(GRID % str(tmp_path).encode(), "grid.yaml", ["local"])
    koalad = Koalad(grid, tmp_path / "state")
    running: list[Any] = []
    monkeypatch.setattr(koalad._links, "start", lambda loop, connected, slept: running.append(loop._thread.is_alive()))
    koalad.start()
    koalad.stop()
    assert running == [False]


def test_hours_of_sweeps_are_those_of_this_hosts_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    koalad = Koalad(read_grid(GRID % str(tmp_path).encode(), "grid.yaml", ["local"]), tmp_path / "state")
    monkeypatch.undo()
    time.tzset()
    [(_, offset)] = koalad._loop._driver.engine.scavenger._settings.scavenging.offsets
    assert offset == 9 * HOUR
