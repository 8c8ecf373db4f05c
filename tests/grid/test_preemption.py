"""A job of priority 0 takes the processors of running jobs of real Slurm and real Grid Engine, which come back."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from real_grid import SIZES, Koalad, sh

SUM = "s=0; for i in $(seq 40); do s=$((s + i)); sleep 0.2; done; echo $s"  # 8 seconds, and 820
PREEMPT = {"preempt": {"how": "vacate"}}


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(testgrid, tmp_path, scheduling=PREEMPT)
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def kinds(koalad: Koalad, job: int) -> list[str]:
    return [line["kind"] for line in koalad.grid.show(job)["events"]]


def started(koalad: Koalad, *jobs: int) -> None:
    koalad.until(lambda: all(koalad.job(job)["started_at"] is not None for job in jobs))


def seconds_to_start(job: Any) -> float:
    begun, submitted = (datetime.fromisoformat(str(job[each])) for each in ("started_at", "submitted_at"))
    return (begun - submitted).total_seconds()


@pytest.mark.parametrize("cluster", ["gamma", pytest.param("alpha", marks=pytest.mark.slow)])
def test_the_youngest_job_is_vacated_and_its_result_is_right_later(koalad: Koalad, cluster: str) -> None:
    """Two jobs fill the cluster; half of it is enough for the one of priority 0."""
    half = SIZES[cluster] // 2
    older = koalad.submit(sh(half, SUM, cluster=cluster))
    started(koalad, older)
    younger = koalad.submit(sh(half, SUM, cluster=cluster))
    started(koalad, younger)
    urgent = koalad.submit(sh(half, "echo now", cluster=cluster), priority=0)
    done = koalad.end(urgent)
    print(f"{cluster}: {seconds_to_start(done):.2f} s from submit to the first process, with one job vacated")
    assert done["state"] == "done", done
    assert "job_preempts" in kinds(koalad, urgent)
    assert "vacated" in str(koalad.grid.show(younger)["events"])
    for job, attempts in ((older, 1), (younger, 2)):
        ended = koalad.end(job)
        assert (ended["state"], ended["components"][0]["attempt"]) == ("done", attempts), ended
        assert (ended["submission_failures"], ended["completion_failures"]) == (0, 0)
        assert b"".join(koalad.grid.output(job)).decode().split() == ["820"] * half


@pytest.mark.slow
def test_a_job_on_two_clusters_is_vacated_whole_and_comes_back(koalad: Koalad) -> None:
    """koalad is killed between the vacating and the start of the urgent job."""
    whole = koalad.submit(sh(SIZES["alpha"], SUM, cluster="alpha"), sh(SIZES["gamma"], SUM, cluster="gamma"))
    started(koalad, whole)
    urgent = koalad.submit(sh(SIZES["gamma"], "echo now", cluster="gamma"), priority=0)
    koalad.until(lambda: koalad.job(urgent)["state"] != "waiting")
    koalad.kill()
    koalad.start()
    assert koalad.end(urgent)["state"] == "done"
    ended = koalad.end(whole)
    assert ended["state"] == "done", ended
    assert [each["attempt"] for each in ended["components"]] == [2, 2]
    assert b"".join(koalad.grid.output(whole)).decode().split() == ["820"] * (SIZES["alpha"] + SIZES["gamma"])


STEPS = "for i in $(seq 60); do s=$((s + i)); echo $i >> $KOALA_RANK.steps; sleep 0.1; done; echo $s"  # 6 seconds, 1830


@pytest.fixture
def suspending(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(testgrid, tmp_path, scheduling={"preempt": {"how": "suspend"}})
    try:
        running.idle()
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize("cluster", ["alpha", pytest.param("gamma", marks=pytest.mark.slow)])
def test_a_job_on_both_nodes_of_a_pilot_is_suspended_and_its_result_is_right(suspending: Koalad, cluster: str) -> None:
    """A job of priority 0 needs half of the pilot; koalad is killed meanwhile."""
    koalad = suspending
    pilot = koalad.grid.open_pilot(cluster, 8, nodes=2, walltime_s=1200.0)["pilot"]["name"]
    koalad.until(lambda: (pilot, 8) in [(each["name"], each["idle"]) for each in koalad.grid.clusters()])
    job = koalad.submit(sh(8, STEPS, cluster=pilot))
    started(koalad, job)
    urgent = koalad.submit(sh(4, "sleep 8", cluster=pilot), priority=0)
    koalad.until(lambda: koalad.job(job)["components"][0]["state"] == "suspended")
    assert koalad.job(job)["suspended_for"] == urgent
    koalad.kill()
    koalad.start()
    done, ended = koalad.end(urgent), koalad.end(job)
    print(f"pilot on {cluster}: {seconds_to_start(done):.2f} s from submit to the first process, one job suspended")
    assert (done["state"], ended["state"]) == ("done", "done"), (done, ended)
    assert ended["components"][0]["attempt"] == 1
    assert str(ended["finished_at"]) > str(done["finished_at"])
    assert b"".join(koalad.grid.output(job)).decode().split() == ["1830"] * 8
    koalad.grid.close_pilot(pilot, force=True)
    koalad.until(lambda: not koalad.grid.pilots())
