"""Flows over Slurm and Grid Engine: with a co-allocated job and a branch that fails; and larger than the grid."""

import itertools
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from real_grid import SIZES, Koalad, sh


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(testgrid, tmp_path, clusters={name: {} for name in ("alpha", "gamma")})
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def job(name: str, *after: str, script: str = "true", on: tuple[str, ...] = ("alpha",)) -> dict[str, Any]:
    components = [sh(1, script, cluster=cluster, walltime="2m") for cluster in on]
    return {"name": name, "components": components, **({"after": [*after]} if after else {})}


FLOW = [
    job("a1"),
    job("a2", on=("gamma",)),
    job("a3"),
    job("b1", "a1", on=("gamma",)),
    job("b2", "a2", "a3"),
    job("middle", "b1", "b2", script="sleep 1", on=("alpha", "gamma")),
    job("c1", "middle"),
    job("c2", "middle", on=("gamma",)),
    job("fails", "middle", script="exit 3"),
    job("d1", "fails", on=("gamma",)),
    job("d2", "d1"),
    job("last", "c1", "c2"),
]
FAIL = {"fails", "d1", "d2"}


def test_a_flow_runs_in_its_order_over_both_batch_systems(koalad: Koalad) -> None:
    whole = koalad.grid.submit({"name": "twelve", "jobs": FLOW})
    ended = koalad.grid.wait([whole], 240)[0]
    jobs = {each["name"]: each for each in koalad.grid.flow(whole)}
    assert ended["flow"] == {"jobs": 12, "done": 9, "failed": 3, "cancelled": 0}, jobs
    assert {name for name, each in jobs.items() if each["state"] != "done"} == FAIL
    assert jobs["d2"]["reason_code"] == "prerequisite_failed"
    assert f"job {jobs['fails']['id']} (fails), which failed" in str(jobs["d2"]["reason"])
    assert {each["cluster"] for each in jobs["middle"]["components"]} == {"alpha", "gamma"}
    for each in FLOW:
        for before in each.get("after", ()):
            if each["name"] not in {"d1", "d2"}:
                assert end_of(jobs[before]) <= start_of(jobs[each["name"]]), (before, each["name"])
    assert all(not each["components"][0]["attempt"] for name, each in jobs.items() if name in {"d1", "d2"})


def test_a_tree_that_needs_more_than_the_grid_has_at_once_ends(koalad: Koalad) -> None:
    """Its leaves may start together: each takes more than half of both clusters. So does the job above them."""
    names = ("leaf1", "leaf2", "leaf3")

    def large(name: str, *after: str) -> dict[str, Any]:
        sizes = {cluster: SIZES[cluster] // 2 + 1 for cluster in ("alpha", "gamma")}
        components = [sh(size, "sleep 1", cluster=name, walltime="2m") for name, size in sizes.items()]
        return {"name": name, "components": components, **({"after": [*after]} if after else {})}

    whole = koalad.grid.submit({"name": "large", "jobs": [large("root", *names), *map(large, names)]})
    ended = koalad.grid.wait([whole], 300)[0]
    jobs = {each["name"]: each for each in koalad.grid.flow(whole)}
    assert ended["flow"] == {"jobs": 4, "done": 4, "failed": 0, "cancelled": 0}, jobs
    assert {each["submission_failures"] for each in jobs.values()} == {0}, "resources were acquired too early"
    in_turn = sorted(jobs.values(), key=start_of)
    assert in_turn[-1] is jobs["root"]
    for before, after in itertools.pairwise(in_turn):
        assert end_of(before) <= start_of(after), (before, after)


def start_of(found: Any) -> datetime:
    return min(datetime.fromisoformat(str(each["started_at"])) for each in found["components"])


def end_of(found: Any) -> datetime:
    return max(datetime.fromisoformat(str(each["ended_at"])) for each in found["components"])
