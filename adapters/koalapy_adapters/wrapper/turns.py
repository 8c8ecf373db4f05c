"""One turn of a loop that waits for descriptors, whose registered data are what to call when they are ready."""

import selectors
from typing import Optional


def turn(selector: selectors.BaseSelector, timeout: Optional[float]) -> None:
    """Wait, and call. What an earlier call of the same turn has unregistered, and perhaps closed, is passed over."""
    for key, _ in selector.select(timeout):
        current = selector.get_map().get(key.fd)
        if current is not None and current.fileobj is key.fileobj:
            current.data()
