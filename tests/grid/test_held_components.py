"""A co-allocated job on clusters that another user has filled: it waits in the queues of Slurm and Grid Engine."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_grid import FILL, FREE, Koalad, sh
from real_sweep import Evidence, begin, results, runner


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


def test_a_sweep_runs_on_held_nodes_of_slurm_until_the_job_starts(koalad: Koalad) -> None:
    """Its parameters are run once each, also those that are stopped for the job, and over a killed koalad."""
    evidence = Evidence(koalad.testgrid)
    koalad.idle()
    koalad.testgrid.check("alpha", ["bash", "-c", "cd /tmp; sbatch -N6 --exclusive --wrap 'sleep 900'"], user="wombat")
    koalad.testgrid.check("gamma", FILL["gamma"], user="wombat")
    koalad.until(lambda: {each["name"]: each["idle"] for each in koalad.grid.clusters()} == {"alpha": 8, "gamma": 0})
    components = [sh(8, "hostname", cluster="alpha", walltime="20m"), sh(2, "hostname", cluster="gamma")]
    job = koalad.submit(*components, when_busy="queue", barrier={"wait": "10m"})
    koalad.until(lambda: koalad.job(job)["components"][0]["state"] == "at_barrier")
    sweep = begin(koalad, f"{evidence.wait}; echo $0 >>{evidence.file}", {"x": "1:24"}, walltime="2m")
    koalad.until(lambda: running_on(koalad, sweep, f"pilot~{job}") == 8)
    koalad.kill()
    koalad.start()
    koalad.until(lambda: running_on(koalad, sweep, f"pilot~{job}") == 8)
    assert koalad.job(job)["components"][0]["state"] == "at_barrier"

    koalad.testgrid.check("gamma", FREE["gamma"], user="wombat")
    ended = koalad.end(job)
    assert (ended["state"], ended["submission_failures"], ended["completion_failures"]) == ("done", 0, 0)
    assert [each["attempt"] for each in ended["components"]] == [1, 1]
    assert "sweep_preempted" in kinds(koalad, sweep)
    koalad.testgrid.check("alpha", FREE["alpha"], user="wombat")
    evidence.let_go()
    assert koalad.end(sweep)["state"] == "done"
    assert evidence.runs() == Counter(dict.fromkeys(results(koalad, sweep), 1))
    assert sorted(results(koalad, sweep)) == list(range(1, 25))
    koalad.until(lambda: not koalad.batch_jobs())


def running_on(koalad: Koalad, sweep: int, cluster: str) -> int:
    return sum(each["running"] or 0 for each in runner(koalad, sweep)["clusters"] if each["cluster"] == cluster)


def kinds(koalad: Koalad, job: int) -> list[str]:
    return [str(each["kind"]) for each in koalad.grid.show(job)["events"]]
