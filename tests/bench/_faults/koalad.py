"""A koalad of its own over the test grid, which may be killed and started again."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from koalapy import Grid
from koalapy.answers.clusters import Cluster
from koalapy.answers.jobs import Component, Job
from koalapy.client.daemon import wait_for_end
from koalapy.model.errors import KoalaError
from koalapy.testgrid import Running, layout

Document = dict[str, Any]

# Short where a fault has to be waited for, and retries enough for a cluster that is away for a minute.
SETTINGS: Document = {
    "claim": {"timeout": "20s"},
    "barrier": {"timeout": "60s"},
    "retries": {"submission": 20, "completion": 10},
    "orphan_timeout": "30s",
}
POLL = "2s"


class Koalad:
    """A koalad as a user runs it: a grid file, `koala up`, and a client."""

    def __init__(self, testgrid: Running, directory: Path, **settings: Document) -> None:
        self.testgrid, self.containers = testgrid, testgrid.containers
        self.directory = directory
        self.grid_file = directory / "grid.yaml"
        self.grid_file.write_text(yaml.safe_dump(_grid(testgrid) | settings))
        with self._environment():
            self.grid = Grid(self.grid_file)

    def up(self) -> None:
        with self._environment():
            self.grid.up()

    def kill(self) -> None:
        """Kill koalad with `kill -9`; it has ended when this returns."""
        pid = int(self.grid.status()["pid"])
        os.kill(pid, signal.SIGKILL)
        assert wait_for_end(pid, 10)

    def close(self) -> None:
        """End it and all its jobs."""
        try:
            self.grid.down(cancel=True)
        finally:
            self.grid.close()

    def submit(self, *components: Document, **fields: Any) -> int:
        return self.grid.submit({"name": "work", "components": list(components), **fields}, directory=self.directory)

    def job(self, job: int) -> Job:
        return self.grid.jobs(ids=[job])[0]

    def component(self, job: int, cluster: str) -> Component:
        return next(each for each in self.job(job)["components"] if each["cluster"] == cluster)

    def cluster(self, name: str) -> Cluster:
        return next(each for each in self.grid.clusters() if each["name"] == name)

    def until(self, found: Callable[[], Any], what: str, patience_s: float = 180) -> Any:
        """The first true answer. A koalad that was just killed may not answer yet."""
        deadline = time.monotonic() + patience_s
        while not (answer := found()):
            if time.monotonic() > deadline:
                raise AssertionError(f"within {patience_s:.0f} s it did not happen that {what}: {self._known()}")
            time.sleep(0.02)
        return answer

    def idle(self, clusters: Sequence[str]) -> None:
        """Wait until these clusters are known, and all of them is idle."""
        self.until(lambda: all(map(self._is_idle, clusters)), f"{', '.join(clusters)} are idle")

    def _is_idle(self, name: str) -> bool:
        cluster = self.cluster(name)
        return bool(cluster["idle"]) and cluster["idle"] == cluster["total"]

    def _known(self) -> str:
        try:
            return f"{self.grid.jobs()} {self.grid.clusters()} {self.grid.status()}"
        except KoalaError as error:
            return str(error)

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """Its state and socket lie in its directory; the test grid's own stay where they are."""
        before = dict(os.environ)
        os.environ |= {"XDG_STATE_HOME": str(self.directory / "state"), "XDG_RUNTIME_DIR": str(self.directory)}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before


def _grid(testgrid: Running) -> Document:
    found = testgrid.grid(*layout.MAIN)["clusters"]
    clusters = {name: cluster | {"poll": POLL} for name, cluster in found.items()}
    return {"grid": "faults", "clusters": clusters, **SETTINGS}


def batch_jobs(testgrid: Running) -> list[str]:
    """Return the batch jobs that the batch systems still list for the grid's user."""
    return [line for cluster in layout.CLUSTERS if cluster.name in layout.MAIN for line in _listed(testgrid, cluster)]


def _listed(testgrid: Running, cluster: layout.Cluster) -> list[str]:
    command = ["squeue", "-h", "-u", layout.USER] if cluster.batch == "slurm" else ["qstat", "-u", layout.USER]
    return testgrid.check(cluster.name, command).splitlines()
