"""The order in which running jobs are vacated for one of higher priority (the EU-CrossGrid paper, section 3.3).

A vacating policy is `(running) -> running`: the jobs that may be vacated, the first to go first. It may leave some out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koalapy.model.counts import counted_as
from koalapy.model.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job that holds processors, or is about to get them.

    `processors`: all of its live components together. `began_at`: when its programs began, or else its claim.
    """

    job: int
    owner: str
    priority: int
    processors: int
    began_at: Instant


VacatingPolicy = Callable[[Sequence[RunningJob]], Sequence[RunningJob]]


def youngest_first(running: Sequence[RunningJob]) -> Sequence[RunningJob]:
    """Put the job first that has run for the shortest time, so that the least work is lost."""
    return sorted(running, key=lambda each: (-each.began_at, -each.job))


def lowest_priority_first(running: Sequence[RunningJob]) -> Sequence[RunningJob]:
    """Put the jobs of the lowest priority first, the youngest among equals."""
    return sorted(running, key=lambda each: (-each.priority, -each.began_at, -each.job))


def vacating_error(answer: Sequence[RunningJob], running: Sequence[RunningJob]) -> str:
    """Return the error in an answer, as the end of a sentence; '' if it is valid."""
    named, known = [each.job for each in answer], {each.job for each in running}
    if len(set(named)) < len(named) or not known.issuperset(named):
        return f"it orders {counted_as(len(named), 'job')}, not some of the {len(known)} once each"
    return ""
