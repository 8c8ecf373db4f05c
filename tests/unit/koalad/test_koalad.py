"""koalad put together: what has to be there before what."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from koalapy.config import read_grid
from koalapy.koalad.assembly import Koalad
from koalapy.koalad.job_reader import reader
from koalapy.model.change import Change
from koalapy.model.header import Outcome
from koalapy.model.identity import JobId
from koalapy.model.job import Counters, Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, Instant
from koalapy.runtime.current_grid import CurrentGrid
from koalapy.store.open import open_store

GRID = b"grid: here\nclusters: {near: {connect: 'local:', batch: local, shared: %s}}\n"


def made(shared: Path, state: Path) -> Koalad:
    grid = CurrentGrid(read_grid(GRID % str(shared).encode(), "grid.yaml", ["local"]))
    return Koalad(grid, state, reader(grid), "me", lambda: grid.file)


def test_the_driver_begins_when_there_is_somebody_to_send_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends at once what the last koalad had not brought home."""
    koalad = made(tmp_path, tmp_path / "state")
    running: list[Any] = []
    monkeypatch.setattr(koalad._links, "start", lambda loop, connected, slept: running.append(loop._thread.is_alive()))
    koalad.start()
    koalad.stop()
    assert running == [False]


def test_hours_of_sweeps_are_those_of_this_hosts_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    koalad = made(tmp_path, tmp_path / "state")
    monkeypatch.undo()
    time.tzset()
    [(_, offset)] = koalad._loop._driver.engine.core.settings.scavenging.offsets
    assert offset == 9 * HOUR


@pytest.mark.parametrize(("doubtful_below", "left"), [(0, ["2", "4", "70"]), (3, ["1", "2", "4", "70"])])
def test_what_a_pruned_job_left_at_home_is_removed_at_the_next_start(
    tmp_path: Path, doubtful_below: int, left: list[str]
) -> None:
    """koalad was killed after the commit. Of a job that a restored store may never have had, what is at home stays."""
    state, request = (
        tmp_path / "state",
        Request(name="a", components=(ComponentRequest(processors=1, executable="./a"),)),
    )
    kept = Job(
        id=JobId(2), owner="me", request=request, state=JobState.DONE, position=2, submitted_at=Instant(1),
        finished_at=Instant(2), outcome=Outcome.DONE,
    )  # fmt: skip
    store = open_store("sqlite", state)
    store.commit(Change(jobs=(kept,), counters=Counters(next_job=4, doubtful_below=doubtful_below)))
    store.close()
    for job in (1, 2, 3, 4, 70):
        (state / "output" / str(job)).mkdir(parents=True)
        (state / "output" / str(job) / "0.1.output").write_bytes(b"[0,1]\na")
    koalad = made(tmp_path, state)
    koalad.start()
    for thread in threading.enumerate():
        if thread.name == "written":
            thread.join()
    koalad.disconnect()
    koalad.stop()
    assert sorted(path.name for path in (state / "output").iterdir()) == left
