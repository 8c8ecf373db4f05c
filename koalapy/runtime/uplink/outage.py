"""Notices that a network was cut and is back, while the connection over it still waits to say its next word.

TCP repeats what was not heard ever more seldom: after ten seconds without a network the next try may be ten seconds
away. So the way is looked at as soon as a session falls silent, and a new one is begun when the way, having been gone,
is open again.
"""

import threading
from collections.abc import Callable

from koalapy_adapters.connections.protocol import Connection, Remembering

from koalapy.model.errors import Reason

SILENT_S = 6.5  # longer than a ping and its answer take
_LOOK_S = 0.5
_PROBE_S = 3.0
_REVIVAL_S = 0.5  # for the old connection to speak, once the way is open
_BACK = Reason(
    "network_cut",
    "transient",
    "The network was cut, and the connection did not outlive it.",
    "koalad connects again by itself.",
)


class OutageWatch:
    """Of one session; a context. `silent` gives the seconds since its last word, `end` ends it.

    A session whose login a person had to answer for is left to revive by itself: another login would ask again.
    """

    def __init__(self, connection: Connection, silent: Callable[[], float], end: Callable[[Reason], None]) -> None:
        self._silent, self._end = silent, end
        self._over = threading.Event()
        self._connection = connection if isinstance(connection, Remembering) and not connection.asked else None
        self._thread = threading.Thread(target=self._run, name="outage", daemon=True)

    def __enter__(self) -> "OutageWatch":
        if self._connection is not None:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()

    def _run(self) -> None:
        assert self._connection is not None
        looked = False  # at this silence, and it was not the network
        while not self._over.wait(_LOOK_S):
            if self._silent() < SILENT_S:
                looked = False
            elif not looked:
                looked = not self._cut(self._connection) or self._revived()
                if not looked:
                    return self._end(_BACK)
        return None

    def _cut(self, connection: Remembering) -> bool:
        """Whether the way is gone. Blocks until it is back, or something is heard."""
        found = gone = connection.reachable(_PROBE_S) is False
        while gone and not self._over.wait(_LOOK_S) and self._silent() >= SILENT_S:
            gone = connection.reachable(_PROBE_S) is False
        return found

    def _revived(self) -> bool:
        return self._over.wait(_REVIVAL_S) or self._silent() < SILENT_S
