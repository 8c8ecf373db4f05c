"""Work spread over processes of this machine; results come in the order of the tasks."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children
from typing import TypeVar

Task = TypeVar("Task")
Found = TypeVar("Found")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def spread(function: Callable[[Task], Found], tasks: Sequence[Task], workers: int) -> Iterator[Found]:
    """In this process where one is enough. Whatever ends the iteration early ends what is under way at once."""
    if min(workers, len(tasks)) <= 1:
        yield from map(function, tasks)
        return
    others = active_children()
    pool = ProcessPoolExecutor(min(workers, len(tasks)), initializer=leave_signals_to_parent)
    try:
        # Not `map`, which cancels what is left as it ends: a broken pool fails on the cancelled tasks.
        with signals_held():
            futures = [pool.submit(function, task) for task in tasks]
        for future in futures:
            yield future.result()
    except BaseException:
        for child in active_children():
            if child not in others:
                child.terminate()
        pool.shutdown(wait=False)
        raise
    pool.shutdown()


@contextmanager
def signals_held() -> Iterator[None]:
    """While processes are forked that begin by leaving signals to their parent: none comes before they have."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals_to_parent() -> None:
    """For a process that its parent ends. A Ctrl-C reaches every process of the terminal, and what the parent does
    about signals is inherited.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
