"""Queueing policies decide which jobs may pass which in the wait queue.

A queueing policy is `(blocked, max_overtakes) -> may the next job be tried?`. `blocked` are the jobs nearer to the head
that do not fit now, the first waiting one first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koalapy.model.fast_frozen import fast_frozen


@fast_frozen
@dataclass(frozen=True, slots=True)
class Blocked:
    """A waiting job that does not fit, and how often others passed it while it was the first to wait."""

    job: int
    overtaken: int


QueueingPolicy = Callable[[Sequence[Blocked], int], bool]


def fcfs(blocked: Sequence[Blocked], max_overtakes: int) -> bool:
    """First Come First Served: no job passes another (DCS, section 2.4)."""
    return not blocked


def fpfs(blocked: Sequence[Blocked], max_overtakes: int) -> bool:
    """Fit Processors First Served (DCS, section 2.4), with the bound against starvation that the paper suggests.

    The first waiting job is passed at most `max_overtakes` times; at the limit nothing passes it.
    """
    return not blocked or blocked[0].overtaken < max_overtakes
