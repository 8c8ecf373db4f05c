"""The connections that a grid file can name: `ssh://`, `local:`, `docker://` and `command:`."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

_FORMS = "Write ssh://[user@]host[:port], local:, docker://[user@]container or command:PROGRAM ARG…."
_USER = r"(?:(?P<user>[A-Za-z0-9_][^@/:\s]*)@)?"
_SSH = re.compile(
    rf"ssh://{_USER}(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\])(?::(?P<port>[0-9]{{1,5}}))?/?"
)
_DOCKER = re.compile(rf"docker://{_USER}(?P<container>[A-Za-z0-9][A-Za-z0-9_.-]*)/?")


class ConnectError(ValueError):
    """A text that names no connection. `what`: what is wrong; `advice`: what to do."""

    def __init__(self, what: str, advice: str = _FORMS) -> None:
        super().__init__(what)
        self.what, self.advice = what, advice


@dataclass(frozen=True, slots=True)
class Ssh:
    """A connection by koalapy's own SSH. None: the value of the user's ssh configuration, else OpenSSH's default."""

    kind: ClassVar[str] = "ssh"
    host: str
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Local:
    """This machine."""

    kind: ClassVar[str] = "local"


@dataclass(frozen=True, slots=True)
class Docker:
    """A container of this machine's engine. User None: that of the image."""

    kind: ClassVar[str] = "docker"
    container: str
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command that connects to the head node: its standard input and output are those of the login's shell."""

    kind: ClassVar[str] = "command"
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pilot:
    """A command on the first node of a pilot's job. koalad makes such clusters; no file can name one.

    `fills`: the pilot is a filler.
    """

    kind: ClassVar[str] = "pilot"
    job: int
    fills: bool = False

    @property
    def text(self) -> str:
        return f"pilot:{self.job}{':fills' if self.fills else ''}"


@dataclass(frozen=True, slots=True)
class Leased:
    """A command on the first node of a lease. koalad makes such clusters; no file can name one."""

    kind: ClassVar[str] = "lease"
    lender: str
    number: int

    @property
    def text(self) -> str:
        return f"lease:{self.lender}:{self.number}"


Connection = Ssh | Local | Docker | Command | Pilot | Leased


def parse_connect(text: str) -> Connection:
    """Return the connection that a text names. Raises ConnectError."""
    scheme = text.partition(":")[0]
    if ":" not in text or scheme not in _PARSERS:
        raise ConnectError("is not a connection")
    return _PARSERS[scheme](text)


def _ssh(text: str) -> Ssh:
    match = _SSH.fullmatch(text)
    if match is None:
        if re.match(r"ssh://[^@/:\s]+@[^@/:\s]+@", text):
            raise ConnectError("has two @", "Write %40 for the one of the user's name, as for OpenSSH.")
        if re.match(r"ssh://[^@/:\s]+:[^@/]*@", text):
            raise ConnectError("holds a password", "Remove it; koalapy logs in by key, or by agent.")
        raise ConnectError("is not an SSH host", "Write ssh://[user@]host[:port].")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 1 <= port <= 65_535:
        raise ConnectError(f"names port {port}", "Write a port from 1 to 65535.")
    return Ssh(match["host"].strip("[]"), _decoded(match["user"]), port)


def _decoded(user: str | None) -> str | None:
    """Return the user's name with its %40 and the like as the signs that they stand for. Raises ConnectError."""
    if user is None:
        return None
    octets = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes.fromhex(found[1].decode()), user.encode())
    name = octets.decode(errors="replace")
    if "%" in re.sub(r"%[0-9A-Fa-f]{2}", "", user) or not name.isprintable() or set("/:\ufffd") & set(name):
        raise ConnectError(f"names no user by {user}", "Write %25 for a % of the name, and %40 for an @.")
    return name


def _local(text: str) -> Local:
    if text != "local:":
        raise ConnectError("has text after local:", "Write local: alone.")
    return Local()


def _docker(text: str) -> Docker:
    match = _DOCKER.fullmatch(text)
    if match is None:
        raise ConnectError("is not a container", "Write docker://[user@]container.")
    return Docker(match["container"], match["user"])


def _command(text: str) -> Command:
    try:
        argv = tuple(shlex.split(text.partition(":")[2]))
    except ValueError as error:
        raise ConnectError("has a quote that is not closed", "Close it.") from error
    if not argv or not argv[0]:
        raise ConnectError("names no program", "Write command:PROGRAM ARG…, such as command:ssh -T fs0.")
    return Command(argv)


def parse_connects(texts: Sequence[str]) -> tuple[Connection, ...]:
    """Return the connections to equivalent head nodes of one cluster. Raises ConnectError."""
    found = tuple(parse_connect(text) for text in texts)
    if len(set(found)) < len(found):
        raise ConnectError("names one head node twice", "Name each once.")
    if len(found) > 1 and not all(isinstance(each, Ssh) for each in found):
        raise ConnectError("lists a connection that is not ssh://", "A list may hold ssh:// connections only.")
    return found


def connections_of(texts: Sequence[str]) -> tuple[Connection, ...]:
    """Return the connections of a cluster that koalad has, which may be a pilot or a lease. Raises ConnectError."""
    if len(texts) == 1 and texts[0].startswith("pilot:"):
        _, job, *fills = texts[0].split(":")
        return (Pilot(int(job), bool(fills)),)
    if len(texts) == 1 and texts[0].startswith("lease:"):
        _, lender, number = texts[0].split(":")
        return (Leased(lender, int(number)),)
    return parse_connects(texts)


_PARSERS: dict[str, Callable[[str], Connection]] = {
    "ssh": _ssh,
    "local": _local,
    "docker": _docker,
    "command": _command,
}
