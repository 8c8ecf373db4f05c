"""Detect that a network was cut and is back, while the connection over it still waits to send its next bytes.

TCP repeats unacknowledged bytes ever more seldom: after ten seconds without a network, the next try may be ten seconds
away. So the network is probed as soon as a session falls silent. A new session is begun if the network was cut and is
back.
"""

from enum import Enum

from koalapy.model.errors import Reason
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant

SILENCE = Duration(6500 * MILLISECOND)  # longer than a ping and its answer take
BETWEEN_PROBES = Duration(SECOND // 2)
REVIVAL = Duration(SECOND // 2)  # for the old connection to bring something, once the way is open
NETWORK_CUT = Reason(
    "network_cut",
    "transient",
    "The network was cut, and the connection did not outlive it.",
    "koalad connects again by itself.",
)


class Next(Enum):
    """The action that an outage needs: a probe of the network, or a new session."""

    PROBE = "probe"
    RECONNECT = "reconnect"


class Outage:
    """The state of the network to one cluster during one session.

    If the first probe of a silence succeeds, no further probe is made in that silence: a head node that hangs is not to
    be burdened.
    """

    def __init__(self, now: Instant) -> None:
        self.received_at = now  # whenever anything comes, this is set
        self._silent_since: Instant | None = None  # the silence that the fields below are about
        self._due: Instant | None = None  # None: a probe is under way, or no more is to be done in this silence
        self._gone = self._reviving = False

    def next_wakeup(self) -> Instant | None:
        """Return when to call `wake`; None: not before another event."""
        return self._due if self._silent_since == self.received_at else Instant(self.received_at + SILENCE)

    def wake(self, now: Instant) -> Next | None:
        """Return the action that is due now; None if there is none."""
        due = self.next_wakeup()
        if due is None or now < due:
            return None
        if self._silent_since != self.received_at:
            self._silent_since, self._gone, self._reviving = self.received_at, False, False
        self._due = None
        return Next.RECONNECT if self._reviving else Next.PROBE

    def probed(self, now: Instant, reachable: bool | None) -> None:
        """Note the answer to a probe; None: it cannot be known."""
        if self._silent_since != self.received_at:
            return
        if reachable is False:
            self._gone, self._due = True, Instant(now + BETWEEN_PROBES)
        elif self._gone:
            self._reviving, self._due = True, Instant(now + REVIVAL)
