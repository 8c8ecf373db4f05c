"""The results of a check: a message and figures if it passes, an exception of this module if it does not."""

from typing import Any

from koalapy.model.errors import Reason

Figures = dict[str, Any]
Found = tuple[str, Figures]  # the message and figures of a check that passed


class Trouble(Exception):
    """The check failed. `value`: what the grid file should have instead, '' if that is not known."""

    def __init__(self, reason: Reason, value: str = "") -> None:
        super().__init__(str(reason))
        self.reason, self.value = reason, value


class Undecided(Exception):
    """The check did not finish. Its text names what the check waited for, in one or two sentences."""


class Inapplicable(Exception):
    """The check does not apply to this cluster. Its text gives the reason, in a sentence."""


class Doubtful(Exception):
    """The check passed with a warning. Its text gives the reason, in one or two sentences."""
