"""`koala` as a real process over a koalad of its own, for tests: over embedded clusters or over the test grid.

Loaded by the conftest files of the folders that use it, since tests lie in no package.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import preloaded
import pytest
import waiting
import yaml

from koalapy import Grid
from koalapy.answers import jobs as answers
from koalapy.model.errors import KoalaError

COMMAND = [sys.executable, "-m", preloaded.KOALA]
PATIENCE_S = 180.0
CALL_S = 180.0
CLUSTERS = {"amsterdam": 4, "delft": 4, "leiden": 2}
Document = dict[str, Any]
_ENVIRONMENT = threading.Lock()


class Answer:
    """A command's output, and its exit status."""

    def __init__(self, done: "subprocess.CompletedProcess[bytes]") -> None:
        self.status, self.raw = done.returncode, done.stdout
        self.out, self.err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in self.out + self.err, self.err

    def __repr__(self) -> str:
        return f"status {self.status}\n{self.out}\n{self.err}"

    @property
    def document(self) -> Document:
        return dict(json.loads(self.out))

    def refused(self, status: int, *words: str) -> None:
        """Check that it answers nothing, and explains what is wrong in a sentence or two."""
        assert self.status == status, self
        assert self.out == ""
        lines = self.err.splitlines()
        assert lines[0].startswith("koala: "), self
        assert 1 <= len(lines) <= 2, self
        assert all(line.rstrip().endswith((".", "`.", ".)", "?")) for line in lines), self
        for word in words:
            assert word in self.err, self


class Koala:
    """One grid's files, and clients of its koalad. `clusters`: those of its grid file; embedded ones if none."""

    def __init__(self, root: Path, clusters: Document | None = None, **settings: Any) -> None:
        self.root, self.work = root, root / "work"
        self.work.mkdir(parents=True)
        self.grid_file = root / "grid.yaml"
        self._shared = {root}
        self.write_grid({"grid": "live", "clusters": clusters or embedded(root), **settings})
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "KOALA_"))},
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_RUNTIME_DIR": str(root / "run"),
            "KOALA_GRID": str(self.grid_file),
        }

    def write_grid(self, grid: Document) -> None:
        """Write the grid file. Its clusters may lie outside `root`, and be another grid's too."""
        self._shared |= {Path(each["shared"]) for each in grid["clusters"].values() if "shared" in each}
        self.grid_file.write_text(yaml.safe_dump(grid, sort_keys=False))

    def __call__(self, *arguments: object, cwd: Path | None = None, **environment: str) -> Answer:
        words = [*map(str, arguments)]
        return Answer(preloaded.run(words, cwd or self.work, self.environment | environment, CALL_S))

    def start(self, *arguments: object, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=self.work,
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def client(self) -> Grid:
        """As its own environment has it. Any thread: the environment is the whole process's."""
        with _ENVIRONMENT, pytest.MonkeyPatch.context() as patch:
            for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "KOALA_GRID"):
                patch.setenv(name, self.environment[name])
            return Grid(self.grid_file)

    def write(self, name: str, job: Document | str | bytes) -> Path:
        """A job file."""
        path = self.work / name
        if isinstance(job, bytes):
            path.write_bytes(job)
        else:
            path.write_text(job if isinstance(job, str) else yaml.safe_dump(job, sort_keys=False))
        return path

    def submit(self, *components: Document, **fields: Any) -> int:
        """By a job file."""
        file = self.write("job.yaml", {"name": "test", **fields, "components": list(components)})
        answer = self("submit", file, "--json")
        assert answer.status == (1 if answer.out and answer.document.get("state") == "failed" else 0), answer
        return int(answer.document["id"])

    def end(self, job: int) -> answers.Job:
        with self.client() as grid:
            return grid.wait([job], PATIENCE_S)[0]

    def job(self, job: int) -> answers.Job:
        with self.client() as grid:
            return grid.jobs(ids=[job])[0]

    def ids(self) -> list[int]:
        with self.client() as grid:
            return [job["id"] for job in grid.jobs()]

    def until(self, found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """Return the first true answer. Fails with the jobs and clusters after `patience_s`."""
        return waiting.until(found, patience_s, lambda: self("jobs").out + self("clusters").out)

    def kill(self) -> None:
        """Kill koalad, and wait until its process is gone."""
        pid = int(self("status", "--json").document["pid"])
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: not Path(f"/proc/{pid}").exists())

    def clear(self) -> None:
        """End whatever a test has left."""
        with self.client() as grid:
            left = [job["id"] for job in grid.jobs() if job["finished_at"] is None]
            for job in left:
                with contextlib.suppress(KoalaError):
                    grid.cancel(job)
            grid.wait(left, PATIENCE_S)

    def known(self) -> None:
        """Wait until all clusters are known, and all of them is idle."""
        with self.client() as grid:
            self.until(lambda: all(each["idle"] == CLUSTERS[each["name"]] for each in grid.clusters()))

    def processes(self) -> list[int]:
        """Return the processes of koalad, which has its log open, and of its clusters."""
        name = os.fsencode(self.root)
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and mentions(entry, name)]

    def stop(self) -> None:
        """koalad ends with all its jobs, and nothing of them is left."""
        if not (left := self.processes()):
            return
        try:
            answer = self("down", "--cancel")
            assert answer.status in (0, 3), answer
            for each in self._shared:
                end_queues(each)
            self.until(lambda: not self.processes())
        finally:
            for process in left:
                if Path(f"/proc/{process}").exists():
                    os.kill(process, signal.SIGKILL)


def end_queues(root: Path) -> None:
    """End the servers of the embedded queues below this directory, which would leave after some seconds."""
    for address in root.glob("**/local-queue/*/server.json"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(address.read_text())["pid"], signal.SIGTERM)


def embedded(root: Path, *names: str) -> Document:
    """The `local` clusters of these names; of all CLUSTERS if none is given.

    A look at one costs so much that it is put off for longer than six polls.
    """
    return {
        name: {
            "batch": "local",
            "connect": "local:",
            "slots": slots,
            "shared": str(root / name),
            "poll": "500ms",
            "max_age": "1m",
        }
        for name, slots in CLUSTERS.items()
        if not names or name in names
    }


def mentions(process: Path, name: bytes) -> bool:
    try:
        if name in (process / "cmdline").read_bytes() or name in (process / "environ").read_bytes():
            return True
        return name in os.fsencode(os.readlink(process / "fd" / "2"))
    except OSError:  # it has ended meanwhile
        return False


def sh(script: str, processors: int = 1, **fields: Any) -> Document:
    return {"processors": processors, "executable": "/bin/sh", "arguments": ["-c", script], **fields}
