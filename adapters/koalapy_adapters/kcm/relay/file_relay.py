"""The KCM's side of `relay: files`: sessions with wrappers, as operations on files; see message_files.

One round looks at one list, however many wrappers visit, and reads only what is new in it.
"""

import asyncio
import errno
import os
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from koalapy_adapters import layout, message_files
from koalapy_adapters.clock import now
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.kcm.execution.threads import in_a_moment, in_thread
from koalapy_adapters.kcm.relay.authentication import Admitted, Authenticator, outcome
from koalapy_adapters.kcm.state.actions import SECOND, WrapperConnected, WrapperDisconnected
from koalapy_adapters.message_files import FileSession, MessageFileError, SessionFiles
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.fields import MessageError

BEAT, SILENCE = 10 * SECOND, 30 * SECOND
UNAUTHENTICATED = 120 * SECOND  # after which what nobody knocked for is thrown away
MAX_BACKLOG = 8 << 20  # bytes that a wrapper could not be written
_FULL = (errno.ENOSPC, errno.EDQUOT)


class RelayRemoved(Exception):
    """The directory was removed, by a newer KCM or by a purge of the shared directory."""


class Round(NamedTuple):
    """The machine's outcomes, in order; `moved`: a message file came or went."""

    outcomes: List[Any] = []
    moved: bool = False


class RelayDirectory(NamedTuple):
    """The directory's path, the attempts' directories by tag, and whom the KCM lets in.

    `is_dissolved`: whether this KCM itself removes all that its store has, the directory too.
    """

    path: str
    directory_of: Callable[[str], str]
    authenticator: Authenticator
    is_dissolved: Callable[[], bool]


class FileRelayServer:
    """One KCM's. Its methods block as long as the shared directory does; one of them at a time."""

    def __init__(self, directory: RelayDirectory, files: Files = DISK) -> None:
        self.path = directory.path
        self._directory, self._files = directory, files
        self._clients: Dict[str, _Client] = {}
        self._unauthenticated: Dict[FileSession, int] = {}  # those that have not knocked, since when
        self._left: Dict[FileSession, None] = {}  # those that were here, while anything of them is
        self._beat_at = 0
        self._is_open = self._blind = False

    def open(self) -> None:
        """Raises OSError."""
        self._files.make(self._directory.path)
        self._files.write(self._at(message_files.ALIVE), b"")
        self._is_open = True

    def round(self, now: int, sent: Sequence[Tuple[str, Any]]) -> Round:
        """Send messages to the wrappers, by tag, and read theirs. Raises Closed.

        Nothing that happens while the shared directory is out of reach counts as anybody's silence.
        """
        if not self._is_open:
            return Round()
        for tag, message in sent:
            if tag in self._clients:
                self._clients[tag].send(message)
        try:
            mail = message_files.by_session(self._files.names(self._directory.path))
            self._beat(now)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._is_removed():
                if self._directory.is_dissolved():
                    return Round()  # koalad still waits for the answer, and no wrapper is left
                raise RelayRemoved from error
            self._blind = True
            return Round()
        if self._blind:
            self._blind = False
            for client in self._clients.values():
                client.contact_at = now
        outcomes = self._receive_all(now, mail)
        outcomes += self._close_stale(now, mail)
        return Round(outcomes, self._flush() or bool(outcomes))

    def close(self) -> None:
        """Let the wrappers see that this KCM is gone."""
        message_files.discard(self._at(message_files.ALIVE), self._files)

    def _is_removed(self) -> bool:
        """Rather than out of reach with all that is around it, as where a file system is not mounted."""
        above, own_name = os.path.split(self.path)
        try:
            return own_name not in self._files.names(above) or message_files.ALIVE not in self._files.names(self.path)
        except OSError:
            return False

    # ---- who comes

    def _receive_all(self, now: int, mail: Dict[FileSession, SessionFiles]) -> List[Any]:
        outcomes: List[Any] = []
        for session, sent in mail.items():
            client = self._clients.get(session.tag)
            if client is not None and client.session == session:
                outcomes += self._receive(now, client, sent)
            elif session in self._left:
                self._discard_files(session, sent)
            elif sent.hello:
                outcomes += self._authenticate(now, session, sent)
            elif now - self._unauthenticated.setdefault(session, now) >= UNAUTHENTICATED:
                self._discard_files(session, sent)
        self._left = {session: None for session in self._left if session in mail}
        self._unauthenticated = {session: since for session, since in self._unauthenticated.items() if session in mail}
        return outcomes

    def _authenticate(self, now: int, session: FileSession, sent: SessionFiles) -> List[Any]:
        """Who is not let in learns nothing but that."""
        try:
            contents = message_files.read(self._at(sent.hello), self._files)
        except MessageFileError:
            contents = []
        except OSError:
            return []  # it is being renamed, or shows late
        admitted = self._directory.authenticator.admit_file(now, contents)
        if admitted is None or admitted.tag != session.tag:
            self._discard_files(session, sent)
            other = self._directory.authenticator.other_version(contents[0]) if contents else None
            return [other] if other is not None else []
        before = self._clients.get(session.tag)
        if before is not None:
            self._left[before.session] = None
        client = self._clients[session.tag] = _Client(session, admitted, self._directory, self._files, now)
        return [WrapperConnected(session.tag, admitted.clock), *self._receive(now, client, sent)]

    def _receive(self, now: int, client: "_Client", sent: SessionFiles) -> List[Any]:
        if sent.hello and sent.hello != client.hello:
            client.hello, client.contact_at = sent.hello, now
        client.missed = client.missed + 1 if not sent.hello else 0
        try:
            contents = client.incoming.take(sent.numbers)
            found = [outcome(client.session.tag, from_json(each)) for each in contents]
        except (MessageFileError, MessageError):
            return self._disconnect(client)
        if contents:
            client.contact_at = now
        return [each for each in found if each is not None]

    # ---- who goes

    def _close_stale(self, now: int, mail: Dict[FileSession, SessionFiles]) -> List[Any]:
        outcomes: List[Any] = []
        for client in list(self._clients.values()):
            if client.session not in mail:
                client.missed += 1
            if client.missed >= _SURELY:
                del self._clients[client.session.tag]
                self._left[client.session] = None
                outcomes.append(WrapperDisconnected(client.session.tag, closed=True))
            elif now - client.contact_at >= SILENCE or client.out.size > MAX_BACKLOG:
                outcomes += self._disconnect(client)
        return outcomes

    def _disconnect(self, client: "_Client") -> List[Any]:
        """It sees that its hello is gone, and comes again."""
        del self._clients[client.session.tag]
        self._left[client.session] = None
        message_files.discard(self._at(client.hello), self._files)
        return [WrapperDisconnected(client.session.tag)]

    def _discard_files(self, session: FileSession, sent: SessionFiles) -> None:
        names = [message_files.message_name(session, number) for number in sent.numbers] + (
            [sent.hello] if sent.hello else []
        )
        for name in names:
            message_files.discard(self._at(name), self._files)

    # ---- what is sent

    def _flush(self) -> bool:
        """Return whether anything was written. What has no room is kept, and so is all that would come after it."""
        written = False
        for client in self._clients.values():
            try:
                written = client.out.flush() or written
            except OSError as error:
                if error.errno in _FULL:
                    break
        return written

    def _beat(self, now: int) -> None:
        if now >= self._beat_at:
            self._files.use(self._at(message_files.ALIVE))
            self._beat_at = now + BEAT

    def _at(self, name: str) -> str:
        return os.path.join(self._directory.path, name)


