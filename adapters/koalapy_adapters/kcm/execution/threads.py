"""Blocking work beside the loop, in threads that hold up no exit: a shared directory may hang for ever."""

import asyncio
import queue
import threading
import time
from typing import Any, Callable, List


async def in_thread(call: Callable[[], Any]) -> Any:
    """Make a blocking call in a thread; return its result, or raise its error."""
    loop = asyncio.get_event_loop()
    future: "asyncio.Future[Any]" = loop.create_future()

    def work() -> None:
        try:
            result = call()
        except BaseException as error:
            _resolve(loop, future, future.set_exception, error)
        else:
            _resolve(loop, future, future.set_result, result)

    _give(work)
    return await future


def in_a_moment(call: Callable[[], None], moment: float = 1.0) -> None:
    """Call it, and wait for its end no longer than so many seconds. It must raise nothing."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(moment)


def thread_cpu() -> int:
    """CPU time of this thread so far, in microseconds."""
    return int(time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) * 1e6)


class _Worker:
    """A thread that does one thing after another, and is idle in between."""

    def __init__(self) -> None:
        self.work: "queue.Queue[Callable[[], None]]" = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.work.get()()
            if len(_IDLE) >= _KEPT:
                return
            _IDLE.append(self)


_KEPT = 16  # idle threads, which cost less than to start one for each of a thousand calls
_IDLE: List[_Worker] = []


def _give(work: Callable[[], None]) -> None:
    """To a thread that has nothing else to do: what hangs holds up nothing but itself."""
    try:
        worker = _IDLE.pop()
    except IndexError:
        worker = _Worker()
    worker.work.put(work)


def _resolve(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", notify: Callable[[Any], None], value: Any
) -> None:
    try:
        loop.call_soon_threadsafe(lambda: None if future.done() else notify(value))
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more
