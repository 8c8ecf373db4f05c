"""The connection to a pilot: each command runs on the first node of the pilot's job, over a byte stream to it.

That to a lease leads to a KCM instead, which its lender has started. A borrower starts no command at a lender's.
"""

import json
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from koalapy_adapters.batch import allocation
from koalapy_adapters.connections.protocol import Channel, Lines
from koalapy_adapters.connections.shell import quote_path, through_login_shell, with_setup
from koalapy_adapters.errors import ClusterError, TransientError
from koalapy_adapters.isolation.options import Isolation
from koalapy_adapters.layout import LEASE_SHARED

from koalapy.model.attempt import Attempt
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.request import Isolate, PilotOptions
from koalapy.model.units import SECOND, Instant
from koalapy.runtime.streams import Stream

_OPEN_S = 30.0
_LAST_WORDS_S = 2.0  # that a command has to report how it ended, after its output
_POLL_S = 1.0
_EXIT = "stream_exit_"  # the code of the reset that carries a command's status

OpenCommand = Callable[[str], Stream]


@runtime_checkable
class LeadsToKcm(Protocol):
    """A connection to a KCM that somebody else has started."""

    def open_kcm(self, stderr: Lines) -> Channel:
        """Open the KCM's standard streams. Raises TransientError if it cannot be reached."""
        ...


def allocation_environment(attempt: Attempt, options: PilotOptions, now: Instant) -> str:
    """Return a shell prefix that notes for an allocation when the pilot's program ends, and how programs are isolated.

    The end is by the node's own clock. The batch system may not know it, or grants the batch job more.
    """
    began = attempt.started_at or attempt.released_at or now
    seconds = max(0, began + attempt.request.walltime - now) // SECOND
    ends = f"export KOALA_ALLOCATION_ENDS=$(($(date +%s) + {seconds})); "
    if options.isolate is Isolate.NONE:
        return ends
    variables = Isolation(options.isolate.value, list(options.visible)).variables()
    return ends + "".join(f"export {name}={shlex.quote(value)}; " for name, value in variables.items())


class Lent(NamedTuple):
    """A lease on its lender's node. `home`: its directory. `pushed`: the lender's own pushed file.

    `hides`: whether its programs are isolated. `config`: see koalapy_adapters.kcm.confinement.
    """

    home: str
    pushed: str
    hides: bool
    config: Mapping[str, Any]

    def kcm(self) -> str:
        """Return the shell command that starts the KCM for the borrower."""
        return self._command(json.dumps(dict(self.config)), 'kcm "$KOALA_LEASE"')

    def examination(self) -> str:
        """Return the shell command that starts the lease's queue, and prints whether it can be used; see `examined`."""
        return self._command(f"{LEASE_SHARED}/{allocation.DIRECTORY}", 'allocation "$KOALA_LEASE" describe')

    def _command(self, lease: str, words: str) -> str:
        """Return the command that runs this part of the pushed file in the lease's directory.

        A program that is not isolated has that directory as its home. The lender's values travel as variables, which
        pass any login shell as they are.
        """
        home, python = quote_path(self.home), str(self.config["python"])
        enter = f"mkdir -p {home} && cd {home} || exit; "
        variables = f"export KOALA_LEASE={shlex.quote(lease)} KOALA_LEASE_CODE={quote_path(self.pushed)}; "
        within = 'export KOALA_LEASE_HOME="$PWD"; ' + ("" if self.hides else 'export HOME="$PWD"; ')
        start = f'cd "$KOALA_LEASE_HOME" && exec {quote_path(python)} -I -S "$KOALA_LEASE_CODE" {words}'
        return enter + variables + within + through_login_shell(with_setup(python, self.config["setup"]) + start, True)


def examined(printed: bytes, errors: Sequence[str]) -> Reason | None:
    """Return why a lease's nodes cannot be used, as its examination has printed; None if they can.

    `errors`: lines of its standard error. Raises TransientError if it has printed something else, or a reason that may
    pass.
    """
    try:
        document = json.loads(printed.decode().splitlines()[-1])
        error = document.get("error")
        reason = None if error is None else Reason(error["code"], error["whose"], error["message"], error["advice"])
    except (ValueError, LookupError, TypeError, AttributeError) as unreadable:
        why = f": {errors[-1].strip().rstrip('.')}." if errors else "."
        raise TransientError("not_examined", f"The nodes of the lease did not answer{why}", "") from unreadable
    if reason is not None and reason.whose == "transient":
        raise TransientError(reason.code, reason.message, reason.advice)
    return reason


