"""Push the cluster side over a fresh channel and start it there, by one remote command."""

import base64
import errno
import json
import re
import threading
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from koalapy_adapters import strict_modes
from koalapy_adapters.connections import loader
from koalapy_adapters.connections.pack import Packed
from koalapy_adapters.connections.protocol import Advising, Channel, Connection, Lines
from koalapy_adapters.connections.shell import quote_path, through_login_shell, with_setup
from koalapy_adapters.errors import BatchError, ClusterError, TransientError

MAX_BANNER = 65_536
DEFAULT_DIRECTORY = "~/.koala"
TIMEOUT_S = 60.0
_MARKER = loader.MARKER.encode() + b" "
_SIP = 8  # bytes, at most the length of an answer after its marker
_STATUS_S = 5.0
_NOT_FOUND = (126, 127)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PYTHON_ADVICE = "Name a Python 3.6 or later of that host with `python:` in the grid file, or bring it by `setup:`."

_LACKS = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)")
_LACKS_ADVICE = (
    "Install a whole Python there (on Debian `python3`, not only `python3-minimal`), or name one with `python:`."
)
_ENDED_ADVICE = "Try a login by hand; its start-up files may end it."
_SLOW_ADVICE = "Is the host overloaded, or does a start-up file of the login shell wait for something?"


class Target(NamedTuple):
    """The program to start on a host: shared directory, interpreter and arguments. None: the grid file names none.

    `setup`: shell lines of the grid file, which may be needed to find the interpreter.
    """

    directory: str | None = None
    python: str | None = None
    arguments: Sequence[str] = ("kcm",)
    timeout_s: float = TIMEOUT_S
    setup: Sequence[str] = ()


def start(connection: Connection, packed: Packed, target: Target, stderr: Lines) -> Channel:
    """Start the pushed file and return a channel to it, which carries only that program's data from the first byte on.

    `stderr` is called with each line of standard error. Blocks. Raises TransientError or ClusterError; then the channel
    is closed and nothing runs.
    """
    error_lines: deque[str] = deque(maxlen=20)
    python = target.python or connection.python

    def note_line(line: str) -> None:
        error_lines.append(line)
        stderr(line)

    channel = connection.open(shell_command(python, target.setup), note_line)
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        channel.close()

    timer = threading.Timer(target.timeout_s, expire)
    timer.daemon = True
    timer.start()
    try:
        _Handshake(connection, python, channel, error_lines).start(packed, target)
    except BatchError as error:
        channel.close()
        if expired.is_set():
            message = f"The login on {connection.where} started no {python} within {target.timeout_s:g} s."
            raise TransientError("no_answer", message, _advice(connection, _SLOW_ADVICE)) from error
        raise
    except BaseException:
        channel.close()
        raise
    finally:
        timer.cancel()
    return channel


def incomplete_python(line: str, python: str, where: str) -> ClusterError | None:
    """Return the error of a Python that lacks a part of the standard library, if this line of its output shows that."""
    found = _LACKS.search(line)
    if found is None or found.group(1).startswith("koalapy"):
        return None
    message = f"{python} on {where} lacks a part of Python's standard library: there is no module {found.group(1)}."
    return ClusterError("python_incomplete", message, _LACKS_ADVICE)


def shell_command(python: str, setup: Sequence[str] = ()) -> str:
    """Return the one remote command, for any login shell.

    It has the loader as base64, which needs no quotes.
    """
    source = Path(loader.__file__).read_bytes()
    program = base64.b64encode(zlib.compress(source, 9)).decode()
    unpack = "import sys;del sys.path[0];import zlib,base64;exec(zlib.decompress(base64.b64decode(sys.argv.pop())))"
    before = with_setup(python, setup)
    start = f'exec {quote_path(python)} -E -s -S -c "{unpack}" {program}'  # -I came with 3.4
    return through_login_shell(before + start, of_sh=bool(before))


def _advice(connection: Connection, usual: str) -> str:
    return connection.advice if isinstance(connection, Advising) else usual


