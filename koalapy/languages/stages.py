"""The order of the jobs in a multistage request ("Flow-based Multistage Co-allocation Service", section 6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True, slots=True)
class Stage:
    """A multistage request. `parts`: its stages, and the places of its jobs in the whole request, from 0."""

    parts: tuple[Union["Stage", int], ...]


def implicit_order(whole: Stage) -> dict[int, tuple[int, ...]]:
    """Return the jobs for which each job waits by its place in the tree (section 6.1).

    In each stage the stages inside it run first, together. When all that is in them is done, the jobs of the stage
    itself start together. Only those of each inner stage are named that end last: they wait for the others.
    """
    after: dict[int, tuple[int, ...]] = {}
    _order(whole, after)
    return after


def _order(stage: Stage, after: dict[int, tuple[int, ...]]) -> Sequence[int]:
    """Enter the order of a stage. Returns the jobs after whose end it has ended."""
    below = [last for part in stage.parts if isinstance(part, Stage) for last in _order(part, after)]
    own = [part for part in stage.parts if not isinstance(part, Stage)]
    for place in own:
        after[place] = tuple(below)
    return own or below
