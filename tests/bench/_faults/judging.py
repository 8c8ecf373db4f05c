"""The promises after a fault, checked against the programs' lines and the lists of the batch systems."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from _faults.programs import Process
from koalapy.answers import jobs as answers

ONE = "one"  # the name of jobs that have one process, however many processors


@dataclass(frozen=True, slots=True)
class Verdict:
    """Sentences on what should not be; none where all promises hold."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.twice or self.left)


def lost(jobs: Iterable[answers.Job], processes: Sequence[Process]) -> list[str]:
    """Jobs that were accepted and did not come to a good end, or that did without all their processes."""
    found = []
    for job in jobs:
        if job["state"] != "done":
            found.append(f"job {job['id']} is {job['state']}: {job['reason']}")
            continue
        for component in job["components"]:
            ended = [each for each in last_attempt(processes, job["id"], component["index"]) if each.ended]
            if len(ended) != (1 if job["name"] == ONE else component["processors"]):
                found.append(f"job {job['id']} is done, but of component {component['index']} {len(ended)} ended")
    return found


def twice(processes: Sequence[Process]) -> list[str]:
    """Attempts that ran more than once, and attempts of one component that ran at one time."""
    again = [f"{_named(each)} started {len(each.starts)} times" for each in processes if len(each.starts) > 1]
    attempts = sorted(_attempts(processes), key=lambda each: (each[0].job, each[0].component, each[1]))
    for (one, _, last), (other, first, _) in itertools.pairwise(attempts):
        if (one.job, one.component) == (other.job, other.component) and first <= last:
            again.append(f"{_named(other)} started {last - first:.1f} s before {_named(one)} was over")
    return again


def outlived(processes: Sequence[Process], ends: dict[int, float]) -> list[str]:
    """Processes that were seen to live after the end of their job. `ends`: when each job was over."""
    return [
        f"{_named(each)} lived {each.last - ends[each.job]:.1f} s longer than its job"
        for each in processes
        if each.last > ends.get(each.job, each.last)
    ]


def last_attempt(processes: Sequence[Process], job: int, component: int) -> list[Process]:
    """The processes of the attempt that started last."""
    own = [each for each in processes if (each.job, each.component) == (job, component)]
    if not own:
        return []
    newest = max(own, key=lambda each: each.starts[0]).attempt
    return [each for each in own if each.attempt == newest]


def _attempts(processes: Sequence[Process]) -> list[tuple[Process, float, float]]:
    """Each attempt: one of its processes, its first start and the last sign of it."""
    grouped: dict[tuple[int, int, str], list[Process]] = {}
    for each in processes:
        grouped.setdefault((each.job, each.component, each.attempt), []).append(each)
    return [(own[0], min(each.starts[0] for each in own), max(each.last for each in own)) for own in grouped.values()]


def _named(process: Process) -> str:
    return f"attempt {process.attempt} of component {process.component} of job {process.job}, rank {process.rank},"
