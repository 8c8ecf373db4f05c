"""The origin of events: a cluster's reports on attempts of other clusters are dropped and counted."""

from typing import get_args

from koalapy.core.core import Core
from koalapy.model.attempt import OwnerKind
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptStuck,
    AttemptSubmitted,
    BatchStatusSeen,
    Event,
    LaunchersSeen,
    LauncherSuspected,
    MessageReceived,
    NeighbourEvent,
    NeighbourMessage,
    ParametersEnded,
    SubmissionFailed,
    WrapperReported,
)
from koalapy.model.identity import AttemptId
from koalapy.model.records import Records

OfAttempt = (
    AttemptSubmitted
    | SubmissionFailed
    | BatchStatusSeen
    | WrapperReported
    | AttemptCleanedUp
    | AttemptStuck
    | LauncherSuspected
)
_OF_ATTEMPT, _OF_NEIGHBOUR = frozenset(get_args(OfAttempt)), frozenset(get_args(NeighbourEvent))


def own_part(core: Core, event: Event) -> Event | NeighbourMessage | None:
    """Return the event without reports on other clusters' attempts, or a neighbour's message; None if nothing is left.

    A report on an attempt of which no record is kept is let through. A cluster that has left the grid, whose link may
    still deliver, reports nothing; nor does a site that is no neighbour any more. A neighbour's message that was
    committed before is dropped.
    """
    kind = type(event)
    if kind in _OF_NEIGHBOUR:
        if not core.neighbours.takes(event):  # type: ignore[arg-type]
            return None
        return event.message if isinstance(event, MessageReceived) else event
    cluster = getattr(event, "cluster", "")
    if cluster and cluster not in core.information.clusters:
        return None
    if kind in _OF_ATTEMPT:
        attempt = core.records.attempt_or_pending_cancel(event.attempt)  # type: ignore[union-attr]
        if attempt is None or attempt.cluster == cluster:
            return event
        core.foreign.note(cluster, f"{kind.__name__} of attempt {attempt.id}")
        return None
    if isinstance(event, ParametersEnded):
        return event if _may_end(core, event) else None
    if isinstance(event, LaunchersSeen):
        own = tuple(each for each in event.launchers if _may(core, event.cluster, each[0], "LaunchersSeen"))
        return event if len(own) == len(event.launchers) else LaunchersSeen(cluster=event.cluster, launchers=own)
    return event


def _may_end(core: Core, event: ParametersEnded) -> bool:
    """Return whether the results may be accepted: only the sweep's Launchers on this cluster run its parameters."""
    if not _may(core, event.cluster, event.attempt, "ParametersEnded"):
        return False
    found = core.records.attempt(event.attempt)
    if found is None or found.owner == (OwnerKind.SWEEP, event.sweep):
        return True
    core.foreign.note(event.cluster, f"ParametersEnded of sweep {event.sweep} by attempt {event.attempt}")
    return False


def _may(core: Core, cluster: str, attempt: AttemptId, what: str) -> bool:
    if is_elsewhere(core.records, cluster, attempt):
        core.foreign.note(cluster, f"{what} of attempt {attempt}")
        return False
    return True


def is_elsewhere(records: Records, cluster: str, attempt: AttemptId) -> bool:
    """Return whether the attempt is known to be on another cluster."""
    found = records.attempt_or_pending_cancel(attempt)
    return found is not None and found.cluster != cluster
