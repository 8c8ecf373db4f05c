"""A job of a trace, as the replay submits it."""

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
