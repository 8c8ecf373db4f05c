"""The outcome of one job of a trace in a replay."""

from dataclasses import dataclass

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.units import Duration


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
