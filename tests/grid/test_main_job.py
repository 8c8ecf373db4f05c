"""The main job on real Slurm and Grid Engine over real SSH: started together, surviving what goes wrong."""

import contextlib
import os
import statistics
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import real_grid
from poisson_job import EXACT, STAGED, difference, poisson

from koalapy.answers import jobs as answers

CLUSTERS, SIZES = real_grid.CLUSTERS, real_grid.SIZES
Koalad, batch_jobs, sh = real_grid.Koalad, real_grid.batch_jobs, real_grid.sh


@pytest.fixture
def koalad(
    testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """Its parameter: for how long a claim is tried, where a test waits for one that fails."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(testgrid, tmp_path, claim={"timeout": getattr(request, "param", "3m")})
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def test_the_poisson_job_over_three_clusters_is_the_single_process_solution(koalad: Any, tmp_path: Path) -> None:
    job = koalad.end(koalad.submit(poisson(4), poisson(4), poisson(4), **STAGED))
    assert job["state"] == "done", job["reason"]
    assert {each["cluster"] for each in job["components"]} == set(CLUSTERS)
    assert difference(tmp_path / "result.npy", tmp_path) <= EXACT


def test_no_process_starts_before_the_last_wrapper_is_at_its_barrier(koalad: Any) -> None:
    spreads = []
    for _ in range(3):
        job = koalad.end(koalad.submit(*[sh(4, "echo $EPOCHREALTIME")] * 3))
        assert job["state"] == "done", job["reason"]
        starts = [float(line) for line in b"".join(koalad.grid.output(job["id"])).split()]
        barriers = [moment(each["at_barrier_at"]) for each in job["components"]]
        assert len(starts) == 12
        assert min(starts) > max(barriers)
        assert all(moment(each["released_at"]) <= moment(each["started_at"]) for each in job["components"])
        spreads.append(max(starts) - min(starts))
        koalad.idle()
    print(f"spread of the starts: median {statistics.median(spreads) * 1000:.0f} ms")


@pytest.mark.parametrize("cluster", ["alpha", "beta", "gamma"])
def test_a_component_over_two_nodes_has_a_rank_for_every_processor(koalad: Any, cluster: str) -> None:
    script = "echo $KOALA_RANK $KOALA_SIZE $(hostname) $KOALA_LOCAL_RANK $(wc -l < $KOALA_HOSTS)"
    job = koalad.end(koalad.submit(sh(8, script, cluster=cluster)))
    assert job["state"] == "done", job["reason"]
    lines = [line.split() for line in b"".join(koalad.grid.output(job["id"])).decode().splitlines()]
    assert sorted(int(rank) for rank, *_ in lines) == list(range(8))
    assert {(size, hosts) for _, size, _, _, hosts in lines} == {("8", "8")}
    assert len({host for _, _, host, _, _ in lines}) == 2
    assert set(job["components"][0]["hosts"]) == {host for _, _, host, _, _ in lines}


@pytest.mark.parametrize("cluster", ["alpha", "beta", "gamma"])
def test_what_a_program_forked_does_not_survive_a_cancel(koalad: Any, cluster: str) -> None:
    script = "(setsid sleep 98765 & ) ; (setsid bash -c 'sleep 98765 & sleep 98765' &) ; echo ready; sleep 98765"
    job = koalad.submit(sh(8, script, cluster=cluster))
    koalad.until(lambda: b"".join(koalad.grid.output(job)).count(b"ready") == 8)
    hosts = koalad.job(job)["components"][0]["hosts"]
    assert len(hosts) == 2
    koalad.grid.cancel(job)
    assert koalad.end(job)["state"] == "cancelled"
    for host in hosts:
        status, output = koalad.testgrid.exec(host, ["pgrep", "-f", "sleep 98765"])
        assert status == 1, output
    assert not koalad.batch_jobs()


@pytest.mark.parametrize("koalad", ["20s"], indirect=True)
def test_a_head_paused_while_it_claims_holds_nobody_up_and_loses_nothing(koalad: Any) -> None:
    koalad.testgrid.pause("gamma")
    try:
        job = koalad.submit(*[sh(4, "true", cluster=cluster) for cluster in CLUSTERS])
        koalad.until(lambda: next(each for each in koalad.grid.clusters() if each["name"] == "gamma")["reason"])
        koalad.until(lambda: is_back(koalad.job(job)))
        assert not batch_jobs(koalad.testgrid, "alpha")
        assert not batch_jobs(koalad.testgrid, "beta")
        assert koalad.grid.status()["pending_cancels"]
    finally:
        koalad.testgrid.unpause("gamma")
    assert koalad.end(job)["state"] == "done"
    koalad.until(lambda: not koalad.grid.status()["pending_cancels"])
    assert not koalad.batch_jobs()


def is_back(job: answers.Job) -> bool:
    """In the queue, after a try; the next one is made when the cluster is there again."""
    return bool(job["submission_failures"]) and job["state"] == "waiting"


def both_orders(koalad: Any) -> None:
    a = [sh(SIZES["alpha"], "true", cluster="alpha"), sh(SIZES["beta"], "true", cluster="beta")]
    jobs = [koalad.submit(*components) for components in (a, a[::-1])]
    for job in koalad.grid.wait(jobs, real_grid.PATIENCE_S):
        assert job["state"] == "done", job["reason"]
        assert job["submission_failures"] == 0


def test_two_jobs_that_want_the_same_in_opposite_orders_both_end(koalad: Any) -> None:
    for _ in range(4):
        both_orders(koalad)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_jobs_that_want_the_same_in_opposite_orders_both_end_twenty_times(koalad: Any) -> None:
    for _ in range(20):
        both_orders(koalad)


def test_koalad_listens_on_no_address_of_the_clusters_network(koalad: Any) -> None:
    pid = koalad.grid.status()["pid"]
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    listening = [
        line.split()[1]
        for table in ("tcp", "tcp6", "udp", "udp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] in ("0A", "07") and f"socket:[{line.split()[9]}]" in inodes
    ]
    assert listening == []


def test_an_administrator_who_kills_a_component_costs_a_retry(koalad: Any) -> None:
    job = koalad.submit(sh(4, "sleep 600", cluster="alpha"), sh(4, "sleep 600", cluster="gamma"))
    koalad.until(lambda: koalad.job(job)["state"] == "running" and koalad.job(job)["started_at"])
    batch_id = koalad.job(job)["components"][0]["batch_id"]
    koalad.testgrid.exec("alpha", ["scancel", batch_id])
    koalad.until(lambda: koalad.job(job)["completion_failures"])
    koalad.grid.cancel(job)
    assert koalad.end(job)["state"] == "cancelled"
    assert not koalad.batch_jobs()


def test_a_missing_executable_fails_at_once_with_what_to_change(koalad: Any) -> None:
    job = koalad.end(koalad.submit({"processors": 4, "executable": "./missing"}, sh(4, "true")))
    assert (job["state"], job["reason_code"]) == ("failed", "no_executable")
    assert job["submission_failures"] == job["completion_failures"] == 0


def test_a_queue_that_does_not_exist_is_reported_in_the_batch_systems_words(koalad: Any) -> None:
    job = koalad.end(koalad.submit(sh(4, "true", cluster="alpha", queue="nowhere")))
    assert job["state"] == "failed"
    assert "nowhere" in job["reason"] or "partition" in job["reason"]


def test_a_running_job_does_not_notice_a_restart_of_koalad(koalad: Any) -> None:
    script = "until [ -e $HOME/go ]; do sleep 0.1; done; echo over"
    job = koalad.submit(sh(4, script, cluster="alpha"), sh(4, script, cluster="gamma"))
    koalad.until(lambda: koalad.job(job)["started_at"])
    koalad.kill()
    koalad.start()
    for cluster in ("alpha", "gamma"):
        koalad.testgrid.shell(cluster, "touch go")
    found = koalad.end(job)
    assert found["state"] == "done", found["reason"]
    assert [each["attempt"] for each in found["components"]] == [1, 1]
    assert b"".join(koalad.grid.output(job)).count(b"over") == 8


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
