"""Performs one row of the table: work, fault, mending, the end of all jobs, and its judgement."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from _faults import judging, programs
from _faults.judging import Verdict
from _faults.koalad import Koalad, batch_jobs
from _faults.scene import Scene
from _faults.table import Row
from koalapy.answers import jobs as answers
from koalapy.testgrid import Running, layout

PATIENCE_S = 420.0
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """`went_on_s`: from the mending, or from the fault where nothing is to mend, until the co-allocated job ran (again;
    0 if it never stopped) and a new job of one process, submitted at that moment, ran on the cluster that was struck.
    """

    row: Row
    verdict: Verdict
    went_on_s: float
    restarts: int  # tries of the co-allocated job beyond the first
    fault_s: float  # from the injection to the mending
    jobs: list[answers.Job]


@contextmanager
def koalad_over(testgrid: Running, idle: Sequence[str] = layout.MAIN, **settings: Document) -> Iterator[Koalad]:
    """A koalad of its own, up, that knows these clusters, idle as they must be. `settings` are put over SETTINGS."""
    with tempfile.TemporaryDirectory(prefix="koala-faults-") as name:
        koalad = Koalad(testgrid, Path(name), **settings)
        koalad.up()
        try:
            koalad.idle(idle)
            yield koalad
        finally:
            koalad.close()


def perform(row: Row, testgrid: Running) -> Result:
    """The test grid must be up; it is reset first, and left with everything mended."""
    testgrid.reset()
    with koalad_over(testgrid) as koalad:
        scene = Scene(koalad, row.cluster, row.over)
        scene.submit(row.seconds, row.moment)
        scene.reach(row.moment)
        struck = time.time()
        row.inject(scene)
        injected = time.time()
        scene.let_go()
        if row.mend:
            row.mend(scene)
        mended = time.time() if row.mend else struck
        probe = koalad.submit(programs.program(1, 1, cluster=row.cluster), name=judging.ONE)
        jobs = _ends(koalad, [scene.job, *scene.others, probe])
        return _result(row, koalad, scene, jobs, mended, injected - struck)


def _ends(koalad: Koalad, jobs: list[int]) -> list[answers.Job]:
    """All jobs as they are at their ends, or after our patience."""
    try:
        return koalad.grid.wait(jobs, PATIENCE_S)
    except TimeoutError:
        return koalad.grid.jobs(ids=jobs)


def _result(row: Row, koalad: Koalad, scene: Scene, jobs: list[answers.Job], mended: float, fault_s: float) -> Result:
    left = _left(koalad)
    processes = programs.evidence(koalad.testgrid)
    ends = {job["id"]: _moment(job["finished_at"]) for job in jobs if job["finished_at"]}
    verdict = Verdict(
        lost=judging.lost(jobs, processes),
        twice=judging.twice(processes),
        left=left + judging.outlived(processes, ends),
    )
    went_on = max(_started(processes, job) - mended for job in (jobs[0], jobs[-1]))
    restarts = max(each["attempt"] for each in jobs[0]["components"]) - 1
    return Result(row, verdict, max(0.0, went_on), restarts, fault_s, jobs)


def _left(koalad: Koalad) -> list[str]:
    """Return what is left on the clusters although all jobs are final."""
    pending_cancels = [f"pending cancel: {each}" for each in koalad.grid.status()["pending_cancels"]]
    alive = [f"a program runs on {node}" for node in programs.alive(koalad.testgrid)]
    return [f"queue: {line.strip()}" for line in batch_jobs(koalad.testgrid)] + pending_cancels + alive


def _started(processes: list[programs.Process], job: answers.Job) -> float:
    """When the last component of the job's last try started; 0 if none did."""
    starts = [
        max((each.starts[0] for each in judging.last_attempt(processes, job["id"], component["index"])), default=0.0)
        for component in job["components"]
    ]
    return max(starts)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
