"""How many of a cluster's nodes sweeps may hold: the cluster's own notion of idleness (CCGrid 2009, section 2.1).

An idleness policy is `(nodes) -> number`. While the answer is at most what sweeps hold, they do not grow there; nodes
beyond it are reclaimed. If the answer is an `Allowance`, `koala explain` shows its reason.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from koalapy.model.cluster import Scavenge
from koalapy.model.counts import counted_as
from koalapy.model.units import Duration, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNodes:
    """A cluster as an idleness policy sees it, in nodes.

    `total`: all nodes; `idle`: wholly free and not committed; `held`: those of sweeps. `waiting` counts others' jobs
    that wait for resources. `utc_offset`: how far the local time of koalad's host is ahead of UTC now.
    """

    total: int
    idle: int
    held: int
    waiting: int
    now: Instant
    utc_offset: Duration
    rules: Scavenge


IdlenessPolicy = Callable[[ClusterNodes], int]


class Allowance(int):
    """A number of nodes, and `why` not more, as the end of a sentence; '' for no reason."""

    why: str

    def __new__(cls, nodes: int, why: str = "") -> Self:
        found = super().__new__(cls, nodes)
        found.why = why
        return found


def cluster_rules(sight: ClusterNodes) -> int:
    """Apply the cluster's rules in the grid file: hours, idle share, and maximum of nodes.

    Outside the hours, sweeps may hold no node. A share that is no longer idle, or a waiting local job, stops growth
    only: the nodes that the job lacks are reclaimed separately. Nodes of sweeps count as idle.
    """
    rules = sight.rules
    there, most = sight.idle + sight.held, rules.max_nodes
    if rules.hours is not None and not rules.hours.include(sight.now, sight.utc_offset):
        return Allowance(0, f"sweeps may have nodes there at other hours only ({rules.hours.text})")
    if sight.waiting:
        found = Allowance(sight.held, _WAITING)
    elif there < rules.idle_share * sight.total:
        found_there = f"{there} of its {counted_as(sight.total, 'node')} {'is' if there == 1 else 'are'}"
        share = f"{found_there} idle or with sweeps, and {rules.idle_share:.0%} must be"
        found = Allowance(sight.held, share)
    else:
        found = Allowance(there)
    return found if most is None or found < most else Allowance(most, f"sweeps may hold {most} of its nodes, no more")


def any_idle(sight: ClusterNodes) -> int:
    """Allow all idle nodes while no local job waits."""
    return Allowance(sight.held, _WAITING) if sight.waiting else sight.held + sight.idle


_WAITING = "others' jobs wait for its nodes"


def allowance_error(answer: int, sight: ClusterNodes) -> str:
    """Return the error in an answer, as the end of a sentence; '' if it is valid."""
    if not isinstance(answer, int) or isinstance(answer, bool) or answer < 0:
        return f"it allows {counted_as(answer, 'node')}"
    there = sight.idle + sight.held
    return f"it allows {counted_as(answer, 'node')}, of {there}" if answer > there else ""
