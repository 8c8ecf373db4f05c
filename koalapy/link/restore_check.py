"""Whether a cluster knows more of our store than the store does: then it was restored from a backup, or is another's.

A KCM tells the highest number of a Submit that its cluster has ever heard, and, where it is refused, the epoch of the
KCM that has replaced it. Both are written down before they are acted on, in the cluster's shared directory.
"""

from dataclasses import dataclass
from enum import Enum

from koalapy_adapters.messages import Welcome

from koalapy.link.conversation import is_stale
from koalapy.model.errors import Reason
from koalapy.model.events import StoreRestored

CONNECTS = 1 << 32  # the epochs of one koalad's KCMs, so that the next koalad's are higher
MOST_AHEAD = 10**9  # numbers of the outbox that a cluster may know of, and a restored store not
MOST_EPOCHS_AHEAD = 10**6  # starts of koalad, likewise
NUMBERS_AHEAD = 1_000_000  # of the outbox: beyond what this cluster has heard, what others may have


class Verdict(Enum):
    FINE = "fine"
    AGAIN = "again"  # to be connected anew, once the store has leapt
    IMPOSSIBLE = "impossible"  # what it says cannot be true of any cluster: it is not to be believed
    REPLACED = "replaced"  # another koalad of this store is at work on the cluster


@dataclass(frozen=True, slots=True)
class Judgement:
    """`restored` is to be told to the driver, and `Vetting.leapt` once that is committed."""

    verdict: Verdict
    restored: StoreRestored | None = None


def trust(session: int, welcome: Welcome) -> Verdict:
    """Check no more than whether a newer koalad has replaced this one."""
    return Verdict.REPLACED if is_stale(welcome) else Verdict.FINE


IMPOSSIBLE = Reason(
    "impossible_number",
    "ours",
    "The cluster says that it was sent more commands, or by more koalads, than there can have been.",
    "Nothing it says is believed. Look at heard.* and relay.* in its shared directory, and at who wrote them.",
)


class Vetting:
    """Of one koalad's life, which began with this epoch and last number of its store."""

    def __init__(self, epoch: int, last_number: int) -> None:
        self._epoch, self._last_number = epoch, last_number
        self._vetted: set[str] = set()
        self._pending = self._has_leapt = False

    def judge(self, cluster: str, session: int, welcome: Welcome) -> Judgement:
        """`session` is the epoch of the KCM that says welcome. A cluster is vetted once in a life."""
        stale = is_stale(welcome)
        if cluster in self._vetted:
            return Judgement(Verdict.REPLACED if stale else Verdict.FINE)
        number = welcome.newest_number
        too_many = number is not None and number > self._last_number + MOST_AHEAD
        if too_many or welcome.newest_epoch // CONNECTS > self._epoch + MOST_EPOCHS_AHEAD:
            return Judgement(Verdict.IMPOSSIBLE)
        if not stale and (number is None or number <= self._last_number):
            if number is not None:
                self._vetted.add(cluster)
            return Judgement(Verdict.FINE)
        if session < self._epoch * CONNECTS or self._pending:
            return Judgement(Verdict.AGAIN)
        if not stale and self._has_leapt:
            self._vetted.add(cluster)
            return Judgement(Verdict.FINE)
        self._pending = True
        epoch = max(self._epoch, welcome.newest_epoch // CONNECTS) + 1
        last_number = max(self._last_number, number or 0) + NUMBERS_AHEAD
        return Judgement(Verdict.AGAIN, StoreRestored(epoch=epoch, last_number=last_number))

    def leapt(self, restored: StoreRestored) -> None:
        """It is committed: sessions that begin from now on have epochs of the new one."""
        self._epoch, self._pending, self._has_leapt = restored.epoch, False, True
