"""Jobs that ran on real Slurm and Grid Engine, pruned: which files they had, and what is left of them.

`tests/bench/run pruned-live [--jobs N]`. N short jobs of one processor run on alpha to delta of the test grid. It has
a koalad of the bench's own that keeps what they write. `find` lists what the user has on every head and node, and in
koalad's state directory: before the jobs, after them, after `prune-output` and `prune-history`, and once more when the
records in `ended/` are older than a week. The figure is the number of files of jobs that are left.
"""

import argparse
import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _grid import KOALA, koalad_of, last_line, wait_until_measured

from koalapy import Grid, testgrid
from koalapy.answers.jobs import Job
from koalapy.testgrid import Running, layout

KOALAD = "koalad"
PATIENCE_S = 3600.0
CANCEL_S = 300.0
AT_ONCE = 1000  # jobs in one request
# What a head has beside the store's own files and the tags of attempts, whether jobs are pruned or not.
OF_THE_STORE = re.compile(
    r"/(watermark|relay)\.\w+\.json$|/stage(/[0-9a-f]{64})?$|/ended$|\.pyz$|^output$|^staged(/[0-9a-f]{32}\.\w+)?$|^koalad\.log"
)
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
PROGRAM = 'cat input; echo "job $KOALA_JOB_ID" | tee result; echo "errors of $KOALA_JOB_ID" >&2'

Paths = Mapping[str, frozenset[str]]  # by place: a cluster, or KOALAD


@dataclass(frozen=True, slots=True)
class Row:
    """Files and directories of one place: all of them at four moments, and of those that are left what is of jobs.

    `records`: in `ended/` after the pruning. `left`: of jobs after it, the records aside. `later`: a week later.
    """

    place: str
    before: int
    with_jobs: int
    pruned: int
    records: int
    left: tuple[str, ...]
    later: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Size:
    """The store's rows by table, and its bytes with its log."""

    rows: dict[str, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    jobs: int
    done: int
    seconds: dict[str, float]  # by phase
    rows: tuple[Row, ...]
    sizes: dict[str, Size]  # by moment
    messages: tuple[str, ...]  # what the tasks reported

    @property
    def left(self) -> list[str]:
        """Files and directories of jobs that are left although they should not be."""
        return [f"{row.place}: {path}" for row in self.rows for path in (*row.left, *row.later)]


def job_of(number: int) -> dict[str, Any]:
    component = {"processors": 1, "executable": "/bin/sh", "arguments": ["-c", PROGRAM], "walltime": "5m"}
    return {"name": f"short-{number}", "stage_in": ["input"], "components": [component]}


def grid_of(running: Running, clusters: Sequence[str]) -> dict[str, Any]:
    """The content of a grid file. Clusters are looked at once a second, since most of these jobs wait for room."""
    grid = running.grid(*clusters)
    grid["clusters"] = {name: {**cluster, "poll": "1s"} for name, cluster in grid["clusters"].items()}
    return {**grid, "keep_output": "home", "claim": {"timeout": "10m"}, "retries": {"submission": 10}}


class Bench:
    """`state`: koalad's state directory. `grid_file`: that of `koalad`."""

    def __init__(self, running: Running, koalad: Grid, grid_file: Path, state: Path) -> None:
        self._running, self._koalad, self._grid_file, self._state = running, koalad, grid_file, state
        self._clusters = [each["name"] for each in koalad.clusters()]
        self._seconds: dict[str, float] = {}
        self._messages: list[str] = []

    def run(self, count: int, patience_s: float) -> Report:
        """`patience_s`: for the jobs; those that are not over then are cancelled, and pruned with the others."""
        (self._grid_file.parent / "input").write_text("what all jobs read\n")
        moments, sizes = [self._look()], {"before": self._size()}
        began = time.monotonic()
        jobs = self._submit(count)
        ends = self._wait(jobs, patience_s)
        self._seconds["jobs"] = time.monotonic() - began
        moments.append(self._look())
        sizes["with jobs"] = self._size()
        for task in ("prune-output", "prune-history"):
            self._maintain(task, "--set", "keep=0s")
        moments.append(self._look())
        sizes["pruned"] = self._size()
        self._maintain("vacuum")
        sizes["vacuumed"] = self._size()
        self._pass_a_week()
        moments.append(self._look())
        done = sum(job["state"] == "done" for job in ends)
        return Report(count, done, self._seconds, self._rows(moments), sizes, tuple(self._messages))

    def _submit(self, count: int) -> list[int]:
        jobs: list[int] = []
        while len(jobs) < count:
            page = [job_of(number) for number in range(len(jobs), min(count, len(jobs) + AT_ONCE))]
            jobs += self._koalad.submit_many(page, directory=self._grid_file.parent)
        return jobs

    def _wait(self, jobs: list[int], patience_s: float) -> list[Job]:
        try:
            return self._koalad.wait(jobs, patience_s)
        except TimeoutError:
            self._koalad.cancel_many([job["id"] for job in self._koalad.jobs(ids=jobs) if job["finished_at"] is None])
            return self._koalad.wait(jobs, CANCEL_S)

    def _maintain(self, *arguments: str) -> None:
        began = time.monotonic()
        self._messages.append(_koala(self._grid_file, "maintenance", "run", *arguments))
        self._seconds[arguments[0]] = time.monotonic() - began

    def _pass_a_week(self) -> None:
        """Make every record in `ended/` older than it is kept, and let the next KCMs begin."""
        for cluster in self._clusters:
            shared = self._shared(cluster)
            self._running.shell(cluster, f"find {shared}/*/ended -type f -exec touch -d '8 days ago' {{}} +")
        _koala(self._grid_file, "down")
        _koala(self._grid_file, "up")
        wait_until_measured(self._koalad)

    # ---- what there is

    def _look(self) -> Paths:
        with ThreadPoolExecutor(4) as pool:
            found = dict(zip(self._clusters, pool.map(self._on, self._clusters), strict=True))
        return {**found, KOALAD: frozenset(str(path.relative_to(self._state)) for path in self._state.rglob("*"))}

    def _on(self, cluster: str) -> frozenset[str]:
        """All that the user has on the head, and what is on the nodes alone."""
        hosts = [host for host in layout.hosts() if host.startswith(f"{cluster}-")]
        paths = self._find(cluster, f"/home/{layout.USER}", self._shared(cluster), *TEMPORARY)
        return paths.union(*(self._find(host, *TEMPORARY) for host in hosts))

    def _find(self, host: str, *places: str) -> frozenset[str]:
        there = " ".join(places)
        listed = self._running.shell(host, f"find {there} -mindepth 1 -user {layout.USER} 2>/dev/null || true")
        return frozenset(listed.splitlines())

    def _shared(self, cluster: str) -> str:
        return str(self._running.grid()["clusters"][cluster].get("shared", f"/home/{layout.USER}/.koala"))

    def _size(self) -> Size:
        with sqlite3.connect(f"file:{self._state / 'store.sqlite'}?mode=ro", uri=True) as store:
            names = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: store.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in sorted(names)}
        store.close()
        return Size(rows, sum(path.stat().st_size for path in self._state.glob("store.sqlite*")))

    def _rows(self, moments: list[Paths]) -> tuple[Row, ...]:
        before, with_jobs, pruned, later = moments
        return tuple(
            Row(
                place,
                before=len(before[place]),
                with_jobs=len(with_jobs[place]),
                pruned=len(pruned[place]),
                records=sum("/ended/" in path for path in pruned[place]),
                left=tuple(sorted(path for path in _new(pruned, before, place) if "/ended/" not in path)),
                later=tuple(sorted(_new(later, before, place))),
            )
            for place in before
        )


