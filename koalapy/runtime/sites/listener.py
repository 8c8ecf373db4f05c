"""The listener of a site: it lets in neighbours alone, and refuses, counts and logs everybody else."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

import structlog
from koalapy_adapters.frames import HEADER, FrameError, from_payload
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.fields import MessageError

from koalapy.link.site_messages import MESSAGES, SiteHello
from koalapy.model.errors import KoalaError, OurError
from koalapy.model.units import Instant
from koalapy.runtime.sites import upgrade
from koalapy.runtime.sites.certificate import Identity
from koalapy.runtime.sites.tls import TlsChannel, Untrusted, handshake

_LOG = structlog.get_logger()
_HELLO_S = 10.0  # from the connection to the hello
_MOST_AT_ONCE = 256  # connections without a hello yet
_MOST_OF_PREFIX = 32  # of them from one network: IPv4 /24, IPv6 /64
_MOST_OF_ONE = 8  # of them from one address
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


class Stranger:
    """A connection without a hello yet. `dropped`: why it was cut off to make room; "" while it was not."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection, self.address, self.prefix = connection, address, prefix_of(address)
        self.dropped = ""


class Strangers:
    """The connections without a hello yet. A new one always finds room: the oldest one where there are most is dropped.

    So a flood drops its own connections, and a neighbour has the time until as many others have come.
    Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[Stranger, None] = {}  # the oldest first

    def enter(self, new: Stranger) -> Stranger | None:
        """Add a connection. Returns the one that was dropped for it, whose socket is shut down; None if none was."""
        with self._lock:
            dropped = self._one_to_drop(new)
            if dropped is not None:
                del self._all[dropped]
                with suppress(OSError):
                    dropped.connection.shutdown(socket.SHUT_RDWR)
            self._all[new] = None
            return dropped

    def leave(self, stranger: Stranger) -> None:
        """Remove a connection that is identified, or has ended."""
        with self._lock:
            self._all.pop(stranger, None)

    def _one_to_drop(self, new: Stranger) -> Stranger | None:
        from_there = [each for each in self._all if each.address == new.address]
        if len(from_there) >= _MOST_OF_ONE:
            return _dropped(from_there[0], f"{_MOST_OF_ONE} later ones from there have not identified themselves yet.")
        nearby = [each for each in self._all if each.prefix == new.prefix]
        if len(nearby) >= _MOST_OF_PREFIX:
            why = f"{_MOST_OF_PREFIX} later ones of its network have not identified themselves yet."
            return _dropped(_oldest_of_most(nearby, lambda each: each.address), why)
        if len(self._all) >= _MOST_AT_ONCE:
            why = f"{_MOST_AT_ONCE} later ones have not identified themselves yet."
            return _dropped(_oldest_of_most(self._all, lambda each: each.prefix), why)
        return None


def prefix_of(address: str) -> str:
    """Return the network that shares its room with this address: IPv4 /24, IPv6 /64."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(ip_network((found, 24 if found.version == 4 else 64), strict=False))


def _oldest_of_most(strangers: Iterable[Stranger], group: Callable[[Stranger], str]) -> Stranger:
    """Return the oldest one of the groups that are largest."""
    all_of_them = list(strangers)
    sizes = Counter(map(group, all_of_them))
    most = max(sizes.values())
    return next(each for each in all_of_them if sizes[group(each)] == most)


def _dropped(stranger: Stranger, why: str) -> Stranger:
    stranger.dropped = why
    return stranger


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
        self._strangers = Strangers()
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
            stranger = Stranger(connection, address[0])
            if (dropped := self._strangers.enter(stranger)) is not None:
                self._refused.add("flood", dropped.address, dropped.dropped)
            threading.Thread(target=self._greet, args=(stranger,), daemon=True).start()

    def _greet(self, stranger: Stranger) -> None:
        """Find out who it is, within the time-out; then serve the connection, or refuse it."""
        connection = stranger.connection
        try:
            try:
                channel, name, hello = self._identified(connection)
            finally:
                self._strangers.leave(stranger)
        except Untrusted as error:
            self._refuse(stranger, error.kind, error.sentence)
            return
        except TimeoutError:
            self._refuse(stranger, "slow", f"It did not identify itself within {_HELLO_S:.0f} s.")
            return
        except OSError as error:
            self._refuse(stranger, "cut", f"It went away before it identified itself ({error}).")
            return
        try:
            self._arrived(name, channel, hello)
        except KoalaError as error:
            self._refused.add("not_ready", stranger.address, str(error))
        finally:
            channel.close()

    def _refuse(self, stranger: Stranger, kind: str, sentence: str) -> None:
        """Close a connection and count its refusal, unless it was dropped and counted before."""
        stranger.connection.close()
        if kind != GIVEN_UP and not stranger.dropped:
            self._refused.add(kind, stranger.address, sentence)

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