class _Handshake:
    """The conversation with the loader."""

    def __init__(self, connection: Connection, python: str, channel: Channel, error_lines: deque[str]) -> None:
        self._connection, self._where, self._python = connection, connection.where, python
        self._channel, self._error_lines = channel, error_lines
        self._read = b""

    def start(self, packed: Packed, target: Target) -> None:
        self._check_version(self._answer(banner=MAX_BANNER))
        checks = Path(strict_modes.__file__).read_bytes()
        order = {
            "strict_modes": len(checks),
            "digest": packed.digest,
            "size": len(packed.data),
            "directory": target.directory or DEFAULT_DIRECTORY,
            "arguments": list(target.arguments),
        }
        self._write(json.dumps(order).encode() + b"\n" + checks)
        answer = self._answer()
        if answer["answer"] == "need":
            self._write(packed.data)
            answer = self._answer()
        if answer["answer"] != "go":
            raise self._failed(answer)

    def _check_version(self, ready: dict[str, Any]) -> None:
        version = tuple(int(part) for part in ready["version"].split("."))
        if version[:2] < loader.OLDEST:
            message = f"{self._python} on {self._where} is Python {ready['version']}, which is too old."
            raise ClusterError("python_too_old", message, _PYTHON_ADVICE)

    def _write(self, data: bytes) -> None:
        try:
            self._channel.write(data)
        except (OSError, EOFError) as error:
            raise self._ended() from error

    def _answer(self, banner: int = 0) -> dict[str, Any]:
        """Read the next answer. Text that a login prints before the first one is skipped."""
        while b"\n" not in self._read.partition(_MARKER)[2]:
            if _MARKER not in self._read and len(self._read) > banner + len(_MARKER):
                message = f"The login on {self._where} prints too much before anything can be started."
                raise ClusterError("noisy_login", message, "Quieten the start-up files of the login shell there.")
            self._read += self._more(1 if _MARKER in self._read else _SIP)
        line, self._read = self._read.partition(_MARKER)[2].split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _more(self, size: int) -> bytes:
        """Read at most `size` bytes.

        The end of an answer is read byte by byte: what follows the last answer belongs to the KCM.
        """
        more = self._channel.read(size)
        if not more:
            raise self._ended()
        return more

    def _failed(self, answer: dict[str, Any]) -> BatchError:
        if answer["answer"] == "refused":
            advice = answer["advice"] + " The grid file names the directory with `shared:`."
            return ClusterError("shared_open_to_others", f"On {self._where} {answer['message']}", advice)
        path, number = answer.get("path") or "the shared directory", answer.get("errno")
        if number in _FULL:
            message = f"{self._where} has no room left for {path}."
            return ClusterError("directory_full", message, "Make room there, or name another directory with `shared:`.")
        if number is not None:
            message = f"{path} cannot be written on {self._where}: {answer['words']}."
            return ClusterError("directory_not_writable", message, "Name a directory with `shared:` in the grid file.")
        return TransientError("garbled", f"The push to {self._where} failed: {answer['words']}.", "It is tried again.")

    def _ended(self) -> BatchError:
        status = self._channel.exit_status(_STATUS_S)
        words = self._error_lines[-1] if self._error_lines else ""
        if status in _NOT_FOUND and not self._read.count(_MARKER):
            message = f"{self._where} has no {self._python}, or it does not start: {words}"
            return ClusterError("no_python", message.rstrip(": ") + ".", _PYTHON_ADVICE)
        incomplete = incomplete_python(words, self._python, self._where)
        if incomplete is not None:
            return incomplete
        end = f"ended with {status}" if status is not None else "did not start in time, or was cut"
        words = self._last_words()
        message = f"The login on {self._where} {end}" + (f": {words}." if words else ".")
        return TransientError("login_ended", message, _advice(self._connection, _ENDED_ADVICE))

    def _last_words(self) -> str:
        """Last line of standard error, and of standard output if it has no marker of ours: nologin(8) writes there."""
        printed = [] if _MARKER in self._read else self._read.decode(errors="replace").split("\n")
        lines = [[line.strip() for line in stream if line.strip()] for stream in (self._error_lines, printed)]
        return "; ".join(stream[-1].rstrip(".") for stream in lines if stream)