def _new(now: Paths, before: Paths, place: str) -> list[str]:
    return [path for path in now[place] - before[place] if not OF_THE_STORE.search(path)]


def _koala(grid_file: Path, *arguments: str) -> str:
    command = [*KOALA, *arguments, "--grid", str(grid_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"koala {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return " ".join(done.stdout.split())


def show(report: Report) -> None:
    print("place    files before  with the jobs  pruned  in ended/  of jobs  of jobs a week later")
    for row in report.rows:
        print(
            f"{row.place:8} {row.before:12} {row.with_jobs:14} {row.pruned:7} {row.records:10} {len(row.left):8}"
            f" {len(row.later):21}"
        )
    for path in report.left[:20]:
        print(f"left: {path}")
    for moment, size in report.sizes.items():
        rows = ", ".join(f"{count} {name}" for name, count in size.rows.items() if count)
        print(f"store {moment}: {size.bytes / 1e6:.2f} MB, {sum(size.rows.values())} rows: {rows}")
    for message in report.messages:
        print(message)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds, after which jobs are cancelled")
    wanted = parser.parse_args()
    with testgrid.reserved():
        running = testgrid.up()
        testgrid.reset()
        with koalad_of(grid_of(running, layout.HEADS)) as (koalad, grid_file):
            wait_until_measured(koalad)
            state = Path(os.environ["XDG_STATE_HOME"], "koala", "bench")
            report = Bench(running, koalad, grid_file, state).run(wanted.jobs, wanted.patience)
        testgrid.reset()
    show(report)
    seconds = {phase: round(taken, 1) for phase, taken in report.seconds.items()}
    detail = {"jobs": report.jobs, "done": report.done, "seconds": seconds}
    last_line("pruned-live", len(report.left), "files", 0, not report.left, detail)


if __name__ == "__main__":
    main()
