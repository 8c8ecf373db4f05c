"""Forward a port of a running job to this machine: each connection here becomes one of the job's program."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, Self

from koalapy_adapters.frames import Chunk, Control, Decoder, Frame, FrameError

from koalapy.client.calls import Calls, NotReachable, error_of
from koalapy.model.errors import KoalaError, RequestError

_PIECE_BYTES = 1 << 16
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: the other side sees a reset, not an end
LOOPBACK = "127.0.0.1"
_ENDED = "The connection to koalad was cut off."
_NOT_LOOPBACK = "Anybody who reaches another address could use the job's port. Listen on 127.0.0.1 or ::1."


class Forwarding:
    """A port of this machine that stands for one of a job, until `close`. A `with` block ends with that.

    `document`: where the job's port is, schema koala.port/1. `failed` is called, by any thread, with the error of each
    connection that was refused or broke.
    """

    def __init__(
        self,
        calls: Calls,
        path: str,
        params: dict[str, Any],
        document: Any,
        listen: tuple[str, int],
        failed: Callable[[KoalaError], None],
    ) -> None:
        """Raises RequestError for an address that is not of the loopback interface, or whose port is not free."""
        self.document = document
        self._calls, self._path, self._params, self._failed = calls, path, params, failed
        self._listening = _listen(*listen)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closed = False
        self.address: tuple[str, int] = self._listening.getsockname()[:2]
        threading.Thread(target=self._accept, name="forward", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and reset the connections that are open."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="forwarded", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with self._calls.connect(self._path, self._params) as (koalad, answer):
                threading.Thread(target=_upload, args=(connection, koalad), name="forward-up", daemon=True).start()
                _download(answer, connection)
        except KoalaError as error:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            if not self._closed:
                self._failed(error)
        except OSError:
            pass  # the local side has closed its connection
        finally:
            with self._lock:
                self._connections.discard(connection)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # the other thread waits for it
            connection.close()


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if address not in (LOOPBACK, "::1"):
        raise RequestError("bad_address", f"{address} is not an address of the loopback interface.", _NOT_LOOPBACK)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        message = f"Port {port} of {address} cannot be used: {error.strerror}."
        raise RequestError("port_taken", message, "Name another port, or none.") from error
    return listening


def _upload(connection: socket.socket, koalad: socket.socket) -> None:
    """Send what the local side writes as chunks of HTTP, until its end. If that breaks, the connection is reset."""
    try:
        while data := connection.recv(_PIECE_BYTES):
            koalad.sendall(b"%x\r\n%b\r\n" % (len(data), data))
        koalad.sendall(b"0\r\n\r\n")
    except OSError:
        with suppress(OSError):
            koalad.shutdown(socket.SHUT_RDWR)


def _download(answer: HTTPResponse, connection: socket.socket) -> None:
    """Write what the program sends, until both directions have ended.

    Raises KoalaError if the stream was reset, and OSError if the local side takes nothing more.
    """
    for frame in frames_of(answer):
        if isinstance(frame, Control):
            raise error_of(frame.data["error"])
        if isinstance(frame, Chunk) and frame.data:
            connection.sendall(frame.data)
        else:
            connection.shutdown(socket.SHUT_WR)


def frames_of(answer: HTTPResponse) -> Iterator[Frame]:
    """Yield the frames of an answer as they come. Raises NotReachable if it breaks off."""
    decoder = Decoder()
    try:
        while data := answer.read1(_PIECE_BYTES):
            yield from decoder.feed(data)
    except (OSError, HTTPException, FrameError) as error:
        raise NotReachable("cut", _ENDED, "`koala status` shows whether it is up.") from error
