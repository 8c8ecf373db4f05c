"""A job of a trace, as it is submitted once more."""

from dataclasses import dataclass

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.request import DEFAULT_PRIORITY, WhenBusy
from koalapy.model.units import Duration


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """`submitted` counts from the trace's beginning. `components`: (processors, the cluster that it names or None).

    `runtime` is how long its program runs on any cluster, if `walltime` lets it. `when_busy`, `priority`: see Request;
    what waits goes by the grid's queueing policy alone, without the batch systems' queues. `waited`: how long it
    waited on the system of the trace, None if the trace does not say; for comparison only.
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
        return sum(processors for processors, _ in self.components)
