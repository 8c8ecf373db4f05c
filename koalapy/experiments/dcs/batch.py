"""The tasks of the DCS experiment: the cases of the paper's five experiments, and further ones."""

from collections.abc import Sequence
from itertools import product
from statistics import fmean, stdev
from typing import NamedTuple

from koalapy.experiments.dcs.das2 import Das2, Load
from koalapy.experiments.dcs.workload import JOBS, MEASURED, WHOLE, Case, batch
from koalapy.experiments.plan import Options, Row
from koalapy.model.errors import RequestError
from koalapy.model.job import Job
from koalapy.model.units import SECOND

SETS = 3
OTHERS = 10  # percent of each cluster that other users want; in the paper it is much less than the batch's part
KINDS, QUEUES = ("unordered", "ordered", "mixed"), ("fcfs", "fpfs")  # in the order of the paper's figures
PLACEMENTS = ("worst-fit", "cluster-minimisation")


class BatchOutcome(NamedTuple):
    row: Row
    loads: list[Load]


class BatchTask(NamedTuple):
    """One batch. The same seed gives the same outcome in every process. `others`: load of other users in percent."""

    case: Case
    others: int
    number: int
    seed: int
    jobs: int

    def outcome(self) -> BatchOutcome:
        seed = 1000 * self.seed + self.number
        das2 = Das2(self.case, self.others / 100, seed)
        jobs, loads = das2.play(batch(self.case, seed, self.jobs))
        begun: Row = {**self.case._asdict(), "others": self.others, "set": self.number}
        return BatchOutcome(begun | row(jobs), loads)


def row(jobs: Sequence[Job]) -> Row:
    """Return the measures of one batch, in seconds, as the live experiment has them.

    The overhead is the time from claim to end without the run of the program.
    """
    ended = [job for job in jobs if job.state.final]
    well = [job for job in ended if job.started_at is not None and job.claimed_at is not None]
    times = [_times(job) for job in well]
    found: Row = {"jobs": len(jobs), "done": sum(job.state == "done" for job in jobs)}
    for name, column in zip(("response", "run", "overhead"), zip(*times, strict=True), strict=True):
        found |= {f"{name}_s": fmean(column), f"{name}_stdev_s": stdev(column) if len(column) > 1 else 0.0}
    begun, last = min(job.submitted_at for job in jobs), max(job.finished_at or 0 for job in ended)
    return found | {
        "makespan_s": (last - begun) / SECOND,
        "clusters": fmean(len({each.cluster for each in job.present}) for job in well),
        "submission_failures": sum(job.submission_failures for job in jobs),
        "completion_failures": sum(job.completion_failures for job in jobs),
    }


def _times(job: Job) -> tuple[float, float, float]:
    assert job.started_at is not None
    assert job.claimed_at is not None
    assert job.finished_at is not None
    run = max(each.ended_at or job.started_at for each in job.present) - job.started_at
    response, since_claim = job.finished_at - job.submitted_at, job.finished_at - job.claimed_at
    return response / SECOND, run / SECOND, (since_claim - run) / SECOND


def cases() -> list[Case]:
    """Return the paper's own cases first, then further ones.

    Ordered jobs need one placement policy only, since their users place them.
    """
    found = [*MEASURED]
    for system, kind, queue, placement in product(("144+64", WHOLE), KINDS, QUEUES, PLACEMENTS):
        if kind != "ordered" or placement == PLACEMENTS[0]:
            found.append(Case(system, 8, kind, queue, placement))
    return list(dict.fromkeys(found))


def tasks(options: Options) -> list[BatchTask]:
    """Return the tasks of all cases, loads and sets. Raises RequestError for loads that no cluster can have."""
    loads = options.loads if options.loads is not None else [OTHERS]
    if not loads or not all(0 <= load <= 90 for load in loads):
        message = "The load of other users is a whole percentage from 0 to 90 here."
        raise RequestError("bad_loads", message, "Write --loads 0,10.")
    numbers = range(1, (options.sets or SETS) + 1)
    return [BatchTask(*each, options.seed, options.jobs or JOBS) for each in product(cases(), loads, numbers)]


def rows_of(outcomes: Sequence[BatchOutcome]) -> list[Row]:
    return [outcome.row for outcome in outcomes]
