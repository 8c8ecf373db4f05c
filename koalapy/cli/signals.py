"""Context managers for the signals that request a command's end: raise, ignore or defer them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

_POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block on Ctrl-C, SIGTERM and SIGHUP."""
    yield from _handled(_interrupt)


@contextmanager
def interruptible_once() -> Iterator[None]:
    """Like `interruptible`, but later signals are ignored in the block, so that they do not stop a cleanup."""
    yield from _handled(_interrupt_once)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore these signals during a step that has to be finished."""
    yield from _handled(signal.SIG_IGN)


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Defer these signals until the block ends, or until the function that it yields is called."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _POLITE)
    try:
        yield _let_in
    finally:
        _let_in()


def ending() -> None:
    """Let Ctrl-C end the process at once, without a message. Call it when all cleanup is done.

    Python's own handler would raise where no code catches it, such as while the interpreter waits for its threads.
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
