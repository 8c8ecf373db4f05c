"""koalad's end of the link to one neighbour: how it is dialled, and the byte streams beside its messages."""

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

from koalapy.link.reconnect import Timing
from koalapy.link.session import LinkStatus
from koalapy.link.site_messages import MESSAGES, site_to_json
from koalapy.model.errors import Reason, TransientError
from koalapy.model.units import Instant
from koalapy.runtime.cluster_link.link import Relay
from koalapy.runtime.host import ThreadHost
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
    """The functions of koalad that its end of a link to a neighbour calls.

    `relay`: see ClusterLinks.relay_lease. `connected` is called when a session has begun; it returns at once.
    """

    now: Callable[[], Instant]
    identity: Callable[[], Identity]
    relay: RelayLease | None = None
    connected: Callable[[], None] = lambda: None


class NeighbourEnd:
    """This site's end of the link to one neighbour, with its byte streams; see SiteEnd. Any thread may call it."""

    timing = TIMING

    def __init__(self, name: str, address: Address, services: SiteServices) -> None:
        self.name, self.address, self.dials = name, address, address.url is not None
        self.host = ThreadHost(f"site:{name}", services.now)
        self.session: Callable[[], Session | None] = lambda: None
        self.uniform = random.uniform
        self._services = services
        self._lost: Reason | None = None  # why the neighbour was lost last
        self._streams = SiteStreams(name, self._send_frame, services.now, services.relay)

    def closed(self) -> None:
        """Wait until the connection has ended. A dial that hangs is abandoned after 5 s."""
        self.host.join(_CLOSE_S)

    # ---- for threads that can wait

    def measure(self, size: int) -> Measured:
        """Measure the link by this many bytes. Raises KoalaError, also if there is no session."""
        if self.session() is None:
            raise self._not_connected()
        return self._streams.measure(size)

    def open_lease(self, lease: int) -> Stream:
        """Open a stream to the KCM of a lease of the neighbour. Raises TransientError."""
        if self.session() is None:
            raise self._not_connected()
        return self._streams.open_lease(lease)

    def relay(self, lease: int, opening: OpenStream, back: Callable[[Any], None]) -> Relay | None:
        """Relay a stream of another site to a lease of the neighbour; see SiteStreams.relay. Raises TransientError."""
        if self.session() is None:
            raise self._not_connected()
        return self._streams.relay(lease, opening, back)

    def reset_relayed(self, lease: int) -> None:
        """Reset the streams of the neighbour to a lease that has ended."""
        self._streams.reset_relayed(lease)

    def _not_connected(self) -> TransientError:
        reason = self._lost
        why = f"{self.name} is not connected" + (f": {reason.message}" if reason else ".")
        return TransientError("not_connected", why, reason.advice if reason else "Wait a moment.")

    def _send_frame(self, frame: object) -> None:
        session = self.session()
        if session is not None:
            session.send_frame(frame)

    # ---- a session

    def connected(self, status: LinkStatus) -> None:
        _LOG.info("neighbour_connected", site=self.name, version=status.version)
        self._streams.resume()
        self._services.connected()

    def lost(self, reason: Reason) -> None:
        self._lost = reason
        _LOG.warning("neighbour_lost", site=self.name, code=reason.code, reason=str(reason))

    def dial(self) -> Session:
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
        return self.session_on(channel)

    def session_on(self, channel: TlsChannel) -> Session:
        """Return a session on a connection, which begins once it is offered."""
        name = self.name
        wire = Wire(f"The site {name}", MESSAGES, site_to_json, "ask the people of that site what runs there.")
        return Session(channel, self.host, self._streams.received, wire, self._too_large)

    def _too_large(self, message: object, error: FrameError) -> None:
        _LOG.error("message_too_large", site=self.name, message=type(message).__name__, why=str(error))
