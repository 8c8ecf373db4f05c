"""`ssh://`: a head node by SSH (paramiko), one login and one channel."""

import getpass
import logging
import socket
import threading

import paramiko
from paramiko.ssh_exception import IncompatiblePeer, SSHException

from koalapy_adapters.connections.protocol import Channel, Lines, LineSplitter
from koalapy_adapters.connections.ssh_hostkeys import DEFAULT_PORT, known_keys, prefer, verify
from koalapy_adapters.connections.ssh_login import OPENSSH, log_in
from koalapy_adapters.errors import BatchError, SiteError, TransientError

_CONNECT_S, _BANNER_S, _LOGIN_S = 10.0, 15.0, 30.0
_KEEPALIVE_S = 15
_UP = "Is the host up, and its SSH server with it?"

# What goes wrong is raised, and told once. Without a handler Python would also print paramiko's own traces.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class SshConnection:
    """A host. None stands for the person's own user name, keys and known hosts, and for the usual port."""

    python = "python3"

    def __init__(
        self,
        host: str,
        user: str | None = None,
        port: int | None = None,
        identity: str | None = None,
        known_hosts: str | None = None,
    ) -> None:
        self._host, self._port = host, port or DEFAULT_PORT
        self._user = user or getpass.getuser()
        self._identity, self._known_hosts = identity, known_hosts

    @property
    def where(self) -> str:
        return self._host if self._port == DEFAULT_PORT else f"{self._host}:{self._port}"

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        known = known_keys(self._host, self._port, self._known_hosts)
        transport = self._dial()
        try:
            prefer(transport, known)
            transport.start_client(timeout=_BANNER_S)
            verify(self.where, transport.get_remote_server_key(), known)
            log_in(transport, self.where, self._user, self._identity)
            return _SshChannel(transport, shell_command, stderr)
        except BatchError:
            transport.close()
            raise
        except (SSHException, OSError, EOFError) as error:
            transport.close()
            raise self._explained(error) from error

    def _dial(self) -> paramiko.Transport:
        try:
            plug = socket.create_connection((self._host, self._port), timeout=_CONNECT_S)
        except OSError as error:
            raise self._undialled(error) from error
        transport = paramiko.Transport(plug)
        transport.banner_timeout, transport.auth_timeout = _BANNER_S, _LOGIN_S
        return transport

    def _undialled(self, error: OSError) -> BatchError:
        if isinstance(error, socket.gaierror):
            message = f"There is no host {self._host}: {error.strerror}."
            return TransientError("unknown_host", message, "Check `connect:` in the grid file, and the network.")
        if isinstance(error, ConnectionRefusedError):
            return TransientError("refused", f"{self.where} refuses connections.", _UP)
        if isinstance(error, TimeoutError):
            return TransientError("unreachable", f"{self.where} does not answer.", _UP)
        return TransientError("unreachable", f"{self.where} cannot be reached: {error.strerror}.", _UP)

    def _explained(self, error: Exception) -> BatchError:
        if isinstance(error, IncompatiblePeer):
            words = str(error).rstrip(".")
            message = f"{self.where} and koalapy have no algorithm in common, or known_hosts lacks its kind: {words}."
            return SiteError("no_algorithm", message, OPENSSH)
        if "channel" in str(error).lower():
            message = f"{self.where} lets {self._user} in, but starts no command: {error}."
            return TransientError("no_channel", message, "Its limit of sessions may be reached.")
        words = str(error).splitlines()[0].rstrip(".") if str(error) else "it ended the connection"
        return TransientError("unreachable", f"{self.where} does not answer as an SSH server: {words}.", _UP)


class _SshChannel:
    """The only channel of its login."""

    def __init__(self, transport: paramiko.Transport, shell_command: str, stderr: Lines) -> None:
        self._transport = transport
        transport.set_keepalive(_KEEPALIVE_S)
        self._channel = transport.open_session(timeout=_LOGIN_S)
        self._channel.exec_command(shell_command)
        self._splitter = LineSplitter(stderr)
        self._errors = threading.Thread(target=self._read_errors, name="ssh-stderr", daemon=True)
        self._errors.start()

    def read(self, size: int) -> bytes:
        return self._channel.recv(size)

    def write(self, data: bytes) -> None:
        self._channel.sendall(data)

    def exit_status(self, timeout_s: float) -> int | None:
        if not self._channel.status_event.wait(timeout_s):
            return None
        self._errors.join(timeout_s)  # what it said last belongs to its end
        status = self._channel.recv_exit_status()
        return None if status < 0 else status

    def close(self) -> None:
        """The login, not the channel: to close that, a message would have to pass what the other side does not read."""
        self._transport.close()

    def _read_errors(self) -> None:
        while data := self._channel.recv_stderr(65_536):
            self._splitter.feed(data)
        self._splitter.end()
