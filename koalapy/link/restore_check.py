"""Check whether a cluster knows more of a store than the store: it was restored from a backup, or is in use twice.

A KCM reports the highest number of a Submit that its cluster has ever received. If it is refused, it also reports the
epoch of the KCM that has replaced it. Both are written to the cluster's shared directory before they are acted on.
"""

from dataclasses import dataclass
from enum import Enum

from koalapy_adapters.messages.kcm import Welcome

from koalapy.model.errors import Reason
from koalapy.model.events import StoreRestored

CONNECTS = 1 << 32  # the epochs of one koalad's KCMs, so that the next koalad's are higher
MOST_AHEAD = 10**9  # numbers of the outbox that a cluster may know of, and a restored store not
MOST_EPOCHS_AHEAD = 10**6  # starts of koalad, likewise
NUMBERS_AHEAD = 1_000_000  # of the outbox: beyond what this cluster has received, what others may have


class Verdict(Enum):
    FINE = "fine"
    AGAIN = "again"  # to be connected anew, once the jump of its epoch is committed
    IMPOSSIBLE = "impossible"  # its report cannot be true of any cluster: it is not used
    REPLACED = "replaced"  # another koalad of this store is at work on the cluster


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    `restored`: an event for the driver; call `RestoreCheck.committed` once it is committed.
    """

    verdict: Verdict
    restored: StoreRestored | None = None


REPLACED = Reason(
    "replaced",
    "request",
    "Another koalad with this store, or with a copy of it, has taken this cluster over.",
    "End one of the two with `koala down`; a koalad that is started takes its clusters.",
)
IMPOSSIBLE = Reason(
    "impossible_number",
    "ours",
    "The cluster reports more commands, or more koalads, than there can have been.",
    "Its reports are not used. Look at watermark.* and relay.* in its shared directory, and at who wrote them.",
)
_RESTORED = Reason(
    "store_restored",
    "transient",
    "The cluster knows more of this store than the store itself: the store was restored from a backup, or another "
    "koalad used a copy of it.",
    "koalad connects again by itself, and looks for what ran since.",
)
REFUSALS = {Verdict.REPLACED: REPLACED, Verdict.IMPOSSIBLE: IMPOSSIBLE, Verdict.AGAIN: _RESTORED}


def is_stale(message: Welcome) -> bool:
    """Return whether the KCM ends at once, since a newer one is at work on the cluster."""
    return message.error is not None and message.error.get("code") == "stale"


def trust(session: int, welcome: Welcome) -> Verdict:
    """Return FINE, or REPLACED if a newer koalad has replaced this one; nothing else is checked."""
    return Verdict.REPLACED if is_stale(welcome) else Verdict.FINE


class RestoreCheck:
    """The check of one koalad process, which began with this epoch and last number of its store."""

    def __init__(self, epoch: int, last_number: int) -> None:
        self._epoch, self._last_number = epoch, last_number
        self._checked: set[str] = set()
        self._pending = self._has_jumped = False

    def judge(self, cluster: str, session: int, welcome: Welcome) -> CheckResult:
        """Check the Welcome of the session of this epoch. A cluster that passed is checked for replacement only."""
        stale = is_stale(welcome)
        if cluster in self._checked:
            return CheckResult(Verdict.REPLACED if stale else Verdict.FINE)
        number = welcome.newest_number
        too_many = number is not None and number > self._last_number + MOST_AHEAD
        if too_many or welcome.newest_epoch // CONNECTS > self._epoch + MOST_EPOCHS_AHEAD:
            return CheckResult(Verdict.IMPOSSIBLE)
        if not stale and (number is None or number <= self._last_number):
            if number is not None:
                self._checked.add(cluster)
            return CheckResult(Verdict.FINE)
        if session < self._epoch * CONNECTS or self._pending:
            return CheckResult(Verdict.AGAIN)
        if not stale and self._has_jumped:
            self._checked.add(cluster)
            return CheckResult(Verdict.FINE)
        self._pending = True
        epoch = max(self._epoch, welcome.newest_epoch // CONNECTS) + 1
        last_number = max(self._last_number, number or 0) + NUMBERS_AHEAD
        return CheckResult(Verdict.AGAIN, StoreRestored(epoch=epoch, last_number=last_number))

    def committed(self, restored: StoreRestored) -> None:
        """Go on from the committed jump: later sessions have epochs of the new one."""
        self._epoch, self._pending, self._has_jumped = restored.epoch, False, True
