"""The counts of a link: requests both ways with their answers, and what a neighbour did that it should not."""

from collections.abc import Callable
from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.neighbour import LinkCounts, RequestCounts

_MOST_KINDS = 30  # of reasons that are distinguished, since a neighbour may make up any
_OTHER = "other"
# The reasons for which a session was lost that are the neighbour's doing.
_OF_SESSIONS = ("garbled", "too_many_messages", "other_name", "own_store", "quarantined")

FREE_WRONG = "free_wrong"
ENDED_EARLY = "ended_early"
NOT_RETURNED = "not_returned"
OVERCHARGED = "overcharged"
BAD_END = "bad_end"
TOO_LONG = "too_long"


def asked(core: Core, neighbour: str) -> None:
    """Count a request that this site makes of a neighbour."""
    _ours(core, neighbour, lambda before: replace(before, asked=before.asked + 1))


def granted(core: Core, neighbour: str) -> None:
    """Count a lease that a neighbour has offered."""
    _ours(core, neighbour, lambda before: replace(before, granted=before.granted + 1))


def refused(core: Core, neighbour: str, reason: Reason) -> None:
    """Count a request that a neighbour has refused, or has not answered in time."""
    _ours(core, neighbour, lambda before: _with_refusal(before, reason))


def asked_here(core: Core, neighbour: str) -> None:
    """Count a request of a neighbour."""
    _theirs(core, neighbour, lambda before: replace(before, asked=before.asked + 1))


def granted_here(core: Core, neighbour: str) -> None:
    """Count a lease that a neighbour is offered."""
    _theirs(core, neighbour, lambda before: replace(before, granted=before.granted + 1))


def refused_here(core: Core, neighbour: str, reason: Reason) -> None:
    """Count a request of a neighbour that is refused."""
    _theirs(core, neighbour, lambda before: _with_refusal(before, reason))


def misbehaved(core: Core, neighbour: str, kind: str) -> None:
    """Count what a neighbour should not have done."""
    counts = core.neighbours.records[neighbour].counts
    core.neighbours.change(neighbour, counts=replace(counts, misbehaved=_more(counts.misbehaved, kind)))


def session_lost(core: Core, neighbour: str, reason: Reason) -> None:
    """Count the end of a session that is the neighbour's doing."""
    if reason.code in _OF_SESSIONS and neighbour in core.neighbours.records:
        misbehaved(core, neighbour, reason.code)


def _ours(core: Core, neighbour: str, change: Callable[[RequestCounts], RequestCounts]) -> None:
    counts = core.neighbours.records[neighbour].counts
    _put(core, neighbour, replace(counts, ours=change(counts.ours)))


def _theirs(core: Core, neighbour: str, change: Callable[[RequestCounts], RequestCounts]) -> None:
    counts = core.neighbours.records[neighbour].counts
    _put(core, neighbour, replace(counts, theirs=change(counts.theirs)))


def _put(core: Core, neighbour: str, counts: LinkCounts) -> None:
    core.neighbours.change(neighbour, counts=counts)


def _with_refusal(before: RequestCounts, reason: Reason) -> RequestCounts:
    return replace(before, refused=_more(before.refused, reason.code), last_refusal=reason)


def _more(counts: tuple[tuple[str, int], ...], kind: str) -> tuple[tuple[str, int], ...]:
    """Return the counts with one more of this kind, sorted by kind."""
    found = dict(counts)
    key = kind if kind in found or len(found) < _MOST_KINDS else _OTHER
    found[key] = found.get(key, 0) + 1
    return tuple(sorted(found.items()))
