"""Log in to a host's SSH server: directly, through jump hosts with logins of their own, or through a ProxyCommand."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from typing import Any, NamedTuple

import paramiko
from paramiko.ssh_exception import IncompatiblePeer, SSHException

from koalapy_adapters.connections import dialling
from koalapy_adapters.connections.asking import Asker
from koalapy_adapters.connections.dialling import Address
from koalapy_adapters.connections.protocol import Lines, LineSplitter
from koalapy_adapters.connections.ssh_config import Resolved, resolve, split_jump
from koalapy_adapters.connections.ssh_hostkeys import known_keys, names_of, prefer, verify
from koalapy_adapters.connections.ssh_login import OPENSSH, log_in
from koalapy_adapters.errors import BatchError, ClusterError, TransientError

CONNECT_S, BANNER_S, LOGIN_S = 10.0, 15.0, 30.0
_MOST_JUMPS = 8
_LAST_WORDS_S = 2.0  # that a ProxyCommand has to report why it ended
_FAST = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")  # they need no hash of each packet beside
_SILENT = "No existing session"  # paramiko's words
_UP = "Is the host up, and its SSH server with it?"


class Given(NamedTuple):
    """Settings of the grid file for a host; they precede those of the ssh configuration."""

    host: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    known_hosts: str | None = None
    config: str | None = None

    @property
    def where(self) -> str:
        return self.host if self.port in (None, 22) else f"{self.host}:{self.port}"


class Route(NamedTuple):
    """An open login: its transport, the transports that it goes through, and how it was made."""

    transport: paramiko.Transport
    through: tuple[paramiko.Transport, ...] = ()
    asked: bool = False  # a person had to answer something
    address: Address | None = None  # of a host that is reached straight

    def close(self) -> None:
        """Close all transports, the farthest one first."""
        for transport in (self.transport, *reversed(self.through)):
            transport.close()


def log_in_to(given: Given, asker: Asker, stderr: Lines, depth: int = 0) -> Route:
    """Log in to a host, through its jump hosts. Blocks. Raises BatchError; then nothing is left open."""
    resolved = resolve(given.host, given.user, given.port, given.config)
    return _log_in(given, resolved, asker, stderr, depth)


def answers(address: Address, timeout_s: float) -> bool:
    """Return whether an SSH server answers at the address within `timeout_s`, without a login."""
    try:
        plug, _ = dialling.dial([address], timeout_s)
    except OSError:
        return False
    with plug, contextlib.suppress(OSError):
        plug.settimeout(timeout_s)
        return plug.recv(4) == b"SSH-"
    return False


def _log_in(given: Given, resolved: Resolved, asker: Asker, stderr: Lines, depth: int) -> Route:
    files = [given.known_hosts] if given.known_hosts is not None else list(resolved.known_hosts)
    names = [resolved.alias.lower()] if resolved.alias else names_of(resolved.host, resolved.port)
    known = known_keys(names, files, required=given.known_hosts is not None)
    before = _jump(given, resolved, asker, stderr, depth)
    try:
        transport, address = _Server(given, resolved, before, stderr).reach(known)
        try:
            verify(given.where, transport.get_remote_server_key(), known)
            asked = log_in(transport, given.where, resolved, given.identity, asker)
            through = () if before is None else (*before.through, before.transport)
            return Route(transport, through, asked or (before is not None and before.asked), address)
        except BaseException:
            transport.close()
            raise
    except BaseException:
        if before is not None:
            before.close()
        raise


def _jump(given: Given, resolved: Resolved, asker: Asker, stderr: Lines, depth: int) -> Route | None:
    """Log in to the last jump host; None if there is none. As in OpenSSH, only the first one's own ProxyJump counts."""
    if not resolved.jumps:
        return None
    if depth >= _MOST_JUMPS:
        message = f"The way to {given.where} has more than {_MOST_JUMPS} jump hosts, or goes round in circles."
        raise ClusterError("bad_ssh_config", message, "Correct ProxyJump in the ssh configuration.")
    *rest, last = resolved.jumps
    host, user, port = split_jump(last)
    gate = Given(host, user, port, config=given.config)
    to_gate = resolve(host, user, port, given.config)
    if rest:
        to_gate = to_gate._replace(jumps=tuple(rest), proxy_command=None)
    try:
        return _log_in(gate, to_gate, asker, stderr, depth + 1)
    except BatchError as error:
        error.message = f"On the way to {given.where}: {error.message}"
        raise


