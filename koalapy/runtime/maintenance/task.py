"""The argument and the result of a maintenance task. Tasks are entry points of the group `koalapy.maintenance`."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from koalapy.config.maintenance import Maintenance
from koalapy.engine import Engine
from koalapy.model.ended_lease import Charged
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
    """The result of a run, in sentences. `well`: whether no person has to act on it."""

    well: bool
    message: str


class Ask(Protocol):
    """A question to the engine between two batches. Raises KoalaError."""

    def __call__(self, question: Callable[[Engine], T]) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Koalad:
    """The koalad that is maintained, for a task's thread. All calls block and raise KoalaError.

    `do` returns once its events are committed. `submit` takes a job file and a key. `ending`: koalad is about to end,
    and a task that can continue later has to return soon. `usage`, `charges`: sums since an instant. `began`: when this
    run began, or the run that it continues. `examine`: the quick part of the doctor's examination, until an event is
    set; it returns sentences on what is wrong, by cluster.
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
    charges: Callable[[Instant | None], Mapping[str, Charged]]
    ending: threading.Event = field(default_factory=threading.Event)
    began: Instant = _NOT_BEGUN


# The last argument is true for a dry run.
Task = Callable[[Koalad, Maintenance, bool], Outcome]
