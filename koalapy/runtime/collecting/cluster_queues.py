"""Workers for operations on several clusters.

A worker of the cluster that a step waits for does the step, so that no cluster delays another.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_WORKERS = 4  # of one cluster

T = TypeVar("T")
Steps = Generator[str | float, None, T]
"""It yields the name of the cluster that its next step waits for, '' for none, or seconds after which it goes on."""


class ClusterWorkers:
    """Some workers for each cluster. Steps that wait for time to pass occupy no worker."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._executors: dict[str, ThreadPoolExecutor] = {}
        self._sleeping: list[tuple[float, int, Any, Any]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._waker: threading.Thread | None = None

    def run(self, steps: Steps[T]) -> "Future[T]":
        """Return the future result of the steps, at once.

        If the workers are closed first, it is cancelled or stays pending.
        """
        future: Future[T] = Future()
        self._go(steps, "", future)
        return future

    def close(self) -> None:
        """Abandon the steps that wait. Returns at once.

        Running steps are abandoned when they next wait for another cluster, or for time to pass.
        """
        with self._changed:
            self._closed = True
            sleeping, self._sleeping = self._sleeping, []
            self._changed.notify_all()
        for _, _, steps, future in sleeping:
            _leave(steps, future)
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for the running steps, after `close`."""
        for executor in self._executors.values():
            executor.shutdown(wait=True)
        if self._waker is not None:
            self._waker.join()

    def _go(self, steps: Steps[T], cluster: str, future: "Future[T]") -> None:
        with self._changed:
            if not self._closed:
                if cluster not in self._executors:
                    self._executors[cluster] = ThreadPoolExecutor(_WORKERS, f"{self._name}-{cluster or 'none'}")
                self._executors[cluster].submit(self._advance, steps, cluster, future)
                return
        _leave(steps, future)

    def _advance(self, steps: Steps[T], cluster: str, future: "Future[T]") -> None:
        """Run the steps until they wait for something else than this worker's cluster."""
        try:
            while (then := next(steps)) == cluster:
                pass
        except StopIteration as end:
            future.set_result(end.value)
        except BaseException as error:
            future.set_exception(error)
        else:
            if isinstance(then, str):
                self._go(steps, then, future)
            else:
                self._sleep(steps, then, future)

    def _sleep(self, steps: Steps[T], seconds: float, future: "Future[T]") -> None:
        with self._changed:
            if not self._closed:
                heapq.heappush(self._sleeping, (time.monotonic() + seconds, next(self._numbers), steps, future))
                if self._waker is None:
                    self._waker = threading.Thread(target=self._wake, name=f"{self._name}-waker", daemon=True)
                    self._waker.start()
                self._changed.notify_all()
                return
        _leave(steps, future)

    def _wake(self) -> None:
        while True:
            with self._changed:
                left = self._sleeping[0][0] - time.monotonic() if self._sleeping else None
                if self._closed:
                    return
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                _, _, steps, future = heapq.heappop(self._sleeping)
            self._go(steps, "", future)


def _leave(steps: Steps[Any], future: "Future[Any]") -> None:
    steps.close()
    future.cancel()
