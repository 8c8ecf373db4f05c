"""Files written by people: marked YAML, types of their fields, and validation whose errors name file, place and key."""

from typing import NamedTuple

MAX_BYTES = 10_000_000  # of a file


class Place(NamedTuple):
    """A line and a column, both from 1. 0 is for one that is not known."""

    line: int = 0
    column: int = 0

    def of(self, source: str) -> str:
        """Return it behind the name of its file, such as `grid.yaml:12:5`."""
        return ":".join([source, *(str(number) for number in self if number)])


def place_at(text: str, at: int) -> Place:
    """Return the place of an offset."""
    return Place(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
