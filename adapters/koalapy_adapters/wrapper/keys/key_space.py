"""The rendezvous' key space: a map that only grows, in which the first value of a key stays, and barriers built on it.

An arrival at a barrier is a key of its own, so that maps which are merged in any order agree.
"""

from typing import Dict, Optional

MAX_KEY, MAX_VALUE, MAX_TOTAL = 1 << 10, 1 << 16, 1 << 26  # bytes of UTF-8
ARRIVALS = "barrier/"


class KeySpace:
    """One replica of the map."""

    def __init__(self) -> None:
        self._values: Dict[str, str] = {}
        self._arrivals: Dict[str, int] = {}
        self.size = 0

    def put(self, key: str, value: str) -> bool:
        """Return whether the key is new; the value of one that is not stays."""
        if key in self._values:
            return False
        self._values[key] = value
        self.size += len(key) + len(value)
        if key.startswith(ARRIVALS):
            name = barrier_of(key)
            self._arrivals[name] = self._arrivals.get(name, 0) + 1
        return True

    def get(self, key: str) -> Optional[str]:
        return self._values.get(key)

    def arrivals(self, barrier: str) -> int:
        """How many have arrived at this barrier so far, all its rounds together."""
        return self._arrivals.get(barrier, 0)

    def items(self) -> Dict[str, str]:
        return dict(self._values)


def arrival(barrier: str, unique: str) -> str:
    """The key by which one arrival is known. `unique` holds no slash."""
    return "%s%s/%s" % (ARRIVALS, barrier, unique)


def barrier_of(key: str) -> str:
    """The barrier's name in an arrival's key."""
    return key[len(ARRIVALS) :].rpartition("/")[0]


def goal(arrived: int, count: int) -> int:
    """How many arrivals end the round to which the `arrived`-th belongs."""
    return count * -(-arrived // count)
