"""Blocking work beside the loop, in threads that hold up no exit: a shared directory may hang for ever."""

import asyncio
import threading
from typing import Any, Callable


async def in_thread(call: Callable[[], Any]) -> Any:
    """What the call returns, or raises."""
    loop = asyncio.get_event_loop()
    future: "asyncio.Future[Any]" = loop.create_future()

    def work() -> None:
        try:
            result = call()
        except BaseException as error:
            _tell(loop, future, future.set_exception, error)
        else:
            _tell(loop, future, future.set_result, result)

    threading.Thread(target=work, daemon=True).start()
    return await future


def in_a_moment(call: Callable[[], None], moment: float = 1.0) -> None:
    """Call it, and wait for its end no longer than so many seconds. It must raise nothing."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(moment)


def _tell(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", tell: Callable[[Any], None], value: Any
) -> None:
    try:
        loop.call_soon_threadsafe(lambda: None if future.done() else tell(value))
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more
