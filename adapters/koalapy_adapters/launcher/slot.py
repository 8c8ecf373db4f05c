"""A slot: a process of its own that runs one parameter after another, and removes all that a parameter leaves running.

Its loop takes a number from the queue, starts the program, waits for its end, and writes a line into the journal. All
that is rare happens in handlers of signals. SIGALRM checks limits while a program runs, and SIGTERM ends the slot. The
slot's standard streams are those of the programs.
"""

import os
import signal
import time
from typing import Any, List, NamedTuple, Optional, Tuple

from koalapy_adapters import clock
from koalapy_adapters.host import descendants
from koalapy_adapters.launcher import spawn
from koalapy_adapters.launcher.journal import EXITED, FAILED, KILLED, OUTPUT, WALLTIME, Journal
from koalapy_adapters.launcher.machine import AT_ONCE
from koalapy_adapters.launcher.program import Program
from koalapy_adapters.launcher.queue import Puller
from koalapy_adapters.launcher.shared_page import Pages
from koalapy_adapters.launcher.slot_output import Streams, write_error

LOOSE = b"-"  # before the line of a result that is in no journal
FLUSH = clock.SECOND // 50  # results wait at most this long for others, while the slot works
FIRST_POLL_S, LAST_POLL_S = 0.1, 1.0  # between two looks at the output and the time of a program
_GROWS = 1 << 20  # after as many new bytes between two looks the next one is soon
_LEFT_S = 5.0  # for processes that cannot be killed; then the slot continues
_NOT_FOUND, _NOT_STARTED = 127, 126
_CANCELLED, _SIGNALS_SPREAD_S = (128 + signal.SIGTERM, 128 + signal.SIGKILL), 0.5
_KINDS = (FileNotFoundError, NotADirectoryError)


class Limits(NamedTuple):
    """The limits of one parameter: seconds or None, bytes; and seconds from SIGTERM to SIGKILL."""

    walltime_s: Optional[float]
    output: int
    grace_s: float


