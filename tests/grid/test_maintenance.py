"""Maintenance on real Slurm and Grid Engine: pruned jobs leave no file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pruned_live import Bench
from real_grid import Koalad

CLUSTERS = ("alpha", "gamma")


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(
        testgrid,
        tmp_path,
        clusters={name: {"poll": "1s"} for name in CLUSTERS},
        keep_output="home",
        claim={"timeout": "10m"},
    )
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def test_pruned_jobs_leave_no_file_of_theirs(koalad: Koalad, testgrid: Any) -> None:
    report = Bench(testgrid, koalad.grid, koalad.grid_file, koalad.directory / "state" / "koala" / "live").run(40, 480)
    assert report.done == report.jobs == 40
    assert report.left == []
    grown = {row.place: row.with_jobs - row.before for row in report.rows}
    assert all(grown[place] > 40 for place in (*CLUSTERS, "koalad")), grown  # or there was nothing to prune
    assert sum(row.records for row in report.rows) >= 40  # one an attempt
    rows = {moment: size.rows for moment, size in report.sizes.items()}
    assert rows["with jobs"]["jobs"] == 40
    for table in ("jobs", "history", "usage", "results", "debts", "outbox"):
        assert rows["pruned"][table] == 0, rows
    assert report.sizes["vacuumed"].bytes < report.sizes["with jobs"].bytes / 2
