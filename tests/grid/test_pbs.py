"""Real OpenPBS, where an image of it is given: jobs on a pilot, whose nodes its queue starts by bridges."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_grid import Koalad, batch_jobs, sh

from koalapy.testgrid import layout

CLUSTER = "epsilon"
TRUE = {"processors": 1, "executable": "/bin/true", "walltime": "1m"}

pytestmark = pytest.mark.skipif(CLUSTER not in layout.HEADS, reason="KOALA_TESTGRID_PBS_IMAGE names no image")


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(testgrid, tmp_path, {CLUSTER: {"poll": "1s"}})
    try:
        yield running
    finally:
        running.stop()


def idle(koalad: Koalad, name: str) -> int | None:
    return next((each["idle"] for each in koalad.grid.clusters() if each["name"] == name), None)


def test_jobs_run_on_a_pilot_and_nothing_is_left_of_it(koalad: Koalad) -> None:
    koalad.until(lambda: idle(koalad, CLUSTER) == 4)
    name = str(koalad.grid.open_pilot(CLUSTER, 3, walltime_s=1200.0)["pilot"]["name"])
    koalad.until(lambda: idle(koalad, name) == 3)
    jobs = [koalad.submit({**TRUE, "cluster": name}) for _ in range(10)]
    jobs.append(koalad.submit(sh(3, "exec hostname", cluster=name)))
    assert {koalad.end(job)["state"] for job in jobs} == {"done"}
    koalad.grid.close_pilot(name, force=True)
    koalad.until(lambda: not koalad.grid.pilots() and not batch_jobs(koalad.testgrid, CLUSTER))
    koalad.until(lambda: idle(koalad, CLUSTER) == 4)
