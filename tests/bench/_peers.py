"""HyperQueue, Parsl and Dask on two nodes of the test grid: from the package index, in a directory of the shared home.

Nodes reach no package index, so what pip has installed here is copied; the containers' Python is of the same version.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from koalapy.testgrid import Containers, layout

PACKAGES = {"hyperqueue": "hyperqueue==0.27.0", "parsl": "parsl==2026.10.26", "dask": "distributed==2026.8.0"}
HOME = f"/home/{layout.USER}"
PLACE = f"{HOME}/koala-bench-peers"
_ENVIRONMENT = f"export PYTHONPATH={PLACE}/lib PATH={PLACE}/lib/bin:$PATH"
_START_S, _PATIENCE_S = 120, 600


class Peers:
    """Each stands on the first of the two nodes, with half of its workers on the other, but for HyperQueue."""

    def __init__(self, containers: Containers, head: str, nodes: tuple[str, str], tasks: int) -> None:
        self._containers, self._head, self._nodes, self._tasks = containers, head, nodes, tasks
        self._rounds = dict.fromkeys(PACKAGES, 0)

    @contextmanager
    def installed(self) -> Iterator["Peers"]:
        """They stand and are warm while this lasts."""
        with tempfile.TemporaryDirectory(prefix="koala-peers-") as place:
            packed = _packed(Path(place))
        container = self._containers.client.containers.get(layout.container_name(self._head))
        self._run(self._head, f"rm -rf {PLACE}; mkdir -p {PLACE}/lib")
        try:
            container.put_archive(PLACE, packed)
            for name in PACKAGES:
                self._start(name)
            yield self
        finally:
            for node in self._nodes:
                self._containers.exec(node, ["pkill", "-KILL", "-u", layout.USER])
            self._containers.check(self._head, ["rm", "-rf", PLACE])

    def round(self, name: str) -> float:
        """Seconds for all tasks."""
        self._rounds[name] += 1
        took = f"took.{self._rounds[name]}"
        ask = f"printf . > asked; timeout {_PATIENCE_S} sh -c 'until [ -e {took} ]; do sleep 0.1; done'; cat {took}"
        return float(self._run(self._nodes[0], f"cd {_place(name)}; {ask}"))

    def limit(self) -> float:
        """The same of processes that do nothing else."""
        begin = time.time() + 2
        each = len(self._nodes) * 4

        def node(name: str) -> float:
            return float(self._run(name, f"python3 {PLACE}/limit.py 4 {self._tasks // each} {begin}"))

        with ThreadPoolExecutor(len(self._nodes)) as pool:
            return max(pool.map(node, self._nodes)) - begin

    def _start(self, name: str) -> None:
        place = _place(name)
        self._run(self._head, f"mkdir -p {place}")
        self._detached(self._nodes[0], place, f"python3 {PLACE}/peers.py {name} {place} {self._tasks}")
        if name == "dask":
            scheduler = (
                "python3 -m distributed.cli.dask_scheduler --scheduler-file scheduler.json --no-dashboard --port 0"
            )
            self._detached(self._nodes[0], place, scheduler)
            self._beside(place, "scheduler.json", _DASK_WORKER)
        if name == "parsl":
            self._beside(place, "worker.sh", "sh worker.sh")
        wait = f"timeout {_START_S} sh -c 'until [ -e {place}/asked ]; do sleep 0.1; done'"
        self._run(self._nodes[0], f"{wait} || {{ tail -n 5 {place}/log.*; exit 1; }}")

    def _beside(self, place: str, file: str, command: str) -> None:
        """On both nodes, when this file is there."""
        for node in self._nodes:
            self._detached(node, place, f"sh -c 'until [ -e {file} ]; do sleep 0.1; done; exec {command}'")

    def _detached(self, node: str, place: str, command: str) -> None:
        words = f"cd {place}; export PLACE={place}; setsid {command} > log.$$ 2>&1 < /dev/null &"
        self._run(node, words)

    def _run(self, host: str, text: str) -> str:
        argv = ["bash", "-c", f"{_ENVIRONMENT}; {text}"]
        return self._containers.check(host, argv, user=layout.USER, login=True).strip()


_DASK_WORKER = (
    "python3 -m distributed.cli.dask_worker --scheduler-file scheduler.json --nworkers 4 --nthreads 1 --no-dashboard"
)


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """For whoever is there; a temporary directory is its owner's alone."""
    entry.mode |= 0o755 if entry.isdir() else 0o644
    return entry


def _place(name: str) -> str:
    """Its working directory; not by its name alone, which is that of a package."""
    return f"{PLACE}/run-{name}"


def _packed(place: Path) -> bytes:
    """An archive of the installed packages below `lib`, and of the programs."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(place)]
    subprocess.run([*pip, *PACKAGES.values()], check=True, stdout=sys.stderr)
    for script in (place / "bin").glob("*.py"):
        text = script.read_text()
        script.write_text("#!/usr/bin/python3\n" + text.partition("\n")[2])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(place, "lib", filter=_readable)
        for program in Path(__file__).with_name("_throughput").glob("*.py"):
            archive.add(program, program.name)
    return packed.getvalue()
