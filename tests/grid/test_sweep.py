"""Sweeps on real Slurm and Grid Engine: each parameter once, whatever comes between, and in nobody's way."""

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import _native
import pytest
import real_grid

from koalapy.testgrid import layout, repair

CLUSTERS = real_grid.CLUSTERS
Document, Koalad, batch_jobs, sh = real_grid.Document, real_grid.Koalad, real_grid.batch_jobs, real_grid.sh

LOCAL_USER = "wombat"
PER_NODE = 4


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    known = testgrid.grid()["clusters"]
    running = Koalad(testgrid, tmp_path, clusters={name: known[name] | {"poll": "2s"} for name in CLUSTERS})
    try:
        running.idle()
        yield running
    finally:
        running.stop()


class Evidence:
    """A file on each node's own disk, to which every run of a parameter that comes to its end adds its number."""

    def __init__(self, testgrid: Any) -> None:
        self._testgrid = testgrid
        self.file = f"/var/tmp/koala-{uuid.uuid4().hex}"
        self.wait = f"until [ -e {self.file}-go ]; do sleep 0.1; done"  # a line of a program that is to be let go
        self._nodes = [node for cluster in layout.CLUSTERS if cluster.name in CLUSTERS for node in cluster.nodes]

    def let_go(self) -> None:
        repair.on_each(self._nodes, lambda node: self._testgrid.check(node, ["touch", f"{self.file}-go"]))

    def runs(self) -> Counter[int]:
        texts = repair.on_each(self._nodes, self._read)
        print("evidence", dict(zip(self._nodes, texts, strict=True)))
        return Counter(int(word) for text in texts for word in text.split())

    def _read(self, node: str) -> str:
        return str(self._testgrid.exec(node, ["sh", "-c", f"cat {self.file} 2>/dev/null"]).output)


@pytest.fixture
def evidence(testgrid: Any) -> Evidence:
    return Evidence(testgrid)


def begin(koalad: Any, script: str, parameters: Mapping[str, object], **fields: Any) -> int:
    """A sweep of a line of bash, in which $0 is the number, and $1 and so on are the values."""
    values = [f"{{{name}}}" for name in parameters]
    program = {
        "executable": "/bin/bash",
        "arguments": ["-c", script, "{#}", *values],
        "processors": 1,
        "walltime": "20m",
    }
    job = {"name": "sweep", "parameters": dict(parameters), "components": [program | fields]}
    return int(koalad.grid.submit(job, directory=koalad.directory))


def results(koalad: Any, sweep: int) -> dict[int, Document]:
    """By number; no number has two."""
    found = list(koalad.grid.results(sweep))
    by_number = {each["parameter"]: each for each in found}
    assert len(by_number) == len(found)
    return by_number


def runner(koalad: Any, sweep: int) -> Document:
    return next(each for each in koalad.grid.runners() if each["id"] == sweep)


def kinds(koalad: Any, sweep: int) -> list[str]:
    return [event["kind"] for event in koalad.grid.show(sweep)["events"]]


def fills(koalad: Any, sweep: int, *clusters: str) -> bool:
    """Whether a parameter runs on every processor there."""
    running = {each["cluster"]: each["running"] for each in runner(koalad, sweep)["clusters"]}
    return all(running.get(name) == real_grid.SIZES[name] for name in clusters)


def test_every_parameter_is_run_once_on_the_nodes_of_three_clusters(koalad: Any, evidence: Evidence) -> None:
    script = f'echo "out $0 $1"; echo "err $2" >&2; {evidence.wait}; echo $0 >>{evidence.file}; exit $(($0 % 50 == 0))'
    sweep = begin(koalad, script, {"x": "1:100", "y": ["a", "b c", "$d"]})
    koalad.until(
        lambda: {each["cluster"] for each in runner(koalad, sweep)["clusters"] if each["running"]} == {*CLUSTERS}
    )
    evidence.let_go()
    assert koalad.end(sweep)["state"] == "done"
    found = results(koalad, sweep)
    assert sorted(found) == list(range(1, 301))
    assert evidence.runs() == Counter(dict.fromkeys(found, 1))
    assert {each["cluster"] for each in found.values()} == set(CLUSTERS)
    assert {number for number, each in found.items() if each["exit_status"]} == set(range(50, 301, 50))
    assert all(each["started_at"] <= each["ended_at"] for each in found.values())
    assert found[3]["values"] == {"x": "1", "y": "$d"}
    for cluster in CLUSTERS:
        number, values = next((n, each["values"]) for n, each in found.items() if each["cluster"] == cluster)
        assert b"".join(koalad.grid.output(sweep, parameter=number)).decode() == f"out {number} {values['x']}\n"
        errors = b"".join(koalad.grid.output(sweep, parameter=number, stream="errors")).decode()
        assert errors == f"err {values['y']}\n"
    assert not koalad.batch_jobs()


@pytest.mark.slow
def test_a_sweep_is_held_goes_on_and_is_cancelled_and_leaves_nothing(koalad: Any, evidence: Evidence) -> None:
    sweep = begin(koalad, f"sleep 2; echo $0 >>{evidence.file}", {"x": "1:1000"})
    koalad.until(lambda: runner(koalad, sweep)["done"] >= 20)
    koalad.grid.hold(sweep)
    koalad.until(lambda: not koalad.batch_jobs())
    done = set(results(koalad, sweep))
    koalad.until(lambda: koalad.job(sweep)["state"] == "held")
    koalad.grid.release(sweep)
    koalad.until(lambda: len(results(koalad, sweep)) > len(done) + 20)
    koalad.grid.cancel(sweep)
    assert koalad.end(sweep)["state"] == "cancelled"
    assert not koalad.batch_jobs()
    runs, found = evidence.runs(), results(koalad, sweep)
    assert {number: (runs[number], found[number]) for number in done if runs[number] != 1} == {}