class _Server:
    """The SSH server, at one of its addresses."""

    def __init__(self, given: Given, resolved: Resolved, before: Route | None, stderr: Lines) -> None:
        self._given, self._resolved, self._before, self._stderr = given, resolved, before, stderr

    def reach(self, known: list[Any]) -> tuple[paramiko.Transport, Address | None]:
        """Return a transport whose keys are exchanged, and not verified. Raises BatchError.

        The address is that of a host that is reached directly, else None.
        """
        if self._before is not None or self._resolved.proxy_command is not None:
            return self._greet(self._through(), known), None
        choice = self._addresses()
        while True:
            plug, address = self._dial(choice)
            try:
                return self._greet(plug, known), address
            except TransientError:  # a head node that hangs takes connections and sends nothing
                choice = [each for each in choice if each != address]
                if not choice:
                    raise

    def _through(self) -> Any:
        """Open a byte stream through the jump host, or through a ProxyCommand. Raises TransientError."""
        if self._before is None:
            return _Proxied(self._resolved.proxy_command or "", self._stderr)
        to = (self._resolved.host, self._resolved.port)
        try:
            return self._before.transport.open_channel("direct-tcpip", to, ("127.0.0.1", 0), timeout=self._connect_s)
        except (SSHException, EOFError) as error:
            message = f"{self._given.where} cannot be reached from {self._resolved.jumps[-1]}: {_words(error)}."
            raise TransientError("unreachable", message, _UP) from error

    @property
    def _connect_s(self) -> float:
        return self._resolved.timeout_s or CONNECT_S

    def _addresses(self) -> list[Address]:
        host = self._resolved.host
        try:
            return dialling.addresses(host, self._resolved.port, self._resolved.family)
        except (OSError, UnicodeError) as error:
            message = f"There is no host {host}: {getattr(error, 'strerror', None) or error}."
            advice = "Check `connect:` in the grid file, and the network."
            raise TransientError("unknown_host", message, advice) from error

    def _dial(self, choice: list[Address]) -> tuple[socket.socket, Address]:
        where = self._given.where
        try:
            return dialling.dial(choice, self._connect_s)
        except ConnectionRefusedError as error:
            raise TransientError("refused", f"{where} refuses connections.", _UP) from error
        except TimeoutError as error:
            raise TransientError("unreachable", f"{where} does not answer.", _UP) from error
        except OSError as error:
            raise TransientError("unreachable", f"{where} cannot be reached: {error.strerror}.", _UP) from error

    def _greet(self, plug: Any, known: list[Any]) -> paramiko.Transport:
        transport = paramiko.Transport(plug)
        transport.banner_timeout, transport.auth_timeout = BANNER_S, LOGIN_S
        try:
            prefer(transport, known)
            options = transport.get_security_options()
            options.ciphers = [*filter(options.ciphers.__contains__, _FAST), *options.ciphers]
            transport.start_client(timeout=BANNER_S)
            transport.get_remote_server_key()  # raises where the time is over and nothing was received
            return transport
        except (SSHException, OSError, EOFError) as error:
            transport.close()
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> BatchError:
        where = self._given.where
        if isinstance(error, IncompatiblePeer):
            message = (
                f"{where} and koalapy have no algorithm in common, or known_hosts lacks its kind: {_words(error)}."
            )
            return ClusterError("no_algorithm", message, OPENSSH)
        message = f"{where} does not answer as an SSH server: {_words(error)}."
        return TransientError("unreachable", message, _UP)


def _words(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines and lines[0] != _SILENT else "it prints nothing" if lines else "it hung up"


# ---- ProxyCommand


class _Proxied:
    """A socket whose other end is a command's input and output.

    `close` ends the command, too: some would outlive it.
    """

    def __init__(self, command: str, stderr: Lines) -> None:
        self._plug, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"], stdin=theirs.fileno(), stdout=theirs.fileno(),
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        self._attendant = threading.Thread(
            target=_attend, args=(self._process, stderr), name="proxy-command", daemon=True
        )
        self._attendant.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plug, name)

    def close(self) -> None:
        self._plug.close()
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
        self._attendant.join(_LAST_WORDS_S)


def _attend(process: "subprocess.Popen[bytes]", stderr: Lines) -> None:
    """Pass on the command's standard error, and wait for its end."""
    assert process.stderr is not None
    splitter = LineSplitter(stderr)
    with process.stderr as lines:
        while data := os.read(lines.fileno(), 65_536):
            splitter.feed(data)
    splitter.end()
    process.wait()
