"""Jobs of several nodes that a real batch system stops, at whatever instant its signals arrive: each is tried again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from real_grid import Koalad, sh

from koalapy.testgrid import layout

STOP = {
    "slurm": ["scancel", "-u", "koala"],
    "sge": ["bash", "-lc", "qdel -u koala"],
    "pbs": ["bash", "-lc", "qselect -u koala | xargs qdel"],
}
NODES = {"alpha": 2, "delta": 2, "gamma": 2, "epsilon": 1}  # of each job
ONCE = {"alpha": 14, "delta": 2, "gamma": 6, "epsilon": 2}  # jobs that run at a time, however their nodes are filled
LAYOUT = {cluster.name: cluster for cluster in layout.CLUSTERS}
CLUSTERS = [cluster for cluster in NODES if cluster in LAYOUT]


@pytest.fixture
def koalad(
    testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(testgrid, tmp_path, {request.getfixturevalue("cluster"): {"poll": "1s"}})
    try:
        yield running
    finally:
        running.stop()


def stop(koalad: Koalad, cluster: str, count: int) -> list[str]:
    """Run `count` jobs, let the user cancel them in the batch system, and see each done by its second attempt.

    The shell of each process calls a program, which the signal may reach before it reaches the wrapper. Returns the
    reasons for which their first attempts ended.
    """
    marks = f"$HOME/stopped-{uuid4().hex}"
    mark = f"{marks}/$KOALA_JOB_ID.$KOALA_RANK"
    script = f"hostname; if [ -e {mark} ]; then exit 0; fi; mkdir -p {marks}; : >{mark}; sleep 240"
    nodes = NODES[cluster]
    wish = sh(2, script, cluster=cluster, processors_per_node=2 // nodes)
    jobs = [koalad.submit(wish) for _ in range(count)]
    list_marks = ["bash", "-c", f"ls {marks} 2>/dev/null || true"]
    koalad.until(lambda: len(koalad.testgrid.exec(cluster, list_marks, user="koala")[1].split()) == 2 * count)
    status, output = koalad.testgrid.exec(cluster, STOP[LAYOUT[cluster].batch], user="koala")
    assert status == 0, output
    reasons = []
    for job in jobs:
        ended = koalad.end(job)
        events: list[Any] = list(koalad.grid.show(job)["events"])
        first = next(str(each["message"]) for each in events if each["kind"] == "attempt_ended" and each.get("message"))
        reasons.append(first)
        assert (ended["state"], ended["completion_failures"]) == ("done", 1), (first, ended)
    return reasons


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_jobs_that_somebody_cancels_in_the_batch_system_are_tried_again(koalad: Koalad, cluster: str) -> None:
    reasons = stop(koalad, cluster, min(3, ONCE[cluster]))
    print(f"{cluster}: {sorted(set(reasons))}")
    if LAYOUT[cluster].batch == "slurm":
        assert any("somebody cancelled it there" in reason for reason in reasons), reasons


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_fifty_of_fifty_jobs_that_are_stopped_at_once_are_tried_again(koalad: Koalad, cluster: str) -> None:
    left, reasons = 50, list[str]()
    while left:
        count = min(left, ONCE[cluster])
        reasons += stop(koalad, cluster, count)
        left -= count
    print(f"{cluster}: {len(reasons)} of 50; {sorted(set(reasons))}")
    assert len(reasons) == 50
