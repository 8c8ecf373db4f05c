"""The link to one neighbour: dials it or is offered its connection, and performs what the conversation commands."""

import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import structlog
from koalapy_adapters.errors import ClusterError
from koalapy_adapters.errors import TransientError as Unreachable
from koalapy_adapters.frames import FrameError
from koalapy_adapters.messages.streams import OpenStream

from koalapy.driver.driver import Delivery
from koalapy.link.conversation import Deliver
from koalapy.link.neighbour import NeighbourConversation, Outgoing, SiteOpening, neighbour_lost
from koalapy.link.reconnect import Timing
from koalapy.link.session import Command, LinkStatus, Lost, Report, SessionMachine
from koalapy.link.site_messages import MESSAGES, SiteHello, site_to_json
from koalapy.model.commands import NeighbourCommand
from koalapy.model.errors import Reason, TransientError
from koalapy.model.units import Instant
from koalapy.runtime.cluster_link.link import Relay
from koalapy.runtime.session import link_threads
from koalapy.runtime.session.link_threads import LinkThreads
from koalapy.runtime.session.session import Session, Wire
from koalapy.runtime.sites import upgrade
from koalapy.runtime.sites.certificate import Identity
from koalapy.runtime.sites.streams import Measured, RelayLease, SiteStreams
from koalapy.runtime.sites.tls import TlsChannel, Untrusted, handshake
from koalapy.runtime.streams import Stream

_LOG = structlog.get_logger()
_CONNECT_S = 10.0
_CLOSE_S = 5.0
TIMING = Timing(welcome=15.0)
_ADVICE = "Ask the people of that site for their line: `koala sites invite` prints it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a neighbour is, and who it is. `url`: None if it has to dial. `pins`: those of its keys."""

    url: str | None
    pins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteServices:
    """The functions of koalad that a link to a neighbour calls. `opening` may block, and raises KoalaError.

    `relay`: see ClusterLinks.relay_lease. `connected` is called when a session has begun; it returns at once.
    """

    now: Callable[[], Instant]
    deliver: Callable[[Delivery], None]
    opening: Callable[[str], SiteOpening]
    identity: Callable[[], Identity]
    relay: RelayLease | None = None
    connected: Callable[[], None] = lambda: None