_SURELY = 2  # lists without the hello; one may have been read while the hello was being renamed


class _Client:
    """A wrapper that was let in."""

    def __init__(
        self, session: FileSession, admitted: Admitted, directory: RelayDirectory, files: Files, now: int
    ) -> None:
        box = layout.inside(directory.directory_of(session.tag), "post")
        self.session = session
        self.out = message_files.Outgoing(
            lambda number: os.path.join(box, message_files.reply_name(session, number)), files
        )
        self.incoming = message_files.Incoming(
            lambda number: os.path.join(directory.path, message_files.message_name(session, number)), files
        )
        self.hello = ""
        self.contact_at = now
        self.missed = 0  # lists in which its hello was not
        self.send(admitted.welcome)

    def send(self, message: Any) -> None:
        self.out.put(message)


def name(cluster: str, epoch: int, unique: str) -> str:
    """Name of a KCM's relay directory, in its store's directory."""
    return "post.%s.%d.%s" % (cluster, epoch, unique)


def clear(own: str, cluster: str, epoch: int, files: Files = DISK) -> None:
    """Remove the offices of this cluster's older KCMs: their wrappers see that, and look for the new one."""
    begin = "post.%s." % cluster
    try:
        for each in files.names(own):
            number = each[len(begin) :].partition(".")[0] if each.startswith(begin) else ""
            if number.isdigit() and int(number) < epoch:
                _remove(os.path.join(own, each), files)
    except OSError:
        pass  # the next KCM tries again


def _remove(directory: str, files: Files) -> None:
    """Remove the file that shows a living KCM first; a wrapper may write others while they are being removed."""
    message_files.discard(os.path.join(directory, message_files.ALIVE), files)
    try:
        files.remove(directory)
    except OSError:
        pass


LONGEST = SECOND // 2  # between two rounds
SHOW_LIFE = 5 * SECOND


class FileRelay:
    """Carries messages between the machine and its wrappers by files. It has the same methods as `Relay`."""

    port = 0

    def __init__(self, server: FileRelayServer, notify: Callable[[Any], None], show_life: Callable[[], None]) -> None:
        self._server, self._notify_machine, self._show_life = server, notify, show_life
        self._life_shown_at = 0
        self._to_send: List[Tuple[str, Any]] = []
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Nothing: the server is opened when there is a shared directory."""

    def send(self, tag: str, message: Any) -> None:
        """Write to the wrapper of this tag, if it visits."""
        self._to_send.append((tag, message))
        self._wake.set()

    async def work(self) -> str:
        """Until the server is removed; why this KCM can do nothing more."""
        moved_at = now()
        while True:
            sent, self._to_send = self._to_send, []
            self._wake.clear()
            try:
                done = await in_thread(lambda sent=sent: self._server.round(now(), sent))  # type: ignore[misc]
            except RelayRemoved:
                return "the relay's directory in the shared directory was removed"
            if done.moved or sent:
                moved_at = now()
            if now() - self._life_shown_at >= SHOW_LIFE:
                await in_thread(self._show_life)
                self._life_shown_at = now()
            for each in done.outcomes:
                self._notify_machine(each)
            await self._pause(message_files.pause(now() - moved_at, LONGEST))

    async def _pause(self, microseconds: int) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), microseconds / SECOND)
        except asyncio.TimeoutError:
            pass

    def close(self) -> None:
        """Before the KCM exits. A shared directory that hangs holds it up no longer than a moment."""
        in_a_moment(self._server.close)
