"""A co-allocated job on clusters that another user has filled: it waits in the queues of Slurm and Grid Engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_grid import FILL, FREE, Koalad, sh


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    times = {"barrier": {"timeout": "10s"}, "queue_after": "0s"}
    running = Koalad(testgrid, tmp_path, {name: {"poll": "1s"} for name in ("alpha", "gamma")}, **times)
    try:
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize(
    ("first", "last"), [("alpha", "gamma"), pytest.param("gamma", "alpha", marks=pytest.mark.slow)]
)
def test_a_job_starts_when_the_last_of_two_full_clusters_is_free(koalad: Koalad, first: str, last: str) -> None:
    """The first component is held for longer than the barrier's time-out, given back, and queued again in time."""
    koalad.idle()
    for cluster in koalad.clusters:
        koalad.testgrid.check(cluster, FILL[cluster], user="wombat")
    koalad.until(lambda: all(each["idle"] == 0 for each in koalad.grid.clusters()))
    components = [sh(2, "hostname", cluster=cluster) for cluster in (first, last)]
    waits, gives_back = (
        koalad.submit(*components, when_busy="queue", barrier={"wait": wait}) for wait in ("10m", "15s")
    )
    both = (waits, gives_back)
    koalad.until(lambda: all(koalad.job(job)["components"][1]["batch_id"] for job in both))
    queued = {job: koalad.job(job)["components"][1]["batch_id"] for job in both}

    koalad.testgrid.check(first, FREE[first], user="wombat")
    koalad.until(lambda: "component_given_back" in kinds(koalad, gives_back))
    assert koalad.job(waits)["components"][0]["state"] == "at_barrier"

    koalad.testgrid.check(last, FREE[last], user="wombat")
    for job, attempts in ((waits, [1, 1]), (gives_back, [2, 1])):
        ended = koalad.end(job)
        assert (ended["state"], ended["submission_failures"], ended["completion_failures"]) == ("done", 0, 0)
        assert [each["attempt"] for each in ended["components"]] == attempts
        assert ended["components"][1]["batch_id"] == queued[job], "its place in the queue was kept"
    koalad.until(lambda: not koalad.batch_jobs())


def kinds(koalad: Koalad, job: int) -> list[str]:
    return [str(each["kind"]) for each in koalad.grid.show(job)["events"]]
