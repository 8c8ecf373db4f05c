"""Signals as bytes on a pipe, for a loop that waits for descriptors."""

import os
import signal
from typing import Any, Iterable

# The signals of batch systems before they kill, on cancel and at limits (Slurm, PBS: TERM; Grid Engine: USR2, XCPU).
STOPPING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGXCPU))
RESUMED = signal.SIGCONT  # to suspend, a batch system has sent SIGSTOP before, which no process notices
SUSPENDING = signal.SIGTSTP  # to a wrapper in an allocation: it stops its program, and itself goes on
NOTICED = (signal.SIGCHLD, RESUMED, *STOPPING)
_IGNORED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE)


def pipe(noticed: Iterable[int] = NOTICED) -> int:
    """The reading end of a pipe of signal numbers, one byte each. Other signals that would kill are ignored."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in noticed:
        signal.signal(number, _notice)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return reading


def hold() -> None:
    """Block the stopping signals and RESUMED until there is a pipe.

    Threads that begin meanwhile never receive them. The thread that makes the pipe finds the bytes there at once.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING | {RESUMED})


def ignore() -> None:
    """Ignore all these signals, in this process and in those that it starts from now on."""
    for number in (*STOPPING, *_IGNORED):
        signal.signal(number, signal.SIG_IGN)


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 512)
    except BlockingIOError:
        return b""


def stop_requested(numbers: bytes) -> bool:
    return not STOPPING.isdisjoint(numbers)


def resumed(numbers: bytes) -> bool:
    return RESUMED in numbers


def suspend_requested(numbers: bytes) -> bool:
    return SUSPENDING in numbers


def _notice(number: int, frame: Any) -> None:
    """Do nothing: Python writes the byte into the pipe."""
