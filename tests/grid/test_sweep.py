"""Sweeps on real Slurm and Grid Engine: each parameter once, whatever comes between, and in nobody's way."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_grid import CLUSTERS, SIZES, Koalad, sh
from real_sweep import PER_NODE, Evidence, begin, fills, is_there, kinds, results, runner, submit_local_job

from koalapy.testgrid import layout


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


@pytest.fixture
def evidence(testgrid: Any) -> Evidence:
    return Evidence(testgrid)


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


def test_what_parameters_left_comes_home_from_the_launchers_that_ran_them(koalad: Any, evidence: Evidence) -> None:
    """But for those of one that failed."""
    script = f"mkdir $0; echo left by $0 >$0/out; {evidence.wait}; [ $0 != 7 ]"
    sweep = begin(koalad, script, {"x": "1:128"}, [{"path": "{#}/*", "to": "left-{cluster}"}])
    koalad.until(lambda: fills(koalad, sweep, *CLUSTERS))
    evidence.let_go()
    assert koalad.end(sweep)["state"] == "done"
    ran = {number: each["cluster"] for number, each in results(koalad, sweep).items()}
    assert (len(ran), set(ran.values())) == (128, set(CLUSTERS))
    found = {str(path.relative_to(koalad.directory)): path.read_text() for path in koalad.directory.glob("left-*/*/*")}
    assert found == {f"left-{ran[number]}/{number}/out": f"left by {number}\n" for number in ran if number != 7}
    [reported] = [event for event in koalad.grid.show(sweep)["events"] if event["kind"] == "output_collected"]
    assert reported["files"] == len(found)
    assert not koalad.batch_jobs()


@pytest.mark.slow
def test_a_sweep_is_held_goes_on_and_is_cancelled_and_leaves_nothing(koalad: Any, evidence: Evidence) -> None:
    sweep = begin(koalad, f"sleep 2 && echo $0 >>{evidence.file}", {"x": "1:1000"})
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
    all_of_it = {name: SIZES[name] for name in CLUSTERS}
    koalad.until(lambda: {each["name"]: each["scavenged"] for each in koalad.grid.clusters()} == all_of_it)
    koalad.until(lambda: environments(koalad.testgrid) == ["smp"] * (SIZES["gamma"] // PER_NODE))
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
    submit_local_job(koalad.testgrid, cluster, f"touch /var/tmp/local-{sweep}")
    koalad.until(lambda: is_there(koalad.testgrid, cluster, f"/var/tmp/local-{sweep}"))
    koalad.until(lambda: koalad.job(sweep)["sweep"]["preempted"] >= PER_NODE)
    koalad.until(lambda: fills(koalad, sweep, cluster))
    koalad.grid.cancel(sweep)
    assert koalad.end(sweep)["state"] == "cancelled"


def environments(testgrid: Any) -> list[str]:
    """Return the environments of koalapy's jobs on Grid Engine. Launchers have the one without control_slaves."""
    return re.findall(r"Granted PE: +(\S+)", testgrid.shell("gamma", f"qstat -r -u {layout.USER}"))
