"""`docker://` connection: a head node that is a container of this machine's engine, by an exec with a duplex socket."""

import contextlib
import socket
import struct
import time
from typing import Any

import docker
import docker.errors
import requests.exceptions

from koalapy_adapters.connections.protocol import Channel, Lines, LineSplitter
from koalapy_adapters.errors import TransientError

_HEADER = struct.Struct(">BxxxL")  # stream and length: the engine's framing of an exec without a terminal
_STDERR = 2
_TIMEOUT_S = 20
_POLL_S = 0.05
_ENGINE = "Start the engine, or set $DOCKER_HOST; this user must be allowed to use it."


class DockerConnection:
    """A connection to a container, by name or id, as `user` (None: the image's own)."""

    python = "python3"

    def __init__(self, container: str, user: str | None = None) -> None:
        self._container, self._user = container, user

    @property
    def where(self) -> str:
        return f"the container {self._container}"

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        """Start the command by an exec; see Connection.open.

        Raises TransientError if engine or container do not allow it.
        """
        client = _client()
        try:
            return self._exec(client, shell_command, stderr)
        except docker.errors.NotFound as error:
            client.close()
            message = f"There is no container {self._container}."
            raise TransientError("no_container", message, "Start it, or correct `connect:`.") from error
        except (docker.errors.APIError, requests.exceptions.RequestException, OSError) as error:
            client.close()
            message = f"The container {self._container} cannot be entered: {_words(error)}."
            raise TransientError("unreachable", message, "Look at it with `docker ps -a`.") from error

    def _exec(self, client: docker.DockerClient, shell_command: str, stderr: Lines) -> Channel:
        names = {"USER": self._user, "LOGNAME": self._user} if self._user else {}
        made = client.api.exec_create(
            self._container,
            ["/bin/sh", "-c", shell_command],
            stdin=True,
            user=self._user or "",
            environment=names,
        )
        return _ExecChannel(client, made["Id"], stderr)


class _ExecChannel:
    """The socket of a running exec. Frames of standard error come in between; `read` separates them."""

    def __init__(self, client: docker.DockerClient, exec_id: str, stderr: Lines) -> None:
        self._client, self._exec_id = client, exec_id
        self._holder: Any = client.api.exec_start(exec_id, socket=True)
        self._socket: Any = getattr(self._holder, "_sock", self._holder)
        self._socket.settimeout(None)
        self._splitter = LineSplitter(stderr)
        self._left = 0  # of the current frame, standard output's
        self._closed = False

    def read(self, size: int) -> bytes:
        try:
            while not self._left:
                if not self._next_frame():
                    self._splitter.end()
                    return b""
            data: bytes = self._socket.recv(min(size, self._left))
        except (OSError, ValueError):
            return b""
        self._left -= len(data)
        return b"" if self._closed else data

    def write(self, data: bytes) -> None:
        """Write all of it; see Channel.write. Raises OSError."""
        if self._closed:
            raise BrokenPipeError("the channel is closed")
        self._socket.sendall(data)

    def exit_status(self, timeout_s: float) -> int | None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(docker.errors.APIError, requests.exceptions.RequestException):
                seen = self._client.api.exec_inspect(self._exec_id)
                if not seen["Running"]:
                    status: int | None = seen["ExitCode"]
                    return status
            time.sleep(_POLL_S)  # the engine has no way to wait for the end of an exec
        return None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._holder.close()
        self._socket.close()  # else it lives on until it is collected
        self._client.close()

    def _next_frame(self) -> bool:
        """Read a frame's header, and the whole frame if it is of standard error. Returns False at the end."""
        header = self._exactly(_HEADER.size)
        if len(header) < _HEADER.size or self._closed:
            return False
        stream, length = _HEADER.unpack(header)
        if stream == _STDERR:
            self._splitter.feed(self._exactly(length))
        else:
            self._left = length
        return True

    def _exactly(self, size: int) -> bytes:
        """Read `size` bytes; fewer only at the end."""
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                break
            data += more
        return data


def _client() -> docker.DockerClient:
    try:
        return docker.from_env(timeout=_TIMEOUT_S)
    except docker.errors.DockerException as error:
        raise TransientError("no_docker", f"The Docker engine does not answer: {_words(error)}.", _ENGINE) from error


def _words(error: Exception) -> str:
    text = getattr(error, "explanation", None) or str(error)
    return str(text).strip().rstrip(".").splitlines()[0][:300]
