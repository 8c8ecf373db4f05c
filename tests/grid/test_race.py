"""Components that wait in the queues of several full clusters start where the first node becomes free."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_grid import FILL, FREE, Koalad, sh


@pytest.fixture
def koalad(
    request: pytest.FixtureRequest, testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(
        testgrid, tmp_path, {name: {"poll": "1s", "backlog": 64} for name in request.param}, queue_after="0s"
    )
    try:
        yield running
    finally:
        running.stop()


def fill(koalad: Koalad) -> None:
    """Let another user take all nodes of the clusters."""
    koalad.idle()
    for cluster in koalad.clusters:
        koalad.testgrid.check(cluster, FILL[cluster], user="wombat")
    koalad.until(lambda: all(each["idle"] == 0 for each in koalad.grid.clusters()))


def free(koalad: Koalad, cluster: str) -> None:
    koalad.testgrid.check(cluster, FREE[cluster], user="wombat")


def candidates(koalad: Koalad, job: int) -> dict[str, dict[str, Any]]:
    return {each["cluster"]: dict(each) for each in koalad.grid.show(job)["candidates"]}


@pytest.mark.parametrize("koalad", [("alpha", "beta", "gamma")], indirect=True)
def test_a_job_in_three_queues_starts_where_the_first_node_is_free(koalad: Koalad) -> None:
    fill(koalad)
    job = koalad.submit(sh(1, "hostname"), when_busy="queue", race={"most": 3})
    koalad.until(lambda: len([each for each in candidates(koalad, job).values() if each["batch_id"]]) == 3)
    assert sum(each["candidates"] for each in koalad.grid.clusters()) == 2

    free(koalad, "gamma")
    ended = koalad.end(job)
    assert (ended["state"], ended["submission_failures"]) == ("done", 0)
    assert ended["components"][0]["cluster"] == "gamma"
    koalad.until(lambda: not koalad.batch_jobs())
    assert {name: each["ended"] for name, each in candidates(koalad, job).items()} == {
        "alpha": "cancelled",
        "beta": "cancelled",
        "gamma": "won",
    }
    started = [each for each in koalad.grid.show(job)["events"] if each["kind"] == "attempt_allocated"]
    assert [each["cluster"] for each in started] == ["gamma"]  # type: ignore[typeddict-item]
    free(koalad, "alpha")
    free(koalad, "beta")


@pytest.mark.parametrize("koalad", [("alpha", "gamma")], indirect=True)
def test_two_jobs_race_for_the_same_two_clusters_and_both_end_well(koalad: Koalad) -> None:
    fill(koalad)
    components = [sh(16, "hostname"), sh(16, "hostname")]  # all of gamma, and half of alpha
    jobs = [koalad.submit(*components, race={"most": 2}, barrier={"wait": "20s"}) for _ in range(2)]
    koalad.until(lambda: all(all(each["batch_id"] for each in koalad.job(job)["components"]) for job in jobs))
    koalad.until(lambda: any(candidates(koalad, job) for job in jobs))
    free(koalad, "alpha")
    free(koalad, "gamma")
    for job in jobs:
        ended = koalad.end(job)
        assert (ended["state"], ended["submission_failures"], ended["completion_failures"]) == ("done", 0, 0)
    koalad.until(lambda: not koalad.batch_jobs())