def test_a_grid_job_gets_the_nodes_that_a_sweep_has(koalad: Any) -> None:
    sweep = begin(koalad, "sleep 1000", {"x": "1:64"})
    koalad.until(lambda: fills(koalad, sweep, *CLUSTERS))
    all_of_it = {name: real_grid.SIZES[name] for name in CLUSTERS}
    koalad.until(lambda: {each["name"]: each["scavenged"] for each in koalad.grid.clusters()} == all_of_it)
    koalad.until(lambda: environments(koalad.testgrid) == ["smp"] * (real_grid.SIZES["gamma"] // PER_NODE))
    job = koalad.submit(*[sh(8, "true", cluster=name) for name in CLUSTERS])
    found = koalad.end(job)
    assert found["state"] == "done", found["reason"]
    assert found["submission_failures"] == found["completion_failures"] == 0
    koalad.until(lambda: koalad.job(sweep)["sweep"]["preempted"] >= 6 * PER_NODE)
    assert "sweep_preempted" in kinds(koalad, sweep)
    koalad.until(lambda: fills(koalad, sweep, *CLUSTERS))
    koalad.grid.cancel(sweep)
    assert koalad.end(sweep)["state"] == "cancelled"


@pytest.mark.parametrize("cluster", ["alpha", pytest.param("gamma", marks=pytest.mark.slow)])
def test_a_local_job_gets_the_nodes_that_a_sweep_has(koalad: Any, cluster: str) -> None:
    sweep = begin(koalad, "sleep 1000", {"x": "1:32"}, cluster=cluster)
    koalad.until(lambda: fills(koalad, sweep, cluster))
    submit_local_job(koalad.testgrid, cluster, f"/var/tmp/local-{sweep}")
    koalad.until(lambda: ran_locally(koalad.testgrid, cluster, f"/var/tmp/local-{sweep}"))
    koalad.until(lambda: koalad.job(sweep)["sweep"]["preempted"] >= PER_NODE)
    koalad.until(lambda: fills(koalad, sweep, cluster))
    koalad.grid.cancel(sweep)
    assert koalad.end(sweep)["state"] == "cancelled"


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["alpha", "gamma"])
def test_nodes_that_the_batch_system_takes_back_by_itself_cost_no_parameter(
    testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evidence: Evidence, cluster: str
) -> None:
    """Slurm ends the Launcher's batch job; Grid Engine suspends it until the local job has ended, which is longer than
    `orphan_timeout` and any silence."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    mark = f"/var/tmp/local-{uuid.uuid4().hex}"
    with _native.taken_back(testgrid.containers, cluster) as queue:
        settings = {"poll": "2s", "processors_per_node": PER_NODE, "scavenge": {"queue": queue}}
        koalad = Koalad(testgrid, tmp_path, clusters={cluster: settings}, orphan_timeout="30s")
        try:
            koalad.idle()
            count = 3 * real_grid.SIZES[cluster]
            sweep = begin(koalad, f"sleep 6; echo $0 >>{evidence.file}", {"x": f"1:{count}"})
            koalad.until(lambda: fills(koalad, sweep, cluster))
            submit_local_job(testgrid, cluster, mark, seconds=50 if cluster == "gamma" else 12)
            koalad.until(lambda: ran_locally(testgrid, cluster, mark))
            assert koalad.end(sweep)["state"] == "done"
            assert sorted(results(koalad, sweep)) == list(range(1, count + 1))
            assert evidence.runs() == Counter(dict.fromkeys(range(1, count + 1), 1))
            assert "launcher_lost" not in kinds(koalad, sweep)
            suspended = {"sweep_suspended", "sweep_resumed"} & set(kinds(koalad, sweep))
            assert len(suspended) == (2 if cluster == "gamma" else 0)
            preempted = koalad.job(sweep)["sweep"]["preempted"]
            assert (preempted > 0) == (cluster == "alpha"), preempted
        finally:
            koalad.stop()


def environments(testgrid: Any) -> list[str]:
    """Of koalapy's jobs on Grid Engine. That of Launchers is the one without control_slaves: the grid file says mpi."""
    return re.findall(r"Granted PE: +(\S+)", testgrid.shell("gamma", f"qstat -r -u {layout.USER}"))


def submit_local_job(testgrid: Any, cluster: str, mark: str, seconds: int = 0) -> None:
    """Of another user, over one whole node; it leaves a mark on it."""
    script = f"#!/bin/sh\\ntouch {mark}\\nsleep {seconds}\\n"
    submit = {
        "alpha": "sbatch -p batch -n 4 -N 1 -o /dev/null",
        "gamma": "qsub -q all.q -pe mpi 4 -S /bin/sh -o /dev/null -e /dev/null",
    }[cluster]
    status, words = testgrid.exec(cluster, ["bash", "-lc", f"cd /; printf '{script}' | {submit}"], user=LOCAL_USER)
    assert status == 0, words


def ran_locally(testgrid: Any, cluster: str, mark: str) -> bool:
    own = next(each.nodes for each in layout.CLUSTERS if each.name == cluster)
    return any(repair.on_each(own, lambda node: testgrid.exec(node, ["test", "-e", mark])[0] == 0))
