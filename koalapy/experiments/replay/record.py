"""The jobs of a replay: as it submits each, why it cannot, and what became of all of them, in columns.

A job takes about a hundred bytes in the columns.
"""

from array import array
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.request import DEFAULT_PRIORITY, WhenBusy
from koalapy.model.units import Duration

Column = NDArray[numpy.int64]
NEVER = -1  # the time of an event that did not happen
_JOB = (
    "number", "submitted", "started", "ended", "processors", "requested", "user", "group", "queue", "killed", "held",
)  # fmt: skip
_PLACE = ("row", "cluster", "processors")


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """One job. `submitted` counts from the trace's beginning. `components`: (processors, named cluster or None).

    `runtime` is how long its program runs on any cluster, if `walltime` allows it. `when_busy`, `priority`: see
    Request. A waiting job is subject to the grid's queueing policy alone, without the batch systems' queues. `waited`:
    how long it waited on the system of the trace, for comparison only; None if the trace does not give it.
    """

    number: int
    submitted: Duration
    components: tuple[tuple[int, str | None], ...]
    runtime: Duration
    walltime: Duration
    user: str = ""
    group: str = ""
    queue: str = ""
    waited: Duration | None = None
    when_busy: WhenBusy = WhenBusy.WAIT
    priority: int = DEFAULT_PRIORITY

    @property
    def processors(self) -> int:
        return sum([processors for processors, _ in self.components])


class Unfit(ValueError):
    """The reason why a job is not replayed, as the end of a sentence that begins with its line.

    `kind`: the category in which such jobs are counted. `common`: the job is no error of the trace, for example one
    that was cancelled before it ran.
    """

    def __init__(self, what: str, kind: str, advice: str = "", common: bool = False) -> None:
        super().__init__(what)
        self.kind, self.advice, self.common = kind, advice, common


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One job of a trace. Times count from the trace's beginning; None: it never started. `number` is the trace's.

    `places`: (cluster, processors) of each component, empty if the job never started; `reason` then gives the cause.
    `requested` is its walltime; `killed`: whether the job was ended at its walltime. `held`: the time that its
    components held processors at their barriers, in processor-microseconds.
    """

    number: int
    submitted: Duration
    started: Duration | None
    ended: Duration | None
    processors: int
    places: tuple[tuple[str, int], ...]
    requested: Duration
    user: str
    group: str
    queue: str
    killed: bool
    held: int = 0
    reason: str = ""


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
            ran.held,
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
