"""The clock of a head node or compute node: microseconds since 1970 that never run backwards, whatever is done to its
system's time.
"""

import time

_ANCHOR = time.time() - time.monotonic()

SECOND = 1000000


def now() -> int:
    return int((_ANCHOR + time.monotonic()) * SECOND)


def microseconds(seconds: float) -> int:
    return int(seconds * SECOND)
