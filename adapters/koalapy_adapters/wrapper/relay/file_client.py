"""The wrapper's side of a visit to its KCM's directory, as operations on files. See message_files."""

from typing import Any, List, NamedTuple, Optional

from koalapy_adapters import layout, message_files
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.messages.relay import Heartbeat

MAX_WAITING = 1 << 25  # bytes that a full disk may leave unwritten


class Exchanged(NamedTuple):
    """The result of one exchange. `sign`: the KCM lives; `sent`: something was written; `ended`: so has the visit."""

    received: List[Any] = []  # as JSON
    sign: bool = False
    sent: bool = False
    ended: bool = False


class FileRelayClient:
    """One attempt's. Its methods block as long as the shared directory does, and raise nothing."""

    def __init__(self, attempt: str, tag: str, files: Files = DISK) -> None:
        self._box, self._tag, self._files = layout.inside(attempt, "post"), tag, files
        self._directory = ""
        self._session: Optional[message_files.FileSession] = None
        self._beat = 0
        self._alive = 0.0

    def open_session(self, directory: str, hello: List[Any]) -> bool:
        """Begin a visit to this directory with these messages; whether its KCM can find them."""
        self._tidy()
        session = message_files.FileSession(self._tag, self._files.unpredictable(8))
        self._directory, self._session, self._beat, self._alive = directory, session, 0, 0.0
        self._out = message_files.Outgoing(
            lambda number: self._at(message_files.message_name(session, number)), self._files
        )
        self._in = message_files.Incoming(
            lambda number: layout.inside(self._box, message_files.reply_name(session, number)), self._files
        )
        try:
            self._files.make(self._box)
            message_files.write(
                self._at(message_files.hello_name(session, 0)),
                [message_files.as_text(message) for message in hello],
                self._files,
            )
        except OSError:
            return False
        return True

    def exchange(self, messages: List[Any]) -> Exchanged:
        """Write what waits and these, and take what has come."""
        try:
            return self._exchange(messages)
        except (FileNotFoundError, message_files.MessageFileError):
            return Exchanged(ended=True)  # the KCM is gone, or has hung up
        except OSError:
            return Exchanged()  # it is tried again, until the silence has been too long

    def leave(self, messages: List[Any]) -> None:
        """Write what waits and these, and end the visit."""
        if self._session is not None:
            self.exchange(messages)
            self._tidy()

    def _tidy(self) -> None:
        """Remove what is left of the last visit: for its KCM that is the end of it."""
        session, self._session = self._session, None
        if session is None:
            return
        message_files.discard(self._at(message_files.hello_name(session, self._beat)), self._files)
        try:
            left = message_files.reply_numbers(self._files.names(self._box), session)
        except OSError:
            return
        for number in left:
            message_files.discard(layout.inside(self._box, message_files.reply_name(session, number)), self._files)

    def _exchange(self, messages: List[Any]) -> Exchanged:
        assert self._session is not None
        for message in messages:
            if not isinstance(message, Heartbeat):
                self._out.put(message)
        sign = self._sees_life()
        if Heartbeat() in messages:
            self._show_life(self._session)
        sent = self._flush()
        received = self._in.take(message_files.reply_numbers(self._files.names(self._box), self._session))
        return Exchanged(received, sign or bool(received), sent, self._out.size > MAX_WAITING)

    def _flush(self) -> bool:
        try:
            return self._out.flush()
        except OSError:
            if self._files.exists(self._directory):
                return False  # the disk is full, or slow
            raise

    def _sees_life(self) -> bool:
        """Return whether the KCM has beaten since the last look.

        A file that is opened is one whose times are known anew.
        """
        path = self._at(message_files.ALIVE)
        self._files.read(path)
        before, self._alive = self._alive, self._files.modified(path)
        return self._alive != before

    def _show_life(self, session: message_files.FileSession) -> None:
        self._files.rename(
            self._at(message_files.hello_name(session, self._beat)),
            self._at(message_files.hello_name(session, self._beat + 1)),
        )
        self._beat += 1

    def _at(self, name: str) -> str:
        return layout.inside(self._directory, name)
