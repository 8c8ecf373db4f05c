"""The order in which a site delegates its requests, and the neighbour that it asks first (SC'07, section 4.4).

A delegation policy is `(request) -> sort key`: the request with the least key is delegated first. A target policy is
`(processors, targets, delegations) -> targets`, the best one first; it may omit some. `delegations` counts those of
the site so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from koalapy.policies import dispatching
from koalapy.policies.dispatching import DispatchingPolicy


class WaitingRequest(NamedTuple):
    """A waiting request: the processors that it wants, and its number in the order of arrival at this site."""

    processors: int
    arrival: int


class Target(NamedTuple):
    """A neighbour that may be asked. `distance`: 0 for a child, 1 for a sibling, 2 for the parent.

    `free`: the free processors that it last reported, less those that it was asked for since; None before a report.
    """

    site: str
    distance: int
    free: int | None


DelegationPolicy = Callable[[WaitingRequest], Any]
TargetPolicy = Callable[[int, Sequence[Target], int], Sequence[Target]]


def fcfs(request: WaitingRequest) -> int:
    """Delegate in the order of arrival."""
    return request.arrival


def smallest_first(request: WaitingRequest) -> tuple[int, int]:
    """Delegate the smallest request first, the older one among equals."""
    return request.processors, request.arrival


def nearest(processors: int, targets: Sequence[Target], delegations: int) -> Sequence[Target]:
    """Keep the load local (section 2.1): children come first, then siblings, then the parent.

    Among equals, the neighbour with most free processors comes first.
    """
    return sorted(_large_enough(processors, targets), key=lambda target: (target.distance, -_free(target)))


def most_free(processors: int, targets: Sequence[Target], delegations: int) -> Sequence[Target]:
    """Put the neighbour that reported most free processors first; those without a report come last."""
    return sorted(_large_enough(processors, targets), key=lambda target: -_free(target))


def best_fit(processors: int, targets: Sequence[Target], delegations: int) -> Sequence[Target]:
    """Put the neighbour that would keep the fewest free processors first; those without a report come last."""
    return sorted(_large_enough(processors, targets), key=lambda target: (target.free is None, _free(target)))


def round_robin(processors: int, targets: Sequence[Target], delegations: int) -> Sequence[Target]:
    """Ask the neighbours that are large enough in turn."""
    begin = delegations % len(targets) if targets else 0
    return _large_enough(processors, [*targets[begin:], *targets[:begin]])


def _large_enough(processors: int, targets: Sequence[Target]) -> list[Target]:
    """Drop the targets that are known to have too few processors: asking them would only cost time."""
    return [target for target in targets if target.free is None or target.free >= processors]


def _free(target: Target) -> int:
    return -1 if target.free is None else target.free


@dataclass(frozen=True, slots=True)
class SitePolicies:
    """The order of delegation, the order of the neighbours that are asked, and the order in which theirs are served."""

    delegation: DelegationPolicy = fcfs
    targets: TargetPolicy = nearest
    dispatching: DispatchingPolicy = dispatching.fcfs
