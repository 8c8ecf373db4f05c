"""How many sweeps may be active at once, so that each gets on (CCGrid 2009, section 5.3, and its future work).

An admission policy is `(crowd) -> how many of the waiting ones to admit now`, the first of them first. Nobody who is
active is sent back.
"""

from collections.abc import Callable
from dataclasses import dataclass

from koalapy.model.counts import counted_as


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionState:
    """`active`, `waiting`: the nodes that each active and each waiting runner has a use for, the oldest first.

    `predicted`: the nodes that sweeps can expect to hold grid-wide in the time to come, what they hold now included.
    `most`: runners at once, as the grid file says; None: no bound. `nodes_per_runner`: what a runner should have, as
    far as it has a use for it.
    """

    active: tuple[int, ...]
    waiting: tuple[int, ...]
    predicted: float
    most: int | None
    nodes_per_runner: int


AdmissionPolicy = Callable[[AdmissionState], int]


def by_hand(crowd: AdmissionState) -> int:
    """No more than the grid file's maximum."""
    return len(crowd.waiting) if crowd.most is None else max(0, min(len(crowd.waiting), crowd.most - len(crowd.active)))


def dynamic(crowd: AdmissionState) -> int:
    """As many as will have their nodes if the prediction holds, one at least; never more than the maximum."""
    admitted = 0
    taken = sum(min(wants, crowd.nodes_per_runner) for wants in crowd.active)
    for wants in crowd.waiting[: by_hand(crowd)]:
        taken += min(wants, crowd.nodes_per_runner)
        alone = not crowd.active and not admitted
        if taken > crowd.predicted and not alone:
            break
        admitted += 1
    return admitted


def admission_error(answer: int, crowd: AdmissionState) -> str:
    """What is wrong with an answer, as the end of a sentence; '' if nothing is."""
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer <= len(crowd.waiting):
        return f"it admits {answer} of {counted_as(len(crowd.waiting), 'waiting sweep')}"
    return ""
