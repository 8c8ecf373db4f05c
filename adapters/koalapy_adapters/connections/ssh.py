"""`ssh://` connection: a head node by SSH (paramiko), with one login and one channel."""

import logging
import select
import socket
import threading

import paramiko
from paramiko.ssh_exception import SSHException

from koalapy_adapters.connections.asking import Asker, Nobody
from koalapy_adapters.connections.protocol import Channel, Lines, LineSplitter
from koalapy_adapters.connections.ssh_route import LOGIN_S, Given, Route, answers, log_in_to
from koalapy_adapters.errors import BatchError, TransientError

_KEEPALIVE_S = 15

# An error is raised, and reported once. Without a handler Python would also print paramiko's own traces.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class SshConnection:
    """A connection to a host, or to an alias of the ssh configuration. None: its value, else OpenSSH's default.

    `config`: a configuration file, instead of the user's own and the system's; `none` for no file. `asker` passes a
    login's questions on to a person.
    """

    python = "python3"

    def __init__(
        self,
        host: str,
        user: str | None = None,
        port: int | None = None,
        identity: str | None = None,
        known_hosts: str | None = None,
        config: str | None = None,
        asker: Asker | None = None,
    ) -> None:
        self._given = Given(host, user, port, identity, known_hosts, config)
        self._asker = asker or Nobody()
        self._last: Route | None = None

    @property
    def where(self) -> str:
        return self._given.where

    @property
    def asked(self) -> bool:
        """Return whether a person had to answer a question for the last login.

        Such a connection is not given up lightly.
        """
        return self._last is not None and self._last.asked

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        """Log in and start the command; see Connection.open. Raises BatchError; then nothing is left open."""
        route = log_in_to(self._given, self._asker, stderr)
        try:
            channel = _SshChannel(route, shell_command, stderr)
        except (SSHException, OSError, EOFError) as error:
            route.close()
            raise self._explained(error) from error
        self._last = route
        return channel

    def reachable(self, timeout_s: float) -> bool | None:
        """Return whether the server that was logged in to last can be reached now; None if that is unknown."""
        if self._last is None or self._last.address is None:
            return None
        return answers(self._last.address, timeout_s)

    def _explained(self, error: Exception) -> BatchError:
        words = str(error).rstrip(".") or "it ended the connection"
        message = f"{self.where} lets {self._given.user or 'us'} in, but starts no command: {words}."
        return TransientError("no_channel", message, "Its limit of sessions may be reached.")


class _SshChannel:
    """The only channel of its login."""

    def __init__(self, route: Route, shell_command: str, stderr: Lines) -> None:
        self._route = route
        for transport in (*route.through, route.transport):
            transport.set_keepalive(_KEEPALIVE_S)
        self._channel: paramiko.Channel = route.transport.open_session(timeout=LOGIN_S)
        self._channel.exec_command(shell_command)
        self._splitter = LineSplitter(stderr)
        self._errors = threading.Thread(target=self._read_errors, name="ssh-stderr", daemon=True)
        self._errors.start()

    def read(self, size: int) -> bytes:
        return self._channel.recv(size)

    def write(self, data: bytes) -> None:
        self._channel.sendall(data)

    def write_now(self, data: bytes) -> bool:
        """Write a few KiB if they cannot block: no keys are being exchanged, and both windows have room for them."""
        transport, plug = self._route.transport, self._route.transport.sock
        if not isinstance(plug, socket.socket):
            return False  # through another host, or a command
        if transport.packetizer.need_rekey() or not transport.clear_to_send.is_set():
            return False
        if self._channel.closed or self._channel.out_window_size < len(data):
            return False
        try:
            takes_more = select.poll()
            takes_more.register(plug, select.POLLOUT)
            if takes_more.poll(0) != [(plug.fileno(), select.POLLOUT)]:
                return False
            self._channel.sendall(data)
        except (SSHException, ValueError) as error:  # keys are exchanged for too long, or it was closed meanwhile
            raise BrokenPipeError(str(error)) from error
        return True

    def exit_status(self, timeout_s: float) -> int | None:
        if not self._channel.status_event.wait(timeout_s):
            return None
        self._errors.join(timeout_s)  # its last output belongs to its end
        status = self._channel.recv_exit_status()
        return None if status < 0 else status

    def close(self) -> None:
        """Close the login, not the channel.

        To close the channel, a message would have to pass data that the other side does not read.
        """
        self._route.close()

    def _read_errors(self) -> None:
        while data := self._channel.recv_stderr(65_536):
            self._splitter.feed(data)
        self._splitter.end()