class Slot:
    """The slot of this process, whose working directory and standard streams are those of the programs."""

    def __init__(
        self, index: int, host: str, program: Program, limits: Limits, pages: Pages, journal: Journal, results: int
    ) -> None:
        """`results` is the pipe to the Launcher. It carries lines as in the journal, some of them after LOOSE."""
        self._index, self._program, self._limits, self._pages = index, program, limits, pages
        self._journal, self._results = journal, results
        self._row = '[%%d,%%d,"%%s","%s",%d,%%d,%%d,%%d,%%d,%%d,%%d]\n' % (host, index)
        self._lines: List[bytes] = []
        self._flushed_at = 0
        self._flushing = False
        self._program_pid = 0
        self._ended_by = ""  # a limit that the program exceeded
        self._stopping = False
        self._kill_at: Optional[float] = None
        self._ran_s = 0.0  # only time in which looks took place counts, so not a suspension of the whole job
        self._looked_at = 0.0
        self._pause_s = FIRST_POLL_S
        self._size = 0
        self._streams = Streams()
        program.of_slot(index)

    def run(self, puller: Puller) -> None:
        """Run parameters until the queue is closed or the slot is stopped."""
        while not self._stopping:
            number = puller.next_at_once()
            if not number:
                self._flush()
                number = puller.next()
            if not number:
                break
            if not self._run(number):
                break
        self._flush()

    def stop(self) -> None:
        """React to SIGTERM: end the running program without a result, and begin nothing."""
        if self._stopping:
            return
        self._stopping = True
        if self._program_pid and _lives(self._program_pid):
            self._end()
        else:
            self._program_pid = 0  # it has ended by itself

    # ---- a parameter -------------------------------------------------------------------------------------------------

    def _run(self, number: int) -> bool:
        """Run a parameter. Returns whether it has a result."""
        started_at = clock.now()
        self._pages.runs(self._index, number, started_at)
        if self._stopping:
            self._pages.runs(self._index, 0, 0)
            return False
        status, ending = self._execute(number)
        if not ending:
            return False
        self._note(number, status, ending, started_at)
        self._pages.runs(self._index, 0, 0)
        return True

    def _execute(self, number: int) -> Tuple[int, str]:
        """Run a program. Returns exit status and ending, which is empty if the slot was stopped."""
        try:
            call = self._program.call(number)
            pid = spawn.start(call.path, call.argv, call.environment)
        except (OSError, ValueError) as error:
            return _not_started(number, error)
        return self._await(pid)

    def _await(self, pid: int) -> Tuple[int, str]:
        self._ended_by, self._kill_at, self._ran_s = "", None, 0.0
        self._looked_at, self._pause_s, self._size = time.monotonic(), FIRST_POLL_S, 0
        self._program_pid = pid
        signal.setitimer(signal.ITIMER_REAL, FIRST_POLL_S)
        was_stopping = self._stopping  # a signal between start and here found no program to end
        if was_stopping:
            self._end()
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == pid:
                break
        stopped = self._stopping and (was_stopping or self._program_pid != 0)
        self._program_pid, self._kill_at = 0, None
        self._clear()
        if stopped:
            return 0, ""
        signalled = os.WIFSIGNALED(status)
        exit_status = 128 + os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status)
        if exit_status in _CANCELLED and not self._ended_by and self._is_stopped_too():
            return 0, ""
        return exit_status, self._ended_by or (KILLED if signalled else EXITED)

    def _is_stopped_too(self) -> bool:
        """Return whether the slot receives a signal to stop, too.

        A batch system that cancels a job signals all its processes, in any order. A shell whose child received the
        signal first ends with that child's status.
        """
        until = time.monotonic() + _SIGNALS_SPREAD_S
        while time.monotonic() < until and not self._stopping:
            time.sleep(_SIGNALS_SPREAD_S / 20)
        return self._stopping

    def _clear(self) -> None:
        """Kill the processes that the program has left behind."""
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass  # it had ended already
            _sweep()
        except ChildProcessError:
            pass

    # ---- its result --------------------------------------------------------------------------------------------------

    def _note(self, number: int, status: int, ending: str, started_at: int) -> None:
        ended_at = clock.now()
        part = self._streams.part()
        if part.out_size + part.errors_size > self._limits.output:
            ending = OUTPUT
            self._streams.cut_off(self._limits.output)
        if ending in (WALLTIME, OUTPUT):
            write_error(number, self._why(ending))
            part = self._streams.part()
        self._streams.begin_part(part)
        values = (number, status, ending, started_at, ended_at, *part)
        line = (self._row % values).encode()
        at_once = status != 0 and ended_at - started_at < AT_ONCE
        if at_once and self._pages.on_trial:
            line = LOOSE + line
        else:
            self._journal.write(line)
        self._lines.append(line)
        if ended_at >= self._flushed_at + FLUSH:
            self._flush()

    def _why(self, ending: str) -> str:
        if ending == WALLTIME:
            return "it took longer than its walltime, %g s, and was ended" % (self._limits.walltime_s or 0)
        return "it wrote more than %d bytes; the rest is cut off" % self._limits.output

    def _flush(self) -> None:
        """Send the waiting results to the Launcher. SIGALRM calls it too, perhaps while it runs."""
        if self._flushing or not self._lines:
            return
        self._flushing = True
        lines, self._lines = self._lines, []
        _write_all(self._results, b"".join(lines))
        self._flushed_at = clock.now()
        self._flushing = False

    # ---- on signals --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """React to SIGALRM: send waiting results, and check the limits of the running program."""
        self._flush()
        if not self._program_pid:
            return
        now = time.monotonic()
        self._ran_s += min(now - self._looked_at, self._pause_s + LAST_POLL_S)
        self._looked_at = now
        self._enforce(now)
        signal.setitimer(signal.ITIMER_REAL, self._next_look(now))

    def _enforce(self, now: float) -> None:
        if self._kill_at is not None:
            if now >= self._kill_at:
                descendants.send(descendants.descendants(os.getpid()), signal.SIGKILL)
            return
        limit = self._limits.walltime_s
        if limit is not None and self._ran_s >= limit:
            self._ended_by = WALLTIME
            self._end()
        elif self._streams.growth() > self._limits.output:
            self._ended_by = OUTPUT
            descendants.send(descendants.descendants(os.getpid()), signal.SIGKILL)
            self._kill_at = now  # and again, until it has ended

    def _end(self) -> None:
        """Send SIGTERM to the program and all processes below it, and SIGKILL after the grace."""
        self._kill_at = time.monotonic() + self._limits.grace_s
        descendants.send(descendants.descendants(os.getpid()), signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, min(self._limits.grace_s, LAST_POLL_S)))

    def _next_look(self, now: float) -> float:
        """Seconds to the next look: few while the output grows quickly, else ever more, at most to the next limit."""
        size = self._streams.size()
        grows, self._size = size - self._size > _GROWS, size
        self._pause_s = FIRST_POLL_S if grows else min(LAST_POLL_S, self._pause_s * 1.5)
        due = [self._pause_s]
        if self._kill_at is not None:
            due.append(max(FIRST_POLL_S / 2, self._kill_at - now))
        elif self._limits.walltime_s is not None:
            due.append(max(0.001, self._limits.walltime_s - self._ran_s))
        return min(due)


def serve(slot: Slot, puller: Puller) -> None:
    """Run this slot in this process, which does nothing else."""
    signal.signal(signal.SIGALRM, lambda *_: slot.look())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGXCPU):
        signal.signal(number, lambda *_: slot.stop())
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    slot.run(puller)


def _not_started(number: int, error: Exception) -> Tuple[int, str]:
    """The exit status and message that a shell would have."""
    write_error(number, str(error.strerror if isinstance(error, OSError) else error))
    return (_NOT_FOUND if isinstance(error, _KINDS) else _NOT_STARTED), FAILED


def _sweep() -> None:
    deadline = time.monotonic() + _LEFT_S
    while not descendants.sweep() and time.monotonic() < deadline:
        time.sleep(0.001)
        descendants.reap()


def _lives(pid: int) -> bool:
    """Return whether this child still runs. If not, its status can still be read."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _write_all(descriptor: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
