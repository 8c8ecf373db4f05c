"""Waiting for what a real process or cluster is about to do."""

import time
from collections.abc import Callable
from typing import Any

_LONGEST_PAUSE_S = 0.3  # no state that a test waits for is shorter


def until(found: Callable[[], Any], patience_s: float, known: Callable[[], Any], pause_s: float = 0.05) -> Any:
    """Return the first true answer of `found`. Fails with what is `known` after `patience_s`.

    A look that takes long is followed by a longer pause: many start a process, and other tests run beside this one.
    """
    began = time.monotonic()
    deadline = began + patience_s
    while not (answer := found()):
        ended = time.monotonic()
        assert ended < deadline, known()
        time.sleep(max(pause_s, min(2 * (ended - began), _LONGEST_PAUSE_S)))
        began = time.monotonic()
    return answer
