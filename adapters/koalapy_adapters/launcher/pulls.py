"""What a Launcher has pulled over the connection that there is, and what may still come by it."""

from typing import Optional

from koalapy_adapters.messages import Pull


class Pulls:
    """A Give and a Pull may cross: each Pull says how many had come when it was said."""

    def __init__(self) -> None:
        self._given = 0
        self._last: Optional[Pull] = None

    def given(self, count: int) -> None:
        """So many more have come."""
        self._given += count

    @property
    def coming(self) -> int:
        """How many may still come by what was pulled."""
        if self._last is None:
            return 0
        return max(0, self._last.wanted - (self._given - self._last.given))

    def next(self, wanted: int, step: int, hungry: bool) -> Optional[Pull]:
        """What to tell of what could be used, where that is news: by steps, but at once where a slot has nothing.

        The first Pull of a connection says that all has been repeated.
        """
        coming = self.coming
        more = wanted - coming >= max(1, step) or (wanted > coming and hungry)
        if self._last is not None and not more and coming <= 2 * wanted:
            return None
        self._last = Pull(wanted, self._given)
        return self._last
