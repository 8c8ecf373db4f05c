"""The outcomes of all jobs of a replay, in columns of about a hundred bytes per job."""

from array import array

import numpy
from numpy.typing import NDArray

from koalapy.experiments.replay.job import Ran
from koalapy.model.units import Duration

Column = NDArray[numpy.int64]
NEVER = -1  # the time of an event that did not happen
_JOB = ("number", "submitted", "started", "ended", "processors", "requested", "user", "group", "queue", "killed")
_PLACE = ("row", "cluster", "processors")


class Names:
    """Texts, and the numbers that stand for them in columns, from 0 in the order of their first use."""

    def __init__(self, first: tuple[str, ...] = ()) -> None:
        self._numbers = {text: number for number, text in enumerate(first)}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        return list(self._numbers)


class Record:
    """The columns of a replay, with one `add` for every job, in any order.

    Times are microseconds from the trace's beginning, or NEVER. `sizes`: every cluster's processors. `users`, `groups`,
    `queues`: the texts of the columns of these names.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.users, self.groups, self.queues = Names(), Names(), Names()
        self.reasons: dict[str, int] = {}  # the number of jobs that never started, by reason
        self._clusters = Names(tuple(sizes))
        self._jobs, self._places = array("q"), array("q")

    def add(self, ran: Ran) -> None:
        row = len(self._jobs) // len(_JOB)
        self._jobs.extend((
            ran.number, ran.submitted, _time(ran.started), _time(ran.ended), ran.processors, ran.requested,
            self.users.number(ran.user), self.groups.number(ran.group), self.queues.number(ran.queue), ran.killed,
        ))  # fmt: skip
        for cluster, processors in ran.places:
            self._places.extend((row, self._clusters.number(cluster), processors))
        if ran.started is None:
            self.reasons[ran.reason] = self.reasons.get(ran.reason, 0) + 1

    def job(self, column: str) -> Column:
        """Return a column of all jobs, in the order in which they ended."""
        return _column(self._jobs, _JOB, column)

    def place(self, column: str) -> Column:
        """Return a column of all components that ran: `row` of the job, number of the `cluster`, or `processors`."""
        return _column(self._places, _PLACE, column)

    def __len__(self) -> int:
        return len(self._jobs) // len(_JOB)


def _time(time: Duration | None) -> int:
    return NEVER if time is None else time


def _column(values: "array[int]", names: tuple[str, ...], column: str) -> Column:
    """Return a copy, since no value can be added to an array that numpy shares."""
    found: Column = numpy.frombuffer(values, dtype=numpy.int64)[names.index(column) :: len(names)].copy()
    return found
