"""The end of an attempt's directory: removed when koalad has recorded all that it needs of it."""

from typing import Any, List

from koalapy_adapters.kcm.state.actions import Remove, Removed, Send
from koalapy_adapters.kcm.state.attempt import Attempt, Core
from koalapy_adapters.messages.kcm import Done


def forget(attempt: Attempt, ids: List[int]) -> List[Any]:
    """Its directory may go; the requests for it are answered when it has."""
    first = not attempt.forget_ids
    attempt.forget_ids += ids
    return [Remove(attempt.tag)] if first else []


def removed(core: Core, now: int, event: Removed) -> List[Any]:
    attempt = core.attempts.get(event.tag)
    if attempt is None:
        return []
    if event.error is not None:
        attempt.forget_at = attempt.forget_backoff.after(now)
        return []
    del core.attempts[event.tag]
    core.sweeps.drop(event.tag)
    return [Send(Done(id)) for id in attempt.forget_ids]


def tick(now: int, attempt: Attempt) -> List[Any]:
    """Try again."""
    if attempt.forget_at is None or now < attempt.forget_at:
        return []
    attempt.forget_at = None
    return [Remove(attempt.tag)]
