"""The outcome of one job of a trace in a replay."""

from dataclasses import dataclass

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.units import Duration


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Times count from the trace's beginning; None: it never started. `number` is the trace's.

    `places`: (cluster, processors) of each component; none of a job that never started, whose `reason` says why.
    `requested` is its walltime, by which it was `killed` if that is so.
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
