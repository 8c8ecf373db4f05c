"""How a check ends, well or not."""

from typing import Any

from koalapy.model.errors import Reason

Figures = dict[str, Any]
Found = tuple[str, Figures]  # what is said of a check that is well, and its numbers


class Trouble(Exception):
    """The check failed. `value`: what the grid file should say instead, where it is known."""

    def __init__(self, reason: Reason, value: str = "") -> None:
        super().__init__(str(reason))
        self.reason, self.value = reason, value


class Undecided(Exception):
    """The check could not be ended; what it waited for, in a sentence or two."""


class Inapplicable(Exception):
    """The cluster has nothing of the kind; why, in a sentence."""


class Doubtful(Exception):
    """It works, but; why, in a sentence or two."""
