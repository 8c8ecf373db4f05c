"""What a maintenance task is given, and what it answers. Tasks are entry points of the group `koalapy.maintenance`."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from koalapy.config.maintenance import Maintenance
from koalapy.engine import Engine
from koalapy.model.events import Event
from koalapy.model.identity import JobId
from koalapy.model.units import Instant
from koalapy.model.usage import By, Sum
from koalapy.runtime.unknown import UnknownTags
from koalapy.store.contract import Store
from koalapy.views.clusters import ClusterReport

T = TypeVar("T")
_NOT_BEGUN = Instant(0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went, in sentences. `well`: nobody need do anything about it."""

    well: bool
    message: str


class Ask(Protocol):
    """Ask the engine something between two batches. Raises KoalaError."""

    def __call__(self, question: Callable[[Engine], T]) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Koalad:
    """The koalad that is maintained, for a task's thread. All calls block and raise KoalaError.

    `do` returns once its events are committed. `submit` takes a job file and a key. `ending`: koalad is about to end,
    and a task that can go on later is to return soon. `usage`: sums since an instant. `began`: when this run began; one
    that goes on with a run that was cut off has the instant of that.
    `examine`: the quick part of the doctor's examination, until an event; what is wrong in sentences, by cluster.
    """

    grid: str
    store: Store
    now: Callable[[], Instant]
    ask: Ask
    do: Callable[[Event], object]
    unknown: UnknownTags
    clusters: Callable[[], Sequence[ClusterReport]]
    examine: Callable[[threading.Event], Mapping[str, Sequence[str]]]
    submit: Callable[[Path, str], JobId]
    usage: Callable[[By, Instant | None], Mapping[tuple[str | int, ...], Sum]]
    ending: threading.Event = field(default_factory=threading.Event)
    began: Instant = _NOT_BEGUN


# The last argument: only say what would be done.
Task = Callable[[Koalad, Maintenance, bool], Outcome]
