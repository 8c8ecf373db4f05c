"""How long the agent of another node lets its program run on without a word from the wrapper.

A node that is cut off hears no end of file: nobody could tell its agent to stop. So the wrapper speaks to it again and
again; the agent ends its program after so much silence, and nobody takes it for ended before.
"""

from koalapy_adapters.clock import SECOND

_LONGEST = 60 * SECOND
_MARGIN = 5 * SECOND  # for the agent's own end


def silence(orphan_timeout: int) -> int:
    """In microseconds, as all here."""
    return min(_LONGEST, orphan_timeout)


def until_ended(orphan_timeout: int, grace: int) -> int:
    """After the last word, until nothing of the program is left on any other node."""
    return silence(orphan_timeout) + grace + _MARGIN


def between_words(orphan_timeout: int) -> int:
    """So often that a few may be late."""
    return silence(orphan_timeout) // 6
