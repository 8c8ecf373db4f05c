"""What a site delegates first, and to which neighbour (SC'07, section 4.4).

A delegation policy is `(wait) -> anything that sorts`: the request with the least is delegated first. A target policy
is `(processors, targets, turn) -> targets`, the best one first; it may leave some out. `turn` counts the site's
delegations.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Wait(NamedTuple):
    """A waiting request: the processors that it wants, and its place in the order of arrival at this site."""

    processors: int
    place: int


class Target(NamedTuple):
    """A neighbour that may be asked. `distance`: 0 for a child, 1 for a sibling, 2 for the parent.

    `free`: the processors that it last said could be had through it, but for those that it was asked for since; None if
    it never said.
    """

    site: str
    distance: int
    free: int | None


DelegationPolicy = Callable[[Wait], Any]
TargetPolicy = Callable[[int, Sequence[Target], int], Sequence[Target]]


def fcfs(wait: Wait) -> int:
    """Who came first."""
    return wait.place


def smallest_first(wait: Wait) -> tuple[int, int]:
    return wait.processors, wait.place


def nearest(processors: int, targets: Sequence[Target], turn: int) -> Sequence[Target]:
    """Keep the load local (section 2.1): down, then beside, then up; among equals the one with most free."""
    return sorted(_roomy(processors, targets), key=lambda target: (target.distance, -_free(target)))


def most_free(processors: int, targets: Sequence[Target], turn: int) -> Sequence[Target]:
    return sorted(_roomy(processors, targets), key=lambda target: -_free(target))


def best_fit(processors: int, targets: Sequence[Target], turn: int) -> Sequence[Target]:
    """The one where least would be left; those that never said come last."""
    return sorted(_roomy(processors, targets), key=lambda target: (target.free is None, _free(target)))


def round_robin(processors: int, targets: Sequence[Target], turn: int) -> Sequence[Target]:
    begin = turn % len(targets) if targets else 0
    return _roomy(processors, [*targets[begin:], *targets[:begin]])


def _roomy(processors: int, targets: Sequence[Target]) -> list[Target]:
    """Without those that are known to have too little: to ask them would only cost time."""
    return [target for target in targets if target.free is None or target.free >= processors]


def _free(target: Target) -> int:
    return -1 if target.free is None else target.free