class LeaseConnection:
    """A connection to the lease `name`. `run` opens the stream to its KCM, and raises KoalaError."""

    python = "python3"

    def __init__(self, name: str, run: Callable[[], Stream]) -> None:
        self._connection = PilotConnection(name, lambda command: run())

    @property
    def where(self) -> str:
        return self._connection.where

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        """Raises ClusterError: no command of a borrower is run."""
        raise ClusterError("not_on_a_lease", f"{self.where} is a lease, whose lender runs no command.", "")

    def open_kcm(self, stderr: Lines) -> Channel:
        """Open the KCM's standard streams. Raises TransientError if it cannot be reached."""
        return self._connection.open("", stderr)


class PilotConnection:
    """A connection to the pilot `name`. `run` starts a shell command there, and raises KoalaError.

    `advice`: what to do if the cluster side cannot be started there.
    """

    python = "python3"

    def __init__(self, name: str, run: OpenCommand, advice: str = "") -> None:
        self._name, self._run, self._advice = name, run, advice

    @property
    def advice(self) -> str:
        return self._advice

    @property
    def where(self) -> str:
        return self._name

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        """Start the command; see Connection.open. Raises TransientError if the pilot cannot be reached."""
        channel: _StreamChannel | None = None
        try:
            channel = _StreamChannel(self._run(shell_command), stderr)
            channel.wait_until_open(_OPEN_S)
            return channel
        except KoalaError as error:
            if channel is not None:
                channel.close()
            reason = error.reason
            raise TransientError(
                reason.code, f"{self._name} cannot be reached: {reason.message}", reason.advice
            ) from error


class _StreamChannel:
    """The standard streams of a command as one byte stream."""

    def __init__(self, stream: Stream, stderr: Lines) -> None:
        self._stream, self._stderr = stream, stderr
        self._changed = threading.Condition()
        self._changes = 0
        self._closed = False
        self._status: int | None = None
        self._has_ended = False
        stream.on_change = self._wake

    def wait_until_open(self, timeout_s: float) -> None:
        """Raises KoalaError if the command does not start in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            seen = self._changes
            if self._stream.is_open:
                return
            if time.monotonic() >= deadline:
                self._stream.reset("timed_out", "The node did not answer in time.")
            self._wait(seen)

    def read(self, size: int) -> bytes:
        while not self._closed:
            seen = self._changes
            try:
                data = self._stream.take(size)
            except KoalaError as error:
                self._note_end(error)
                return b""
            if data:
                return data
            if data is None:
                self.exit_status(_LAST_WORDS_S)
                return b""
            self._wait(seen)
        return b""

    def write(self, data: bytes) -> None:
        while data:
            seen = self._changes
            if self._closed or self._stream.is_closed:
                raise BrokenPipeError("The command takes no more.")
            if room := self._stream.room:
                self._stream.put(data[:room])
                data = data[room:]
            else:
                self._wait(seen)

    def exit_status(self, timeout_s: float) -> int | None:
        deadline = time.monotonic() + timeout_s
        while not self._has_ended and not self._closed and time.monotonic() < deadline:
            seen = self._changes
            try:
                self._stream.take(1)
            except KoalaError as error:
                self._note_end(error)
            else:
                self._wait(seen, deadline - time.monotonic())
        return self._status

    def close(self) -> None:
        self._closed = True
        self._stream.reset("closed", "koalad has closed the connection.")
        self._wake()

    def _note_end(self, error: KoalaError) -> None:
        """Note how the stream was reset, and pass the command's last line of standard error on."""
        if self._has_ended:
            return
        self._has_ended = True
        code, message = error.reason.code, error.reason.message
        if code.startswith(_EXIT):
            self._status = int(code.removeprefix(_EXIT))
        elif self._closed:
            return
        if message.strip():
            self._stderr(message)

    def _wake(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _wait(self, seen: int, most_s: float = _POLL_S) -> None:
        """Wait for a change since `seen`, and keep the stream alive meanwhile."""
        due = self._stream.tick()
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, max(0.0, min(due, most_s, _POLL_S)))
