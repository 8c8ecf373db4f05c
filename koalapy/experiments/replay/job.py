"""A job of a trace: as the replay submits it, why it cannot, and what became of it."""

from dataclasses import dataclass

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.request import DEFAULT_PRIORITY, WhenBusy
from koalapy.model.units import Duration


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
    `requested` is its walltime; `killed`: whether the job was ended at its walltime.
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
    reason: str = ""
