"""MPI programs over two nodes: a cluster's own Open MPI or MPICH, started by node agents on Slurm and Grid Engine."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import need
from real_grid import Document, Koalad

from koalapy.common.data import data_path
from koalapy.testgrid import layout

SIZES = {"alpha": 6, "gamma": 6}  # more than one node of Grid Engine has
LINE = re.compile(r"rank (\d+) of (\d+) in world (\d+) on (\S+): sum (\d+)\n")
BOTH = [(cluster, flavour) for cluster in SIZES for flavour in ("openmpi", "mpich")]
AT_WORK = "trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The program of configs/examples/mpi-ring, by the flavour of MPI with which it was compiled."""
    place = tmp_path_factory.mktemp("rings")
    source = data_path("configs") / "examples" / "mpi-ring" / "ring.c"
    for flavour in ("openmpi", "mpich"):
        subprocess.run([need(f"mpicc.{flavour}"), "-o", place / flavour, source], check=True)
    return {flavour: place / flavour for flavour in ("openmpi", "mpich")}


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rings: dict[str, Path]) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for path in rings.values():
        shutil.copy(path, tmp_path)
    running = Koalad(testgrid, tmp_path, clusters={name: {} for name in ("alpha", "gamma")})
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def ring(cluster: str, flavour: str) -> Document:
    return mpi(cluster, flavour, executable=f"./{flavour}")


def mpi(cluster: str, flavour: str, **fields: Any) -> Document:
    """A component on two nodes: Slurm is asked for them, and Grid Engine fills one before it takes the next."""
    nodes = {"processors_per_node": 3} if cluster == "alpha" else {}
    wishes = {"processors": SIZES[cluster], "cluster": cluster, "launch": "mpi", "mpi": flavour, "walltime": "3m"}
    # MPICH's default transport may hang for ever if two ranks connect with each other at the same instant
    transport = {"environment": {"FI_PROVIDER": "sockets"}} if flavour == "mpich" else {}
    return {**wishes, **nodes, **transport, **fields}


def lines(koalad: Koalad, job: int) -> list[tuple[int, int, int, str, int]]:
    """Return what each rank of the job printed, in their order: rank, size and number, its node, and the sum."""
    text = b"".join(koalad.grid.output(job)).decode()
    return [(int(a), int(b), int(c), node, int(d)) for a, b, c, node, d in LINE.findall(text)]


def test_a_ring_of_two_mpi_worlds_on_slurm_and_grid_engine(koalad: Koalad) -> None:
    job = koalad.submit(ring("alpha", "mpich"), ring("gamma", "openmpi"), stage_in=["openmpi", "mpich"])
    ended = koalad.end(job)
    assert ended["state"] == "done", ended
    found = lines(koalad, job)
    assert [each[:3] for each in found] == [(rank, 6, world) for world in (0, 1) for rank in range(6)]
    assert {each[4] for each in found} == {sum(range(12))}
    assert len({each[3] for each in found}) == 4, "two nodes of each cluster"


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "flavour"), BOTH)
def test_one_world_of_each_mpi_on_each_batch_system(koalad: Koalad, cluster: str, flavour: str) -> None:
    job = koalad.submit(ring(cluster, flavour), stage_in=[flavour])
    ended = koalad.end(job)
    assert ended["state"] == "done", ended
    assert {each[4] for each in lines(koalad, job)} == {sum(range(6))}
    assert len({each[3] for each in lines(koalad, job)}) == 2


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancel", "kill"])
@pytest.mark.parametrize(("cluster", "flavour"), BOTH)
def test_no_rank_is_left_on_any_node(koalad: Koalad, cluster: str, flavour: str, how: str) -> None:
    program = {"executable": "/bin/bash", "arguments": ["-c", AT_WORK]}
    job = koalad.submit(mpi(cluster, flavour, **program), retry_on=["exit"])
    koalad.until(lambda: output(koalad, job).count("ready") == 6)
    if how == "cancel":
        koalad.grid.cancel(job)
    else:
        kill = ["pkill", "-KILL", "--uid", "koala", "--full", "mpi-hosts"]
        assert [koalad.testgrid.exec(node, kill)[0] for node in nodes_of(cluster)].count(0) == 1
    ended = koalad.end(job)
    assert ended["state"] == ("cancelled" if how == "cancel" else "failed"), ended
    assert output(koalad, job).count("term") == (6 if how == "cancel" else 0)
    koalad.until(lambda: koalad.batch_jobs() == [])
    look = ["pgrep", "--uid", "koala", "--list-full", "--full", "echo ready|mpi-|orted|hydra"]
    left = {node: koalad.testgrid.exec(node, look)[1] for node in nodes_of(cluster)}
    assert set(left.values()) == {""}, left


def nodes_of(cluster: str) -> tuple[str, ...]:
    return next(each.nodes for each in layout.CLUSTERS if each.name == cluster)


def output(koalad: Koalad, job: int) -> str:
    return b"".join(koalad.grid.output(job)).decode()
