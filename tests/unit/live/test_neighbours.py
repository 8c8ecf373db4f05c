"""Two koalad of one person on one account: two grids, two stores, and one cluster's queue and shared directory."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest

from koalapy.client.daemon import wait_for_end

Document = dict[str, Any]
PATIENCE_S = live.PATIENCE_S


class Neighbours:
    def __init__(self, place: Path) -> None:
        (place / "clusters").mkdir()
        clusters = live.embedded(place / "clusters")
        self.one, self.two = (live.Koala(place / name, clusters) for name in ("one", "two"))

    def stop(self) -> None:
        for koala in (self.one, self.two):
            koala.stop()


@pytest.fixture
def neighbours(place: Path) -> Iterator[Neighbours]:
    made = Neighbours(place)
    yield made
    made.stop()


def start(koala: Any, shell: Callable[..., Document]) -> tuple[int, Path, Path]:
    """A koalad and a job of it that runs on delft: the job, its gate, and what it wrote."""
    assert koala("up").status == 0
    koala.until(lambda: all(each["connection"] == "up" for each in koala("clusters", "--json").document["clusters"]))
    gate, lines = koala.work / "gate", koala.work / "lines"
    program = f"echo started >>{lines}; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended >>{lines}"
    job = koala.submit(shell(program, cluster="delft"))
    koala.until(lambda: koala.job(job)["state"] == "running" and lines.exists())
    return job, gate, lines


def ends_well(koala: Any, job: int, gate: Path, lines: Path) -> None:
    gate.touch()
    ended = koala.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    assert lines.read_text() == "started\nended\n"


def test_a_koalad_that_is_killed_and_comes_again_leaves_its_neighbours_jobs_alone(
    neighbours: Neighbours, shell: Callable[..., Document]
) -> None:
    one, two = neighbours.one, neighbours.two
    ours, theirs = start(one, shell), start(two, shell)
    assert ours[0] == theirs[0]  # the ids are the same, the tags are not
    pid = int(one("status", "--json").document["pid"])
    os.kill(pid, signal.SIGKILL)
    assert wait_for_end(pid, PATIENCE_S)
    assert one("up").status == 0
    assert two.job(theirs[0])["state"] == "running"
    ends_well(two, *theirs)
    ends_well(one, *ours)


def test_to_cancel_all_cancels_no_job_of_the_neighbour(neighbours: Neighbours, shell: Callable[..., Document]) -> None:
    one, two = neighbours.one, neighbours.two
    ours, theirs = start(one, shell), start(two, shell)
    assert one("down", "--cancel").status == 0
    assert ours[2].read_text() == "started\n"
    assert two.job(theirs[0])["state"] == "running"
    ends_well(two, *theirs)
    assert one("up").status == 0
    assert one.job(ours[0])["state"] == "cancelled"
