"""Real clusters that come and go while koalad runs: Grid Engine joins a grid of Slurm, and leaves it when empty."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_grid import Koalad, sh

from koalapy.model.errors import RequestError


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    """A koalad that knows one Slurm cluster of eight processors."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(testgrid, tmp_path, clusters={"delta": {"poll": "1s"}})
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def test_jobs_that_wait_run_on_a_cluster_that_joins_and_it_leaves_when_it_is_empty(
    koalad: Koalad, testgrid: Any
) -> None:
    first = koalad.submit(sh(8, "until test -e ~/reload-go; do sleep 1; done"))
    koalad.until(lambda: koalad.job(first)["state"] == "running")
    waiting = [koalad.submit(sh(4, "hostname")) for _ in range(2)]
    grid = yaml.safe_load(koalad.grid_file.read_text())
    grid["clusters"]["gamma"] = testgrid.grid()["clusters"]["gamma"] | {"poll": "1s"}
    koalad.grid_file.write_text(yaml.safe_dump(grid))
    found = koalad.grid.reload()
    assert (found["added"], found["removed"], found["changed"]) == (["gamma"], [], [])
    assert [koalad.end(job)["components"][0]["cluster"] for job in waiting] == ["gamma", "gamma"]

    runs = koalad.submit(sh(2, "sleep 20; hostname", cluster="gamma"))
    koalad.until(lambda: koalad.job(runs)["state"] == "running")
    del grid["clusters"]["gamma"]
    koalad.grid_file.write_text(yaml.safe_dump(grid))
    with pytest.raises(RequestError, match=f"gamma cannot leave the grid because of job {runs} there"):
        koalad.grid.reload()
    assert koalad.grid.drain_cluster("gamma")["left"]["jobs"] == [runs]
    late = koalad.submit(sh(2, "hostname"))
    koalad.until(lambda: not koalad.grid.drain_cluster("gamma")["left"]["text"])
    assert koalad.job(runs)["state"] == "done"
    assert koalad.job(late)["state"] == "waiting"
    assert koalad.grid.reload()["removed"] == ["gamma"]
    assert [each["name"] for each in koalad.grid.clusters()] == ["delta"]
    status, output = testgrid.exec("delta", ["touch", "/home/koala/reload-go"], user="koala")
    assert status == 0, output
    try:
        assert koalad.end(first)["state"] == "done"
        assert koalad.end(late)["components"][0]["cluster"] == "delta"
    finally:
        testgrid.exec("delta", ["rm", "-f", "/home/koala/reload-go"], user="koala")
