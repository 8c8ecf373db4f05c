"""How long the agent of another node lets its program run without a message from the wrapper.

A node that is cut off sees no end of file, and no command to stop reaches its agent. Therefore the wrapper sends
messages at intervals. The agent ends its program after too long a silence, and it counts as ended only after that.
"""

from koalapy_adapters.clock import SECOND

_LONGEST = 60 * SECOND
_MARGIN = 5 * SECOND  # for the agent's own end


def silence(orphan_timeout: int) -> int:
    """The longest silence, in microseconds, after which an agent ends its program."""
    return min(_LONGEST, orphan_timeout)


def until_ended(orphan_timeout: int, grace: int) -> int:
    """The time, in microseconds, from the last message until nothing of the program is left on other nodes."""
    return silence(orphan_timeout) + grace + _MARGIN


def between_words(orphan_timeout: int) -> int:
    """The interval between two messages, in microseconds: a sixth of the silence, so that a few may be late."""
    return silence(orphan_timeout) // 6
