"""The last batches of events of one engine, with a copy of the engine as it was before the first of them."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from koalapy.engine import Engine
from koalapy.journal.state import copy_of
from koalapy.model.commands import Command, Hint
from koalapy.model.events import (
    AttemptsAccounted,
    ClusterMeasured,
    Event,
    LaunchersSeen,
    ParametersEnded,
    PruneRequested,
    WorkSubmitted,
)
from koalapy.model.records import Step
from koalapy.model.request import Request
from koalapy.model.units import Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scheduler.schedule import Policies

MOST_BATCHES = 10_000
MOST_BYTES = 16_000_000  # of events, by estimate
_PARTS = 2  # each begins with a copy of the engine; the oldest is dropped as a whole
_OF_JOB = 8, 2_000  # further batches and bytes of a part for each job, since the cost of a copy grows with the jobs
_COLUMNS = 4  # of Batch
_CHECK_BATCHES = 16  # between two checks whether a part is full
_CHECK_EVERY = _COLUMNS * _CHECK_BATCHES
_BATCH, _EVENT, _RECORD = 200, 500, 4_000  # estimated bytes of a small batch, event and record


class Batch(NamedTuple):
    """Events handled together, and the resulting commands and hints. `commands` is None if the engine failed."""

    now: Instant
    events: Sequence[Event]
    commands: tuple[Command, ...] | None
    hints: tuple[Hint, ...]


class Journal:
    """The recorder of one engine at a time. Its methods are called from the driver's thread."""

    def __init__(
        self,
        policies: Policies,
        sweep_policies: ScavengingPolicies,
        most_batches: int = MOST_BATCHES,
        most_bytes: int = MOST_BYTES,
        failed: Callable[["JournalState"], None] = lambda taken: None,
    ) -> None:
        """`failed` is called with the journal when a batch fails; it must return at once."""
        self._policies, self._sweep_policies = policies, sweep_policies
        self._most_batches, self._most_bytes = most_batches // _PARTS, most_bytes // _PARTS
        self._failed = failed
        self._engine: Engine | None = None
        self._parts: list[_Part] = []
        self._noted: list[Any] = []  # of the last part
        self._check_at = self._most_noted = self._bytes_left = 0

    def use(self, policies: Policies, sweep_policies: ScavengingPolicies) -> None:
        """Name these policies in journals, from the next engine on."""
        self._policies, self._sweep_policies = policies, sweep_policies

    def begin(self, engine: Engine) -> None:
        """Record the batches of this engine from now on, and drop those of the previous one."""
        self._engine, self._parts = engine, []
        self._begin_part(engine)

    def handling(self, now: Instant, events: Sequence[Event]) -> None:
        """Record a batch before the engine handles it."""
        if len(self._noted) >= self._check_at:
            self._check()
        self._noted += now, events

    def handled(self, step: Step) -> None:
        """Record the result of the batch."""
        self._noted += step.commands, step.hints

    def failed(self, error: Exception) -> None:
        """Record that the last batch failed, in the engine or after it."""
        if len(self._noted) % _COLUMNS:
            self._noted += None, ()
        if self._parts:
            self._failed(self.taken(f"{type(error).__name__}: {str(error)[:200]}"))

    def taken(self, error: str = "") -> "JournalState":
        """Return the whole journal as it is now, at almost no cost. Any thread may keep and read it."""
        batches = tuple(
            Batch(*part.noted[place : place + _COLUMNS])
            for part in self._parts
            for place in range(0, len(part.noted) - _COLUMNS + 1, _COLUMNS)
        )
        return JournalState(self._parts[0].start, batches, self._policies, self._sweep_policies, error)

    def _check(self) -> None:
        """Estimate the size of what was recorded since the last check, and begin a new part if this one is full."""
        size = 0
        for events in self._noted[self._check_at - _CHECK_EVERY + 1 : self._check_at : _COLUMNS]:
            size += _BATCH + _EVENT * len(events)
            for event in events:
                if (weigh := _SIZES.get(type(event))) is not None:
                    size += weigh(event)
        self._bytes_left -= size
        self._check_at += _CHECK_EVERY
        if self._bytes_left <= 0 or len(self._noted) > self._most_noted:
            assert self._engine is not None
            self._begin_part(self._engine)

    def _begin_part(self, engine: Engine) -> None:
        more_batches, more_bytes = (each * len(engine.records.all_work()) for each in _OF_JOB)
        self._most_noted = _COLUMNS * (max(self._most_batches, more_batches) - _CHECK_BATCHES)
        self._bytes_left, self._check_at = max(self._most_bytes, more_bytes), _CHECK_EVERY
        self._noted = []
        del self._parts[: len(self._parts) - _PARTS + 1]
        self._parts.append(_Part(copy_of(engine), self._noted))


class _Part(NamedTuple):
    start: Engine
    noted: list[Any]  # the columns of each batch in one flat list, so that a batch needs no object of its own


class JournalState(NamedTuple):
    """A journal as it was at one instant.

    `start` is only copied and never handles an event. `error`: how its last batch failed, '' if it did not.
    """

    start: Engine
    batches: tuple[Batch, ...]
    policies: Policies
    sweep_policies: ScavengingPolicies
    error: str = ""


def _size_of(request: Request) -> int:
    """Return the estimated bytes of a request, of which a user may make some fields long."""
    size = _RECORD
    for each in request.components:
        size += _EVENT + sum(map(len, each.arguments)) + sum(map(len, each.setup)) + len(each.executable)
        if each.environment:
            size += sum(len(name) + len(value) for name, value in each.environment)
    if request.stage_in or request.stage_out:
        size += sum(map(len, request.stage_in)) + sum(map(len, request.stage_out))
    if request.parameters is not None:
        for source in chain.from_iterable(axis.sources for axis in request.parameters.axes):
            size += sum(map(len, source.values)) + _BATCH * len(source.values)
    return size


# Estimated bytes of the events that may be long, beyond `_EVENT`.
_SIZES: dict[type, Callable[[Any], int]] = {
    WorkSubmitted: lambda event: _size_of(event.request),
    PruneRequested: lambda event: _RECORD * len(event.work),
    ParametersEnded: lambda event: _EVENT * len(event.results),
    AttemptsAccounted: lambda event: _EVENT * len(event.spans),
    LaunchersSeen: lambda event: _BATCH * len(event.launchers),
    ClusterMeasured: lambda event: _BATCH * (len(event.state.allocated) + len(event.state.pending)),
}
