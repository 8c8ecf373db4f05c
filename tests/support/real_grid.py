"""A koalad of a test's own over the test grid: real batch systems, over real SSH."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import waiting
import yaml

from koalapy import Grid
from koalapy.answers import jobs as answers
from koalapy.testgrid import layout

KOALA = [sys.executable, "-m", "koalapy.cli.main"]
CLUSTERS = layout.MAIN
SIZES = {"alpha": 32, "beta": 16, "gamma": 16, "delta": 8}
PATIENCE_S = 180.0
SLURM = ("alpha", "beta", "delta")
# by cluster, how another user takes all of its nodes, and gives them back
FILL = {
    "alpha": ["bash", "-c", "cd /tmp; sbatch --parsable -N8 --exclusive --wrap 'sleep 900'"],
    "beta": ["bash", "-c", "cd /tmp; sbatch --parsable -N4 --exclusive --wrap 'sleep 900'"],
    "gamma": ["bash", "-lc", "cd /tmp; echo sleep 900 | qsub -terse -pe mpi 16"],
}
FREE = {
    "alpha": ["scancel", "-u", "wombat"],
    "beta": ["scancel", "-u", "wombat"],
    "gamma": ["bash", "-lc", "qdel -u wombat"],
}
Document = dict[str, Any]


class Koalad:
    """A koalad of its own over three clusters of the test grid.

    `clusters`: others instead, by name; these keys are put over the test grid's own, or taken away by None.
    """

    def __init__(
        self,
        testgrid: Any,
        directory: Path,
        clusters: Mapping[str, Document] | None = None,
        **settings: Any,
    ) -> None:
        self.testgrid = testgrid
        self.directory = directory
        self.clusters = tuple(CLUSTERS if clusters is None else clusters)
        known = testgrid.grid()["clusters"]
        changed = {name: known.get(name, {}) | dict((clusters or {}).get(name, {})) for name in self.clusters}
        said = {name: {key: each[key] for key in each if each[key] is not None} for name, each in changed.items()}
        self.grid_file = directory / "grid.yaml"
        self.grid_file.write_text(yaml.safe_dump({"grid": "live", "clusters": said} | settings))
        self.start()
        self.grid = Grid(self.grid_file)

    def start(self) -> None:
        subprocess.run([*KOALA, "up", "--grid", str(self.grid_file)], check=True, timeout=PATIENCE_S)

    def kill(self) -> None:
        """As if its machine had lost power; its KCMs see the end of their connections."""
        pid = self.grid.status()["pid"]
        os.kill(pid, 9)
        self.until(lambda: not Path(f"/proc/{pid}").exists())

    def submit(self, *components: Document, **fields: Any) -> int:
        return self.grid.submit({"name": "test", "components": list(components), **fields}, directory=self.directory)

    def end(self, job: int, patience_s: float = 300) -> answers.Job:
        return self.grid.wait([job], patience_s)[0]

    def until(self, found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """Return the first true answer. Fails with what koalad knows after `patience_s`."""
        return waiting.until(found, patience_s, lambda: (self.grid.jobs(), self.grid.runners(), self.grid.clusters()))

    def job(self, job: int) -> answers.Job:
        return self.grid.jobs(ids=[job])[0]

    def idle(self) -> None:
        """Wait until every cluster is known and all of it is idle."""
        self.until(lambda: all(each["idle"] == each["total"] == SIZES[each["name"]] for each in self.grid.clusters()))

    def connected(self, name: str) -> None:
        """Wait until the cluster's KCM stands, and koalad has a session with it."""
        self.until(lambda: next(each for each in self.grid.clusters() if each["name"] == name)["connection"] == "up")

    def batch_jobs(self) -> list[str]:
        """Return the jobs of the user koala that the batch systems still list."""
        return [line for cluster in self.clusters for line in batch_jobs(self.testgrid, cluster)]

    def stop(self) -> None:
        pid = self.grid.status()["pid"]
        self.grid.shutdown(cancel=True)
        self.until(lambda: not Path(f"/proc/{pid}").exists())
        self.grid.close()


def batch_jobs(testgrid: Any, cluster: str) -> list[str]:
    command = ["squeue", "-h", "-u", "koala"] if cluster in SLURM else ["bash", "-lc", "qstat -u koala"]
    status, output = testgrid.exec(cluster, command, user="koala")
    assert status == 0, output
    return [line for line in output.splitlines() if line.strip()]


def sh(processors: int, script: str, **fields: Any) -> Document:
    return {
        "processors": processors,
        "executable": "/bin/bash",
        "arguments": ["-c", script],
        "walltime": "5m",
        **fields,
    }
