"""TLS 1.3 between two sites. Both show certificates, and a key that is not pinned ends the handshake.

Python's own ssl cannot ask for a certificate that no authority has signed; OpenSSL itself can, by a callback. Records
are encrypted in memory, so that one thread may read while another one writes.
"""

import socket
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime

from OpenSSL import SSL

from koalapy.runtime.sites.certificate import Identity, objection, pin_of

_RECORD = 1 << 16


class Untrusted(Exception):
    """The other side is not who it has to be. `kind`: what to count it as."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind, self.sentence = kind, sentence


class TlsChannel:
    """An encrypted connection; see Channel of koalapy_adapters. `pin`: that of the other side's key."""

    def __init__(self, connection: socket.socket, tls: SSL.Connection, pin: str) -> None:
        self.pin = pin
        self._socket, self._tls = connection, tls
        self._engine = threading.Lock()  # guards `_tls`
        self._order = threading.Lock()  # records are sent in the order in which they were encrypted
        self._received = b""
        self._deadline: float | None = None

    def push_back(self, data: bytes) -> None:
        """Return bytes that were read too early."""
        self._received = data + self._received

    def read(self, size: int) -> bytes:
        if self._received:
            data, self._received = self._received[:size], self._received[size:]
            return data
        while True:
            with self._engine:
                try:
                    return self._tls.recv(min(size, _RECORD))
                except SSL.WantReadError:
                    pass
                except SSL.Error:  # the end, or garbage
                    return b""
            try:
                encrypted = self._next()
            except TimeoutError:
                raise
            except OSError:
                return b""
            if not encrypted:
                return b""
            with self._engine:
                self._tls.bio_write(encrypted)

    def _next(self) -> bytes:
        if self._deadline is not None:
            self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
        return self._socket.recv(_RECORD)

    def write(self, data: bytes) -> None:
        """Write all of it. Raises OSError once the connection has ended."""
        with self._order:
            for start in range(0, len(data), _RECORD):
                with self._engine:
                    try:
                        self._tls.sendall(data[start : start + _RECORD])
                    except SSL.Error as error:
                        raise OSError("the connection has ended") from error
                    encrypted = _produced(self._tls)
                self._socket.sendall(encrypted)

    def exit_status(self, timeout_s: float) -> int | None:
        return None

    def limit(self, timeout_s: float | None) -> None:
        """Raise TimeoutError in `read` from `timeout_s` on, however much has come until then; None: never."""
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._socket.settimeout(timeout_s)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def handshake(
    connection: socket.socket, identity: Identity, pins: Collection[str], accepts: bool, timeout_s: float
) -> TlsChannel:
    """Do the handshake, as the side that accepts or the one that dials. Nothing of the other side is read before it.

    `pins`: of the keys that are let in. Raises Untrusted for any other key, and for whatever is no TLS 1.3. Raises
    OSError if the connection ends, or takes longer than `timeout_s`. The socket is left open then.
    """
    seen: list[Untrusted] = []
    tls = SSL.Connection(_context(identity, pins, seen), None)
    (tls.set_accept_state if accepts else tls.set_connect_state)()
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            tls.do_handshake()
            break
        except SSL.WantReadError:
            connection.sendall(_produced(tls))
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise TimeoutError("the handshake took too long") from None
            encrypted = connection.recv(_RECORD)
            if not encrypted:
                raise _refused_by_other() from None
            tls.bio_write(encrypted)
        except SSL.Error as error:
            with suppress(OSError):
                connection.sendall(_produced(tls))  # the alert
            raise (seen[0] if seen else _of_error(error)) from None
    certificate = tls.get_peer_certificate(as_cryptography=True)
    if certificate is None or (pin := pin_of(certificate)) not in pins:
        raise Untrusted("stranger", "It showed no certificate of a neighbour.")
    connection.sendall(_produced(tls))
    return TlsChannel(connection, tls, pin)


def _context(identity: Identity, pins: Collection[str], seen: list[Untrusted]) -> SSL.Context:
    """Return a context that takes only these keys. Why another one was refused is added to `seen`."""

    def verify(connection: SSL.Connection, shown: object, error: int, depth: int, fine: int) -> bool:
        certificate = shown.to_cryptography()  # type: ignore[attr-defined]
        pin = pin_of(certificate)
        if depth != 0 or pin not in pins:
            seen.append(Untrusted("stranger", f"Its key {pin} was not a neighbour's then."))
            return False
        if (wrong := objection(certificate, datetime.now(UTC))) is not None:
            seen.append(Untrusted("expired", f"The certificate of its key {pin} cannot be used: {wrong}."))
            return False
        return True

    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_options(SSL.OP_NO_TICKET)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.use_privatekey(identity.key)
    context.use_certificate(identity.certificate)
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verify)
    return context


def _produced(tls: SSL.Connection) -> bytes:
    """Return the encrypted bytes that are to be sent."""
    data = b""
    with suppress(SSL.WantReadError):
        while True:
            data += tls.bio_read(_RECORD)
    return data


def _of_error(error: SSL.Error) -> Untrusted:
    reasons = [str(each[-1]) for each in (error.args[0] if error.args else []) if each]
    what = reasons[0] if reasons else type(error).__name__
    if any("alert" in each for each in reasons):
        return Untrusted("refused_us", f"It refused this site's certificate ({what}).")
    if "peer did not return a certificate" in what:
        return Untrusted("no_certificate", "It showed no certificate.")
    return Untrusted("no_tls", f"It does not use TLS 1.3 ({what}).")


def _refused_by_other() -> OSError:
    return ConnectionError("it closed the connection during the handshake")
