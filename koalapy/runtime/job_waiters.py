"""Waiters for the end of jobs. They use no thread, and do not read the store while none of their jobs has ended."""

import threading
from collections.abc import Callable, Iterable

from koalapy.model.identity import JobId


class Waiter:
    """A waiter. `left`: those of its jobs that have not ended. `call` is called when none is left."""

    def __init__(self, jobs: Iterable[JobId], call: Callable[[], None]) -> None:
        self.left = set(jobs)
        self.call = call


class JobWaiters:
    """Calls waiters when their jobs have ended. Any thread may call it.

    Add a waiter first, then report jobs that have ended already.
    """

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._of: dict[JobId, list[Waiter]] = {}

    def add(self, jobs: Iterable[JobId], call: Callable[[], None]) -> Waiter:
        """Add a waiter for these jobs.

        `call` must return at once; it is called here if there are no jobs, or after `close`.
        """
        waiter = Waiter(jobs, call)
        if self.closed or not waiter.left:
            call()
        with self._lock:
            for job in waiter.left:
                self._of.setdefault(job, []).append(waiter)
        return waiter

    def ended(self, job: JobId) -> None:
        with self._lock:
            waiting = self._of.pop(job, [])
            for waiter in waiting:
                waiter.left.discard(job)
            happy = [waiter for waiter in waiting if not waiter.left]
        for waiter in happy:
            waiter.call()

    def forget(self, waiter: Waiter) -> None:
        with self._lock:
            for job in waiter.left:
                others = [each for each in self._of.get(job, []) if each is not waiter]
                if others:
                    self._of[job] = others
                else:
                    self._of.pop(job, None)

    def close(self) -> None:
        """Call every waiter: no job will end any more."""
        self.closed = True
        with self._lock:
            waiting = {id(waiter): waiter for waiters in self._of.values() for waiter in waiters}
            self._of.clear()
        for waiter in waiting.values():
            waiter.call()
