"""The line of files: when to look at the message file box, and what that means. See message_files.

It does nothing itself: `perform(act, then)` is to call `act` where it may block, one after the other, and then `then`
with what that returned, where everything else happens too.
"""

from typing import Any, Callable, List, Optional

from koalapy_adapters import message_files
from koalapy_adapters.channel import Keys
from koalapy_adapters.clock import SECOND
from koalapy_adapters.wrapper.relay.file_client import Exchanged, FileRelayClient
from koalapy_adapters.wrapper.relay.transport import Transport, TransportListener

AWAITED, IDLE = SECOND, 2 * SECOND  # the longest between two looks, while something waits for what comes and else
PATIENCE = 75 * SECOND  # with an answer: an attribute cache may hide a file for a minute

Perform = Callable[[Callable[[], Any], Callable[[Any], None]], None]


class FileTransport(Transport):
    """At most one visit at a time. `tick` at `next_wakeup` or later."""

    def __init__(
        self, box: FileRelayClient, perform: Perform, listener: TransportListener, clock: Callable[[], int]
    ) -> None:
        self._box, self._perform, self._listener, self._clock = box, perform, listener, clock
        self._directory = ""
        self._session = 0  # how many there were; what was begun for an earlier one is of no use
        self._open = False
        self._looking = False
        self._waiting: List[Any] = []
        self._moved_at = 0  # when a message file came or went last
        self._look_at: Optional[int] = None
        self._awaited = True

    def open_session(self, directory: str) -> None:
        """-> connected; then the visit must `begin`"""
        self._session, self._open, self._waiting = self._session + 1, True, []
        self._directory, self._moved_at, self._look_at = directory, self._clock(), None
        self._listener.connected(directory, PATIENCE)

    def write(self, message: Any) -> None:
        """Write with what waits for the visit that is under way, or at once."""
        if self._open:
            self._waiting.append(message)
            self._look_at = self._clock()

    def begin(self, hello: List[Any]) -> None:
        """-> broken if there is no such directory"""
        session, directory = self._session, self._directory

        def opened(done: bool) -> None:
            if session == self._session and self._open:
                self._look_at = self._next_look()
                if not done:
                    self._listener.broken()

        self._perform(lambda: self._box.open_session(directory, hello), opened)

    def secure(self, keys: Keys) -> None:
        """Do nothing: the file system decides who may read and write these files."""

    def expect(self, awaited: bool) -> None:
        """Return whether something waits for what comes next."""
        self._awaited = awaited
        if self._look_at is not None:
            self._look_at = min(self._look_at, self._next_look())

    def next_wakeup(self) -> Optional[int]:
        return self._look_at if self._open and not self._looking else None

    def tick(self, now: int) -> None:
        due = self.next_wakeup()
        if due is not None and now >= due:
            self._look()

    def drop(self) -> None:
        """End the session; no event of it is reported any more."""
        self._open, self._look_at = False, None

    def leave(self, left: Callable[[], None] = lambda: None) -> None:
        """Write what waits, and let the KCM see that nothing more comes; then call `left`, where it was done."""
        waiting, self._waiting, self._open = self._waiting, [], False

        def leave() -> None:
            self._box.leave(waiting)
            left()

        self._perform(leave, lambda done: None)

    def _look(self) -> None:
        session, waiting = self._session, self._waiting
        self._waiting, self._looking, self._look_at = [], True, None
        self._perform(lambda: self._box.exchange(waiting), lambda done: self._looked(session, done))

    def _looked(self, session: int, done: Exchanged) -> None:
        self._looking = False
        if session != self._session or not self._open:
            return
        if done.received or done.sent:
            self._moved_at = self._clock()
        self._look_at = self._clock() if self._waiting else self._next_look()
        if done.sign:
            self._listener.arrived()
        for message in done.received:
            if self._open:
                self._listener.received(message)
        if done.ended and self._open:
            self._listener.broken()

    def _next_look(self) -> int:
        now = self._clock()
        return now + message_files.pause(now - self._moved_at, AWAITED if self._awaited else IDLE)
