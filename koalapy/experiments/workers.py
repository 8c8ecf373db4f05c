"""Work in several processes of this machine, with results in the order of the tasks."""

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
    """Yield the results of all tasks; with one worker or one task, they run in this process.

    If the iteration ends early, the worker processes are ended at once.
    """
    if min(workers, len(tasks)) <= 1:
        yield from map(function, tasks)
        return
    others = active_children()
    pool = ProcessPoolExecutor(min(workers, len(tasks)), initializer=leave_signals_to_parent)
    try:
        # `map` would cancel the remaining tasks as it ends, and a broken pool fails on cancelled tasks.
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
    """Block signals while processes are forked that begin with `leave_signals_to_parent`.

    No signal therefore arrives in a child before it has set its own handlers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals_to_parent() -> None:
    """Set the signal handlers of a process that its parent ends.

    It ignores Ctrl-C, which reaches every process of the terminal, and resets the handlers that it inherited.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
