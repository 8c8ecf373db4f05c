"""Parts that live tests of sweeps share: programs that wait and leave their numbers, and a local user's jobs."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from real_grid import SIZES, Document

from koalapy.testgrid import layout, repair

LOCAL_USER = "wombat"
PER_NODE = 4


class Evidence:
    """A file on each node's own disk, to which every run of a parameter that comes to its end adds its number."""

    def __init__(self, testgrid: Any) -> None:
        self._testgrid = testgrid
        self.file = f"/var/tmp/koala-{uuid.uuid4().hex}"
        self.wait = f"until [ -e {self.file}-go ]; do sleep 0.1; done"  # a line of a program that is to be let go
        self._nodes = [node for cluster in layout.CLUSTERS if cluster.name in layout.MAIN for node in cluster.nodes]

    def let_go(self) -> None:
        repair.on_each(self._nodes, lambda node: self._testgrid.check(node, ["touch", f"{self.file}-go"]))

    def runs(self) -> Counter[int]:
        texts = repair.on_each(self._nodes, self._read)
        print("evidence", dict(zip(self._nodes, texts, strict=True)))
        return Counter(int(word) for text in texts for word in text.split())

    def _read(self, node: str) -> str:
        return str(self._testgrid.exec(node, ["sh", "-c", f"cat {self.file} 2>/dev/null"]).output)


def begin(
    koalad: Any, script: str, parameters: Mapping[str, object], stage_out: Sequence[Document] = (), **fields: Any
) -> int:
    """A sweep of a line of bash, in which $0 is the number, and $1 and so on are the values."""
    values = [f"{{{name}}}" for name in parameters]
    program = {
        "executable": "/bin/bash",
        "arguments": ["-c", script, "{#}", *values],
        "processors": 1,
        "walltime": "20m",
    }
    job = {"name": "sweep", "parameters": dict(parameters), "components": [program | fields], "stage_out": [*stage_out]}
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
    """Return whether a parameter runs on every processor there."""
    running = {each["cluster"]: each["running"] for each in runner(koalad, sweep)["clusters"]}
    return all(running.get(name) == SIZES[name] for name in clusters)


def submit_local_job(testgrid: Any, cluster: str, script: str) -> None:
    """Submit a job of another user, over one whole node."""
    submit = {
        "alpha": "sbatch -p batch -n 4 -N 1 -o /dev/null",
        "gamma": "qsub -q all.q -pe mpi 4 -S /bin/sh -o /dev/null -e /dev/null",
    }[cluster]
    text = f"#!/bin/sh\\n{script}\\n"
    status, words = testgrid.exec(cluster, ["bash", "-lc", f"cd /; printf '{text}' | {submit}"], user=LOCAL_USER)
    assert status == 0, words


def is_there(testgrid: Any, cluster: str, file: str) -> bool:
    """On one of its nodes at least."""
    own = next(each.nodes for each in layout.CLUSTERS if each.name == cluster)
    return any(repair.on_each(own, lambda node: testgrid.exec(node, ["test", "-e", file])[0] == 0))
