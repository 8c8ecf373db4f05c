"""Runs one command: an argument list, in the C locale, in a process group of its own, for a limited time."""

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from typing import IO, Any, Dict, List, NamedTuple, Optional

from koalapy_adapters.errors import ClusterError, Result

MAX_OUTPUT = 64 << 20
# What a profile may set to have Slurm's commands leave out lines, prompt, report another cluster, or submit to
# another queue, account or file than the grid file names: squeue(1), sinfo(1), sacct(1), scancel(1), sbatch(1), whose
# variables go before what a script sets. srun(1) would read others in the job; those that lead to Slurm itself stay.
_MISLEADING = re.compile(r"(SQUEUE|SINFO|SACCT|SCANCEL|SBATCH)_|SLURM_(?!(CONF|JWT|ROOT|SACK)(_|\Z))")
_POLL = 0.05  # seconds between two looks at a command that prints nothing


class Ran(NamedTuple):
    """A command's result and the CPU time of it and its children, in microseconds."""

    result: Result
    cost: int


class Handle:
    """One command that may be ended from another thread, before it starts or while it runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid: Optional[int] = None
        self._ended = False
        self.started = False

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self._pid is not None:
                _kill_group(self._pid)

    def begin(self) -> bool:
        """For what is no command: whether it may start, which it then counts as."""
        with self._lock:
            self.started = not self._ended
            return self.started

    def start(self, argv: List[str]) -> "Optional[subprocess.Popen[bytes]]":
        """Start the command; None if it was ended before. Raises ClusterError for a command that does not exist."""
        with self._lock:
            if self._ended:
                return None
            process = _start(argv)
            self._pid, self.started = process.pid, True
            return process

    def reaped(self) -> None:
        """Its process id may belong to another from now on."""
        with self._lock:
            self._pid = None


def run(argv: List[str], timeout: float, handle: Optional[Handle] = None) -> Ran:
    """Run it to its end, or end it and all of its group after `timeout` seconds; then its exit status is None.

    Raises ClusterError if there is no such command, or if it prints more than MAX_OUTPUT.
    """
    handle = handle or Handle()
    process = handle.start(argv)
    if process is None:
        return Ran(Result(argv, None, "", ""), 0)
    wait = _Wait(process)
    try:
        deadline = time.monotonic() + timeout
        output = _read(process, wait, deadline)
        wait.for_exit(deadline)
    finally:
        if not wait.exited():
            _kill_group(process.pid)
            wait.exited(0)
        handle.reaped()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if wait.too_much:
        raise ClusterError("output_too_large", "%s printed more than %d bytes." % (argv[0], MAX_OUTPUT))
    status = None if wait.killed or wait.late else wait.status
    return Ran(Result(argv, status, output["stdout"], output["stderr"]), wait.cost)


def end_at_once(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process in any state. One that a hanging file system holds is left: it can do nothing any more."""
    try:
        process.kill()
        process.wait(5)
    except (OSError, subprocess.TimeoutExpired):
        pass


class _Wait:
    """Reaps the process by wait4(2), which returns what it used."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.status: Optional[int] = None
        self.cost = 0
        self.too_much = False
        self.late = False  # it still ran when its time was over, and its output was read no further

    @property
    def killed(self) -> bool:
        """By us, or by somebody else: what it had done by then is unknown either way."""
        return self.status == 128 + signal.SIGKILL

    def exited(self, flags: int = os.WNOHANG) -> bool:
        if self.status is None:
            pid, status, usage = os.wait4(self._process.pid, flags)
            if pid == 0:
                return False
            self.status = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self.cost = int((usage.ru_utime + usage.ru_stime) * 1e6)
            self._process.returncode = self.status  # Popen must not wait for it again
        return True

    def for_exit(self, deadline: float) -> None:
        """Until it has exited, but no longer than that."""
        pause = 0.0005
        while not self.exited() and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, _POLL)


def _read(process: "subprocess.Popen[bytes]", wait: _Wait, deadline: float) -> Dict[str, str]:
    """Read its output until it closes both streams, exits, or its time is over. All that it printed is read then."""
    parts: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(_stream(process.stdout), selectors.EVENT_READ, "stdout")
        selector.register(_stream(process.stderr), selectors.EVENT_READ, "stderr")
        while selector.get_map() and size <= MAX_OUTPUT:
            exited = wait.exited()  # asked before the streams: by now they hold all that it has printed
            left = 0.0 if exited else deadline - time.monotonic()
            wait.late = left < 0
            if wait.late:
                break
            ready = selector.select(min(left, _POLL))
            if not ready and exited:
                break  # a process of its own that it left behind holds the streams
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                size += len(data)
                parts[key.data].append(data)
                if not data:
                    selector.unregister(key.fileobj)
    wait.too_much = size > MAX_OUTPUT
    return {name: b"".join(data).decode("utf-8", "replace") for name, data in parts.items()}


def _stream(stream: Optional[IO[bytes]]) -> Any:
    assert stream is not None
    return stream


def command_environment() -> Dict[str, str]:
    """That of the KCM, in the C locale, without what bends answers."""
    environment = {name: value for name, value in os.environ.items() if not _MISLEADING.match(name)}
    return dict(environment, LC_ALL="C")


def _start(argv: List[str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=command_environment(),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ClusterError(
            "command_missing",
            "The command %s cannot be run on the head node: %s." % (argv[0], error.strerror),
            "See that a login shell on the head node has the batch system's commands on its PATH.",
        ) from error


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
