"""First signs after koalad's start: the first sign of each attempt that was live then goes into the history."""

from koalapy.core.core import Core
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    BatchStatusSeen,
    Event,
    NeighbourMessage,
    WrapperReported,
)
from koalapy.model.history import HistoryKind
from koalapy.model.states import BatchState
from koalapy.model.units import Instant


def note(core: Core, now: Instant, event: Event | NeighbourMessage) -> None:
    """Note the first sign of an attempt in its job's history, with its former and its present state.

    This must be called before the event's reactions.
    """
    if not isinstance(event, _SIGNS) or event.attempt not in core.silent:
        return
    if isinstance(event, WrapperReported):
        _found(core, now, event, event.phase, "wrapper")
    elif isinstance(event, BatchStatusSeen) and event.state is not BatchState.MISSING:
        _found(core, now, event, event.state, "batch system")
    elif not isinstance(event, BatchStatusSeen):
        del core.silent[event.attempt]


def _found(core: Core, now: Instant, event: WrapperReported | BatchStatusSeen, found: str, by: str) -> None:
    del core.silent[event.attempt]
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.let_go:
        return
    core.records.note_attempt(
        now, attempt.id, attempt.cluster, HistoryKind.ATTEMPT_FOUND,
        batch_id=event.batch_id or attempt.batch_id, found=found, by=by, was=str(attempt.ending or attempt.state),
    )  # fmt: skip


_SIGNS = (WrapperReported, BatchStatusSeen, AttemptSubmitted, AttemptCleanedUp)
