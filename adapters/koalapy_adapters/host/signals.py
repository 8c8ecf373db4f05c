"""Signals as bytes on a pipe, for a loop that waits for descriptors."""

import os
import signal
from typing import Any, Iterable

# What batch systems send before they kill: on cancel and at the limits (Slurm, PBS: TERM; Grid Engine: USR2, XCPU).
STOPPING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGXCPU))
RESUMED = signal.SIGCONT  # a batch system that suspends has sent SIGSTOP before, of which nobody hears
_IGNORED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE)


def pipe(noticed: Iterable[int] = (signal.SIGCHLD, RESUMED, *STOPPING)) -> int:
    """The end to read from: a byte is the number of a signal that came in. Others that would kill are ignored."""
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
    """What tells to stop waits until there is a pipe; threads that begin meanwhile never take it, nor RESUMED, from
    the one that made the pipe: that one finds the byte there as soon as it goes on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING | {RESUMED})


def ignore() -> None:
    """Survive all of them: for who ends when others have, and what it starts from now on."""
    for number in (*STOPPING, *_IGNORED):
        signal.signal(number, signal.SIG_IGN)


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 512)
    except BlockingIOError:
        return b""


def told_to_stop(numbers: bytes) -> bool:
    return not STOPPING.isdisjoint(numbers)


def told_to_go_on(numbers: bytes) -> bool:
    return RESUMED in numbers


def _notice(number: int, frame: Any) -> None:
    """The byte on the pipe is what counts."""
