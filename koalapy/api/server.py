"""Serves the API on a Unix socket; a connection of any other user than koalad's own is closed at once."""

import asyncio
import os
import socket
import threading
from pathlib import Path

import anyio.to_thread
import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from koalapy.api.files import CutOff
from koalapy.common.peers import is_trusted, user_of
from koalapy.model.errors import OurError

_LOG = structlog.get_logger()
_THREADS = 200  # calls that may wait at one time
_LONGEST_PATH = 107  # bytes of a Unix socket's address, unix(7)


class OwnersSocket(socket.socket):
    """A listening socket that accepts connections of its owner only (SO_PEERCRED, unix(7))."""

    def accept(self) -> tuple[socket.socket, object]:
        """Accept a connection of the owner. Raises BlockingIOError for one of another user."""
        connection, address = super().accept()
        uid = user_of(connection)
        if not is_trusted(uid):
            _LOG.warning("connection_refused", uid=uid)
            connection.close()
            raise BlockingIOError("not our owner")
        return connection, address


def bind(path: Path) -> OwnersSocket:
    """Open a listening Unix socket of mode 0600. Raises OurError if the path is too long."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OurError(
            "path_too_long", f"{path} is too long for a Unix socket.", "Set XDG_RUNTIME_DIR to a shorter one."
        )
    path.unlink(missing_ok=True)
    listening = OwnersSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(mask)
    listening.listen(128)
    listening.setblocking(False)
    return listening


def bind_port(port: int) -> socket.socket:
    """Open a listening socket on this port of 127.0.0.1. Raises OurError if the port cannot be used."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        message = f"Port {port} of 127.0.0.1 cannot be used for metrics: {error.strerror}."
        raise OurError("port_taken", message, "Give another port in `metrics` of the grid file.") from error
    listening.listen(16)
    listening.setblocking(False)
    return listening


class Server:
    """Serves the app on its own thread until `stop`."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        self._app = app
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._listening = listening
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="api", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except CutOff as error:
            _LOG.info("answer_cut_off", path=scope["path"], reason=str(error))

    async def _serve(self) -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        await self._server.serve(sockets=[self._listening])
