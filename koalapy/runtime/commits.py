"""The answers to events that were handed to the driver: they are committed, refused, or not recorded yet."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from koalapy.model.errors import OurError, Reason, TransientError

T = TypeVar("T")

COMMIT_S = 30.0  # an event that is not committed within this time is answered as not recorded yet
_LOOK_S = 0.2  # between checks whether the store has begun to fail


def committed_in_time(done: "Future[T]", trouble: Callable[[], Reason | None]) -> T:
    """Wait for a commit, and return what it sets. `trouble`: why nothing is accepted; None while all is well.

    Raises TransientError, code `not_committed`, if it takes too long; it may still come. Raises what the future has.
    """
    for _ in range(round(COMMIT_S / _LOOK_S)):
        try:
            return done.result(timeout=_LOOK_S)
        except TimeoutError:
            if (why := trouble()) is not None:
                raise not_committed(why) from None
    raise not_committed(None)


def not_committed(trouble: Reason | None) -> TransientError:
    """Return the error for events that are not committed in time."""
    why = trouble.message if trouble else "koalad is busy."
    advice = "It will be, unless koalad is stopped before. Look with `koala jobs` before you ask again."
    return TransientError("not_committed", f"It is not recorded yet: {why}", advice)


def store_failing(trouble: Reason) -> TransientError:
    """Return the error for events that are not handed to the driver at all."""
    return TransientError("store_failing", f"Nothing new can be recorded: {trouble.message}", trouble.advice)


def refusal(reason: Reason) -> OurError:
    """Return the error for events that the driver refused."""
    return OurError(reason.code, reason.message, reason.advice)
