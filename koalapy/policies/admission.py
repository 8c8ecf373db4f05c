"""How many sweeps may be active at once, so that each makes progress (CCGrid 2009, section 5.3, and its future work).

An admission policy is `(state) -> how many waiting sweeps to admit now`, the first of them first. An active sweep
never returns to the waiting ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

from koalapy.model.counts import counted_as


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionState:
    """The runners, in nodes.

    `active`, `waiting`: the nodes that each active and each waiting runner can use, the oldest first. `predicted`: the
    nodes that sweeps can expect to hold grid-wide, including those that they hold now. `most`: the maximum of active
    runners in the grid file; None: no maximum. `nodes_per_runner`: the nodes that a runner should have, as far as it
    can use them.
    """

    active: tuple[int, ...]
    waiting: tuple[int, ...]
    predicted: float
    most: int | None
    nodes_per_runner: int


AdmissionPolicy = Callable[[AdmissionState], int]


def by_hand(crowd: AdmissionState) -> int:
    """Admit up to the grid file's maximum."""
    return len(crowd.waiting) if crowd.most is None else max(0, min(len(crowd.waiting), crowd.most - len(crowd.active)))


def dynamic(crowd: AdmissionState) -> int:
    """Admit as many as will have their nodes if the prediction holds, but at least one; never more than the maximum."""
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
    """Return the error in an answer, as the end of a sentence; '' if it is valid."""
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer <= len(crowd.waiting):
        return f"it admits {answer} of {counted_as(len(crowd.waiting), 'waiting sweep')}"
    return ""
