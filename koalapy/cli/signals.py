"""Signals that ask a command to end: as an interrupt, later, or not now."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

_POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C, SIGTERM and the terminal's end all raise KeyboardInterrupt within."""
    yield from _handled(_interrupt)


@contextmanager
def interruptible_once() -> Iterator[None]:
    """As `interruptible`; what comes after the first counts for nothing within, so that it disturbs no tidying up."""
    yield from _handled(_interrupt_once)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore interrupts while a step runs that must not stay unfinished."""
    yield from _handled(signal.SIG_IGN)


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Such signals wait until the block ends, or until what it is given is called."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _POLITE)
    try:
        yield _let_in
    finally:
        _let_in()


def ending() -> None:
    """From here on Ctrl-C ends the process at once, in silence: whatever had to be tidied up has been.

    Python's own handler would raise where nobody catches it, as while the interpreter waits for its threads.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _let_in() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _POLITE)


def _handled(handler: Callable[[int, object], NoReturn] | signal.Handlers) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _POLITE}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _interrupt_once(number: int, frame: object) -> NoReturn:
    for each in _POLITE:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
