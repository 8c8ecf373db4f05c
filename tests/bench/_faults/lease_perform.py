"""Performs one round of a fault of sites: leases with a job on each, fault, mending, the ends, and their judgement."""

import time
from dataclasses import dataclass, field
from datetime import datetime

from _faults import judging
from _faults.judging import Verdict
from _faults.lease_evidence import Evidence
from _faults.lease_scene import BETWEEN, LeaseScene, Person
from _faults.lease_table import LeaseRow
from _faults.programs import Process
from koalapy.answers import jobs as answers
from koalapy.model.errors import KoalaError
from koalapy.testgrid import Running

PATIENCE_S = 420.0
_CLEAN_S = 60.0  # until the last directory is removed


@dataclass(frozen=True, slots=True)
class Round:
    """The findings of one round.

    `went_on_s`: for each lease, from the mending, or from the fault where nothing is to mend, until its job ran (again)
    and all links were up; 0 if it never stopped. `attempts`: of each job.
    """

    verdict: Verdict
    books: list[str] = field(default_factory=list)
    went_on_s: list[float] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return self.verdict.holds and not self.books


def begun(row: LeaseRow, testgrid: Running, people: dict[str, Person], evidence: Evidence) -> LeaseScene:
    """Return the scene of a row, with its terms agreed."""
    between = people[BETWEEN] if row.chain else None
    scene = LeaseScene(testgrid, people, evidence, people[row.borrower], row.lenders, between)
    scene.agree(row.lost_after)
    return scene


def perform(row: LeaseRow, scene: LeaseScene) -> Round:
    """Strike the leases of one round. Raises AssertionError or KoalaError if it comes to no end."""
    scene.jobs.clear()
    scene.begin(row.seconds)
    struck = time.time()
    try:
        row.inject(scene)
    finally:
        if row.mend:
            row.mend(scene)
    mended = time.time() if row.mend else struck
    scene.evidence.let_go()
    scene.until(scene.is_connected, "all links are up")
    linked = time.time()
    jobs = _ends(scene)

    scene.until(scene.is_over, "no site has a lease")
    left = _left(scene)
    processes = scene.evidence.processes()
    ends = {job["id"]: datetime.fromisoformat(job["finished_at"]).timestamp() for job in jobs if job["finished_at"]}
    verdict = Verdict(
        lost=judging.lost(jobs, processes),
        twice=judging.twice(processes),
        left=left + judging.outlived(processes, ends),
    )
    went_on = [max(0.0, _started(processes, job) - mended, linked - mended) for job in jobs]
    attempts = [max(each["attempt"] for each in job["components"]) for job in jobs]
    return Round(verdict, scene.books(), went_on, attempts)


def _ends(scene: LeaseScene) -> list[answers.Job]:
    """Return all jobs as they are at their ends, or after our patience."""
    grid = scene.borrower.grid
    try:
        return grid.wait(scene.jobs, PATIENCE_S)
    except TimeoutError:
        return grid.jobs(ids=scene.jobs)


def _left(scene: LeaseScene) -> list[str]:
    """Return what is left once the lenders had time to remove it."""
    deadline = time.monotonic() + _CLEAN_S
    while (left := scene.left()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def _started(processes: list[Process], job: answers.Job) -> float:
    """Return when the last process of the job's last attempt started; 0 if none did."""
    return max((each.starts[0] for each in judging.last_attempt(processes, job["id"], 0)), default=0.0)


def failed(error: AssertionError | KoalaError) -> Round:
    """Return the result of a round that came to no end: a result too, and no reason to leave the others out."""
    return Round(Verdict(lost=[f"it came to no end: {error}"]))
