"""Sweeps on nodes that real Slurm and Grid Engine take back by themselves: of queues that make way for others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _native
import pytest
from real_grid import SIZES, Koalad
from real_sweep import PER_NODE, Evidence, begin, fills, is_there, kinds, results, runner, submit_local_job

from koalapy.testgrid import layout, repair

STANDS_S = 50  # longer than `orphan_timeout` here, and than any silence
pytestmark = pytest.mark.slow


@pytest.fixture
def evidence(testgrid: Any) -> Evidence:
    return Evidence(testgrid)


@contextmanager
def koalad_over(testgrid: Any, directory: Path, cluster: str) -> Iterator[Any]:
    with _native.taken_back(testgrid.containers, cluster) as queue:
        settings = {"poll": "2s", "processors_per_node": PER_NODE, "scavenge": {"queue": queue}}
        koalad = Koalad(testgrid, directory, clusters={cluster: settings}, orphan_timeout="30s")
        try:
            koalad.idle()
            yield koalad
        finally:
            koalad.stop()


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_nodes_that_slurm_takes_back_by_itself_cost_no_parameter(
    testgrid: Any, tmp_path: Path, evidence: Evidence
) -> None:
    """It ends the Launcher's batch job."""
    with koalad_over(testgrid, tmp_path, "alpha") as koalad:
        sweep, count = begin_three_rounds(koalad, evidence, "alpha")
        submit_local_job(testgrid, "alpha", f"touch {evidence.file}-local")
        koalad.until(lambda: is_there(testgrid, "alpha", f"{evidence.file}-local"))
        koalad.until(lambda: koalad.job(sweep)["sweep"]["preempted"] >= PER_NODE)
        evidence.let_go()
        assert_each_once(koalad, evidence, sweep, count)
        assert "sweep_suspended" not in kinds(koalad, sweep)


def test_nodes_that_grid_engine_takes_back_by_itself_cost_no_parameter(
    testgrid: Any, tmp_path: Path, evidence: Evidence
) -> None:
    """It suspends the Launcher until the local job has ended."""
    with koalad_over(testgrid, tmp_path, "gamma") as koalad:
        sweep, count = begin_three_rounds(koalad, evidence, "gamma")
        submit_local_job(testgrid, "gamma", f"sleep {STANDS_S}")
        koalad.until(lambda: "sweep_suspended" in kinds(koalad, sweep))
        koalad.until(lambda: "sweep_resumed" in kinds(koalad, sweep))
        evidence.let_go()
        assert_each_once(koalad, evidence, sweep, count)
        assert koalad.job(sweep)["sweep"]["preempted"] == 0


def test_a_cancelled_sweep_whose_launcher_stands_still_ends_and_leaves_nothing(
    testgrid: Any, tmp_path: Path, evidence: Evidence
) -> None:
    """That Launcher cannot report its end; its end is accepted all the same, while the local job still runs."""
    with koalad_over(testgrid, tmp_path, "gamma") as koalad:
        sweep, _ = begin_three_rounds(koalad, evidence, "gamma")
        marks = f"{evidence.file}-local"
        submit_local_job(testgrid, "gamma", f"sleep {STANDS_S}; touch {marks}; sleep 1000")
        koalad.until(lambda: is_there(testgrid, "gamma", marks))
        assert sum(each["suspended"] for each in runner(koalad, sweep)["clusters"]) == 1
        koalad.grid.cancel(sweep)
        assert koalad.end(sweep)["state"] == "cancelled"
        assert not koalad.batch_jobs()
        assert koalad.grid.status()["pending_cancels"] == []
        koalad.until(lambda: running_on_nodes(testgrid, "gamma") == "")
        assert not evidence.runs()
        assert {"launcher_lost", "sweep_resumed"}.isdisjoint(kinds(koalad, sweep))


def begin_three_rounds(koalad: Any, evidence: Evidence, cluster: str) -> tuple[int, int]:
    """A sweep that has all of the cluster, whose parameters end when they are let go; and how many there are."""
    count = 3 * SIZES[cluster]
    sweep = begin(koalad, f"{evidence.wait}; echo $0 >>{evidence.file}", {"x": f"1:{count}"})
    koalad.until(lambda: fills(koalad, sweep, cluster))
    return sweep, count


def assert_each_once(koalad: Any, evidence: Evidence, sweep: int, count: int) -> None:
    assert koalad.end(sweep)["state"] == "done"
    assert sorted(results(koalad, sweep)) == list(range(1, count + 1))
    assert evidence.runs() == Counter(dict.fromkeys(range(1, count + 1), 1))
    assert "launcher_lost" not in kinds(koalad, sweep)


def running_on_nodes(testgrid: Any, cluster: str) -> str:
    """Return the programs that koalapy's user runs there."""
    nodes = next(each.nodes for each in layout.CLUSTERS if each.name == cluster)
    command = ["pgrep", "--list-full", "--uid", layout.USER]
    return "".join(repair.on_each(nodes, lambda node: str(testgrid.exec(node, command, user="root")[1])))