class SiteLink:
    """The link to one neighbour. Any thread may call it; calls return at once, except `offer` and `close`."""

    def __init__(self, name: str, address: Address, outgoing: Outgoing, services: SiteServices) -> None:
        self.name, self.address = name, address
        self.received = 0  # messages that came for the first time
        self._outgoing, self._services = outgoing, services
        self._machine: SessionMachine[NeighbourConversation] = SessionMachine(
            name, TIMING, random.uniform, dials=address.url is not None
        )
        wire = Wire(f"The site {name}", MESSAGES, site_to_json, "ask the people of that site what runs there.")
        callbacks = link_threads.Callbacks(
            now=services.now, open=self._open, begin=self._begin, ended=self._ended, perform=self._perform,
            too_large=self._too_large, wire=wire, stream_frame=self._stream_frame,
        )  # fmt: skip
        self._streams = SiteStreams(name, self._send_frame, services.now, services.relay)
        self._threads = LinkThreads(f"site:{name}", self._machine, callbacks)

    def start(self) -> None:
        self._threads.start()

    def close(self) -> None:
        """End the connection for good. A dial that hangs is abandoned after 5 s."""
        self._threads.do(self._machine.close)
        if self._threads.thread.is_alive():
            self._threads.thread.join(_CLOSE_S)

    def end_session(self, why: Reason) -> int | None:
        """End the present session, to begin a new one. Returns the ended session's epoch; None without a session."""
        with self._threads.lock:
            epoch = self._machine.epoch if self._machine.state.has_session else None
        self._threads.do(lambda now: self._machine.end(now, why))
        return epoch

    def offer(self, channel: TlsChannel, hello: SiteHello, kept: bool) -> None:
        """Offer a connection that the neighbour has made. Blocks until the connection ends. Raises KoalaError."""
        self._threads.offer(channel, hello, hello.epoch, kept)

    def status(self) -> LinkStatus:
        return self._machine.status

    @property
    def sent(self) -> int:
        """The messages that were sent or wait for a session, those that were sent again counted once."""
        return self._outgoing.count

    # ---- for the driver

    def send(self, number: int, command: NeighbourCommand) -> None:
        """Keep the message until the neighbour has committed it, and send it if there is a session."""

        def put(now: Instant) -> list[Command]:
            fresh = self._outgoing.put(number, command)
            return self._machine.send(now, lambda dialogue: dialogue.send(number, command)) if fresh else []

        self._threads.do(put)

    def acknowledge(self, epoch: int, number: int) -> None:
        self._threads.do(lambda now: self._machine.send(now, lambda dialogue: dialogue.acknowledge(number), epoch))

    # ---- for threads that can wait

    def measure(self, size: int) -> Measured:
        """Measure the link by this many bytes. Raises KoalaError, also if there is no session."""
        if self._threads.session is None:
            raise self._not_connected()
        return self._streams.measure(size)

    def open_lease(self, lease: int) -> Stream:
        """Open a stream to the KCM of a lease of the neighbour. Raises TransientError."""
        if self._threads.session is None:
            raise self._not_connected()
        return self._streams.open_lease(lease)

    def relay(self, lease: int, opening: OpenStream, back: Callable[[Any], None]) -> Relay | None:
        """Relay a stream of another site to a lease of the neighbour; see SiteStreams.relay. Raises TransientError."""
        if self._threads.session is None:
            raise self._not_connected()
        return self._streams.relay(lease, opening, back)

    def reset_relayed(self, lease: int) -> None:
        """Reset the streams of the neighbour to a lease that has ended."""
        self._streams.reset_relayed(lease)

    def _not_connected(self) -> TransientError:
        reason = self._machine.status.reason
        why = f"{self.name} is not connected" + (f": {reason.message}" if reason else ".")
        return TransientError("not_connected", why, reason.advice if reason else "Wait a moment.")

    def _send_frame(self, frame: object) -> None:
        session = self._threads.session
        if session is not None:
            session.send_frame(frame)

    def _stream_frame(self, frame: object) -> None:
        self._streams.received(frame)

    # ---- a session

    def _open(self) -> TlsChannel:
        """Dial. Raises BatchError."""
        assert self.address.url is not None
        parts = urlsplit(self.address.url)
        host, port = parts.hostname or "", parts.port or 443
        try:
            connection = socket.create_connection((host, port), _CONNECT_S)
        except OSError as error:
            what = f"{self.name} cannot be reached at {host}, port {port}: {error.strerror or error}."
            raise Unreachable("unreachable", what, "koalad tries again by itself.") from error
        try:
            channel = handshake(connection, self._services.identity(), self.address.pins, False, _CONNECT_S)
            channel.limit(_CONNECT_S)
            upgrade.ask(channel, parts.netloc)
            channel.limit(None)
        except Untrusted as error:
            connection.close()
            what = f"Who answers at {host}, port {port}, is not {self.name}: {error.sentence}"
            raise ClusterError("not_the_site", what, _ADVICE) from error
        except OSError as error:
            connection.close()
            what = f"{self.name} ended the connection before it had begun ({error})."
            raise Unreachable("refused", what, "Has it this site's line by now? koalad tries again.") from error
        return channel

    def _begin(self, session: Session) -> NeighbourConversation:
        return NeighbourConversation(self.name, self._services.opening(self.name), self._outgoing)

    def _ended(self) -> Reason:
        message = f"The connection to {self.name} was lost."
        return Reason("cut", "transient", message, "koalad connects again by itself.")

    def _perform(self, command: Command) -> None:
        match command:
            case Lost(reason):
                _LOG.warning("neighbour_lost", site=self.name, code=reason.code, reason=str(reason))
                self._services.deliver(neighbour_lost(self.name, reason))
            case Report(status, _) if status.state == "connected":
                _LOG.info("neighbour_connected", site=self.name, version=status.version)
                self._streams.resume()
                self._services.connected()
            case Deliver(delivery):
                self.received += delivery.acknowledge is not None
                self._services.deliver(delivery)

    def _too_large(self, message: object, error: FrameError) -> None:
        _LOG.error("message_too_large", site=self.name, message=type(message).__name__, why=str(error))
