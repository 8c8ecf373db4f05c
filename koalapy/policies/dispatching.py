"""The order in which a site serves the requests of its neighbours (SC'07, section 4.4).

A dispatching policy is `(request) -> sort key`: the request with the least key is served first.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class NeighboursRequest(NamedTuple):
    """A request of a neighbour: the processors that it wants, and its number in the order of arrival.

    `lent`: the processors that its neighbour has of this site now.
    """

    processors: int
    arrival: int
    neighbour: str
    lent: int


DispatchingPolicy = Callable[[NeighboursRequest], Any]


def fcfs(request: NeighboursRequest) -> int:
    """Serve in the order of arrival."""
    return request.arrival


def smallest_first(request: NeighboursRequest) -> tuple[int, int]:
    """Serve the smallest request first, the older one among equals."""
    return request.processors, request.arrival


def fewest_lent_first(request: NeighboursRequest) -> tuple[int, int]:
    """Serve the neighbour first that has the fewest processors now, the older request among equals."""
    return request.lent, request.arrival
