"""The speed of a processor, measured by a small kernel that is the same on every host: zlib compresses a fixed text.

zlib is the host's own library in nearly every Python, so the figure does not depend on how Python was compiled.
"""

import time

_LENGTH = 100000  # bytes of the text, which take some milliseconds
_LEVEL = 6
_ROUNDS = 5  # the fastest one counts, since what else runs on the host slows a round down


def measure() -> int:
    """Return the kilobytes that this processor compresses in a second, to two places; 0 in a Python without zlib."""
    try:
        import zlib  # late: a Python without it still runs the KCM
    except ImportError:
        return 0
    text = fixed_text()
    seconds = []
    for _ in range(_ROUNDS):
        begun = time.process_time()
        zlib.compress(text, _LEVEL)
        seconds.append(time.process_time() - begun)
    return int(float("%.1e" % (_LENGTH / 1e3 / max(min(seconds), 1e-6))))


def fixed_text() -> bytes:
    """Return the text, which is the same on every host: numbers without order, with blanks between them."""
    return b"".join(b"%d " % (number * number * 2654435761 % 1000003) for number in range(20000))[:_LENGTH]
