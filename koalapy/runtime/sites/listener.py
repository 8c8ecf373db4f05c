"""The listener of a site: it lets in neighbours alone, and refuses, counts and logs everybody else."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog
from koalapy_adapters.frames import HEADER, FrameError, from_payload
from koalapy_adapters.messages import MessageError, from_json

from koalapy.link.site_messages import MESSAGES, SiteHello
from koalapy.model.errors import KoalaError, OurError
from koalapy.model.units import Instant
from koalapy.runtime.sites import upgrade
from koalapy.runtime.sites.certificate import Identity
from koalapy.runtime.sites.tls import TlsChannel, Untrusted, handshake

_LOG = structlog.get_logger()
_HELLO_S = 10.0  # from the connection to the hello
_MOST_AT_ONCE = 64  # connections without a hello yet
_MOST_OF_ONE = 8  # of them from one address, so that one host keeps no neighbour out
_HELLO_BYTES = 1 << 14
GIVEN_UP = "given_up"  # no refusal: the neighbour has a session already
_LOG_EVERY_S = 60.0  # between two lines about one kind of refusal and one address


@dataclass(frozen=True, slots=True)
class Refusals:
    """The refused connections of one kind: how many, and the last one's address, instant and sentence."""

    kind: str
    count: int
    address: str
    at: Instant
    sentence: str


class RefusalCounts:
    """Counts refused connections, and logs them: of one kind and address a line each minute. Any thread may use it."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._kinds: dict[str, Refusals] = {}
        self._logged: dict[tuple[str, str], float] = {}

    def add(self, kind: str, address: str, sentence: str) -> None:
        with self._lock:
            before = self._kinds.get(kind)
            count = 1 + (before.count if before is not None else 0)
            self._kinds[kind] = Refusals(kind, count, address, self._now(), sentence)
            moment = time.monotonic()
            if moment - self._logged.get((kind, address), -_LOG_EVERY_S) < _LOG_EVERY_S:
                return
            recent = {key: at for key, at in self._logged.items() if moment - at < _LOG_EVERY_S}
            self._logged = {**dict(list(recent.items())[-1000:]), (kind, address): moment}
        _LOG.warning("connection_refused", kind=kind, address=address, reason=sentence, count=count)

    def all(self) -> list[Refusals]:
        with self._lock:
            return [self._kinds[kind] for kind in sorted(self._kinds)]


class Listener:
    """Accepts connections on one address. `names`: the neighbours by pin. `arrived` serves a neighbour's connection.

    Raises OurError if the address cannot be used.
    """

    def __init__(
        self,
        address: tuple[str, int],
        identity: Callable[[], Identity],
        names: Callable[[], Mapping[str, str]],
        arrived: Callable[[str, TlsChannel, SiteHello], None],
        refused: RefusalCounts,
    ) -> None:
        self._identity, self._names, self._arrived, self._refused = identity, names, arrived, refused
        self._lock = threading.Lock()
        self._undecided: Counter[str] = Counter()  # connections without a hello yet, by address
        host, port = address
        try:
            self._socket = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=64
            )
        except OSError as error:
            message = f"The site's address {host}, port {port}, cannot be used: {error.strerror}."
            raise OurError("cannot_listen", message, "Change `site.listen` in the grid file.") from error
        self._thread = threading.Thread(target=self._accept, name="site-listener", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                time.sleep(0.1)  # no file descriptors, perhaps
                continue
            if (why := self._enter(address[0])) is not None:
                connection.close()
                self._refused.add("flood", address[0], why)
                continue
            threading.Thread(target=self._greet, args=(connection, address[0]), daemon=True).start()

    def _enter(self, address: str) -> str | None:
        """Count a connection until `_leave`. Returns why there is no room for it; None if there is."""
        with self._lock:
            if self._undecided[address] >= _MOST_OF_ONE:
                return f"{_MOST_OF_ONE} others from there have not identified themselves yet."
            if self._undecided.total() >= _MOST_AT_ONCE:
                return f"{_MOST_AT_ONCE} others have not identified themselves yet."
            self._undecided[address] += 1
            return None

    def _leave(self, address: str) -> None:
        with self._lock:
            self._undecided[address] -= 1
            if not self._undecided[address]:
                del self._undecided[address]

    def _greet(self, connection: socket.socket, address: str) -> None:
        """Find out who it is, within the time-out; then serve the connection, or refuse it."""
        try:
            try:
                channel, name, hello = self._identified(connection)
            finally:
                self._leave(address)
        except Untrusted as error:
            connection.close()
            if error.kind != GIVEN_UP:
                self._refused.add(error.kind, address, error.sentence)
            return
        except TimeoutError:
            connection.close()
            self._refused.add("slow", address, f"It did not identify itself within {_HELLO_S:.0f} s.")
            return
        except OSError as error:
            connection.close()
            self._refused.add("cut", address, f"It went away before it identified itself ({error}).")
            return
        try:
            self._arrived(name, channel, hello)
        except KoalaError as error:
            self._refused.add("not_ready", address, str(error))
        finally:
            channel.close()

    def _identified(self, connection: socket.socket) -> tuple[TlsChannel, str, SiteHello]:
        """Return the channel, the neighbour's name and its hello. Raises Untrusted and OSError."""
        deadline = time.monotonic() + _HELLO_S
        names = self._names()
        channel = handshake(connection, self._identity(), names, True, _HELLO_S)
        name = names[channel.pin]
        channel.limit(max(0.01, deadline - time.monotonic()))
        try:
            upgrade.answer(channel)
            hello = _first_message(channel)
        except ConnectionError as error:
            # A dial that was overtaken by the neighbour's own session is given up without a hello.
            raise Untrusted(GIVEN_UP, f"{name} gave up this connection before its hello ({error}).") from error
        if hello.site != name:
            raise Untrusted("other_name", f"The site with the key of {name} calls itself {hello.site}.")
        channel.limit(None)
        return channel, name, hello


def _first_message(channel: TlsChannel) -> SiteHello:
    """Read the hello. Raises Untrusted for anything else, and OSError."""
    head = _exactly(channel, HEADER.size)
    kind, length = HEADER.unpack(head)
    if kind != b"J" or length > _HELLO_BYTES:
        raise Untrusted("garbage", "Its first frame is no hello.")
    try:
        hello = from_json(from_payload(_exactly(channel, length)), MESSAGES)
    except (FrameError, MessageError) as error:
        raise Untrusted("garbage", f"Its first frame cannot be understood: {error}.") from error
    if not isinstance(hello, SiteHello):
        raise Untrusted("garbage", "Its first frame is no hello.")
    return hello


def _exactly(channel: TlsChannel, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = channel.read(size - len(data))
        if not piece:
            raise ConnectionError("it closed the connection")
        data += piece
    return data
