"""An allocation of a real batch system as a cluster: its jobs, and what the deaths of its parts leave behind."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_grid import Koalad, batch_jobs, sh

from koalapy.testgrid import layout

NODES = ("alpha-c1", "alpha-c2", "alpha-c3", "alpha-c4", "alpha-c5", "alpha-c6", "alpha-c7", "alpha-c8")
TRUE = {"processors": 1, "executable": "/bin/true", "walltime": "1m"}
SLEEP = {"processors": 1, "executable": "/bin/sleep", "arguments": ["240"], "walltime": "5m"}
ROUNDS_S = 120.0


class Held:
    """An allocation of two nodes with four processors each, on the Slurm cluster alpha."""

    def __init__(self, testgrid: Any, directory: Path) -> None:
        self._testgrid = testgrid
        self.shared = f"/home/koala/{directory.name}"
        status, output = testgrid.exec("alpha", ["bash", "-lc", _SBATCH], user="koala")
        assert status == 0, output
        self.job = output.strip()
        container = layout.container_name("alpha")
        self.settings = {
            "batch": "allocation",
            "connect": f"command:docker exec -i -u koala -e SLURM_JOB_ID={self.job} {container} sh -c",
            "shared": self.shared,
        }

    def until_it_runs(self) -> None:
        deadline = time.monotonic() + ROUNDS_S
        while self._head(f"squeue -h -j {self.job} -o %T") != "RUNNING":
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def cancel(self) -> None:
        self._head(f"scancel {self.job}")

    def pids(self, host: str, words: str) -> list[int]:
        """The processes of the user with these words in their command line."""
        _, output = self._testgrid.exec(host, ["ps", "-u", "koala", "-o", "pid=,args="])
        return [int(line.split()[0]) for line in output.splitlines() if words in line and "ps -u" not in line]

    def kill(self, host: str, words: str) -> None:
        pids = self.pids(host, words)
        assert pids, (host, words)
        self._testgrid.exec(host, ["kill", "-9", *map(str, pids)])

    def kill_wrapper_of(self, host: str, program: str) -> None:
        """The wrapper is the parent of the node agent, which is the parent of the program."""
        (pid,) = self.pids(host, program)
        for _ in range(2):
            pid = int(self._testgrid.exec(host, ["ps", "-o", "ppid=", "-p", str(pid)])[1])
        self._testgrid.exec(host, ["kill", "-9", str(pid)])

    def kill_agent(self, host: str) -> None:
        """Kill the node agent, but not its guard, which is its parent with the same command line."""
        self._testgrid.exec(host, ["kill", "-9", str(max(self.pids(host, "pyz agent ")))])

    def left_on_nodes(self) -> list[int]:
        """The processes of the allocation and its jobs, on all nodes."""
        return [pid for host in NODES for words in (self.shared, "/bin/sleep 240") for pid in self.pids(host, words)]

    def _head(self, command: str) -> str:
        return str(self._testgrid.exec("alpha", ["bash", "-lc", command], user="koala")[1]).strip()


_SBATCH = """cd && printf '#!/bin/sh\\nexec sleep 1200\\n' > held.sh &&
sbatch --parsable --nodes=2 --ntasks-per-node=4 --time=20 --output=/dev/null held.sh"""


@pytest.fixture
def held(testgrid: Any, tmp_path: Path) -> Iterator[Held]:
    held = Held(testgrid, tmp_path)
    try:
        held.until_it_runs()
        yield held
    finally:
        held.cancel()


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Held) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    clusters = {"held": held.settings, "gamma": {}}
    koalad = Koalad(testgrid, tmp_path, clusters, retries={"submission": 3, "completion": 1})
    try:
        koalad.until(lambda: idle(koalad) == 8)
        koalad.connected("gamma")
        yield koalad
    finally:
        koalad.stop()


def idle(koalad: Koalad) -> int | None:
    return next(each["idle"] for each in koalad.grid.clusters() if each["name"] == "held")


def on(cluster: str, component: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**component, "cluster": cluster, **more}


def test_its_jobs(koalad: Koalad, held: Held) -> None:
    short = [koalad.submit(on("held", TRUE)) for _ in range(50)]
    assert {koalad.end(job)["state"] for job in short} == {"done"}

    script = 'echo "$KOALA_RANK of $KOALA_SIZE, $(env | grep -c ^SLURM)"; exec hostname'
    wide = koalad.end(koalad.submit(on("held", sh(6, script))))
    assert (wide["state"], len(wide["components"][0]["hosts"])) == ("done", 2)

    both = koalad.end(koalad.submit(on("held", sh(5, "exit 0")), on("gamma", sh(2, "exit 0"))))
    assert both["state"] == "done"
    exits = koalad.end(koalad.submit(on("held", sh(1, "exit 7")), retry_on=[]))
    assert exits["components"][0]["exit_status"] == 7
    koalad.until(lambda: idle(koalad) == 8)


def running(koalad: Koalad, component: dict[str, Any]) -> int:
    """A job that runs now, and is not tried again."""
    job = koalad.submit(on("held", component), retry_on=[])
    koalad.until(lambda: koalad.job(job)["state"] == "running")
    return job


@pytest.mark.slow
def test_what_is_killed_ends_no_more_than_its_own_jobs(koalad: Koalad, held: Held) -> None:
    survivor = running(koalad, sh(1, "sleep 45"))
    held.kill("alpha", "pyz kcm")
    assert koalad.end(koalad.submit(on("held", sh(1, "exit 0"))))["state"] == "done"

    job = running(koalad, SLEEP)
    node = koalad.job(job)["components"][0]["hosts"][0]
    held.kill_wrapper_of(node, "/bin/sleep 240")
    assert koalad.end(job)["state"] == "failed"

    wide = running(koalad, SLEEP | {"processors": 6})
    held.kill_agent(koalad.job(wide)["components"][0]["hosts"][1])
    assert koalad.end(wide)["state"] == "failed"

    assert koalad.end(survivor)["state"] == "done"
    assert not held.pids(node, "/bin/sleep 240")
    koalad.until(lambda: idle(koalad) == 8)


@pytest.mark.slow
def test_a_killed_server_loses_its_jobs_and_the_next_one_serves(koalad: Koalad, held: Held) -> None:
    job = running(koalad, SLEEP)
    held.kill("alpha", " serve ")
    assert koalad.end(job)["state"] == "failed"
    koalad.until(lambda: idle(koalad) == 8)
    assert koalad.end(koalad.submit(on("held", sh(6, "exit 0"))))["state"] == "done"

    job = running(koalad, SLEEP)
    held.kill(koalad.job(job)["components"][0]["hosts"][0], "allocation-node")
    assert koalad.end(job)["state"] == "failed"
    koalad.until(lambda: idle(koalad) == 8)


def test_everything_ends_with_the_batch_job(koalad: Koalad, held: Held) -> None:
    jobs = [running(koalad, SLEEP), running(koalad, SLEEP | {"processors": 6})]
    waiting = koalad.submit(on("held", SLEEP | {"processors": 4}))
    held.cancel()
    assert {koalad.end(job)["state"] for job in jobs} == {"failed"}
    koalad.grid.cancel(waiting)
    koalad.until(lambda: not held.left_on_nodes())
    koalad.until(lambda: not held.pids("alpha", " serve "))
    koalad.until(lambda: not batch_jobs(koalad.testgrid, "alpha"))


def test_a_parallel_job_of_grid_engine_lasts_as_long_as_its_connection(
    testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    container = layout.container_name("gamma")
    line = f'exec docker exec -i -u koala {container} bash -lc "exec qrsh -now y -noshell -pe mpi 8 ${{0#exec }}"'
    shared = f"/home/koala/{tmp_path.name}"
    held = {"batch": "allocation", "connect": f"command:sh -c '{line}'", "shared": shared}
    koalad = Koalad(testgrid, tmp_path, {"held": held})
    try:
        koalad.until(lambda: idle(koalad) == 8)
        short = [koalad.submit(TRUE) for _ in range(20)]
        assert {koalad.end(job)["state"] for job in short} == {"done"}
        wide = koalad.end(koalad.submit(sh(8, "exec hostname")))
        assert wide["state"] == "done"
        assert len(wide["components"][0]["hosts"]) >= 2
    finally:
        koalad.stop()
    koalad.until(lambda: not batch_jobs(testgrid, "gamma"))
