"""How far a long computation is."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.progress import track

from koalapy.cli import output

Item = TypeVar("Item")


def shown(items: Iterable[Item], total: int, what: str = "sets") -> Iterator[Item]:
    """A bar on a terminal, plain lines when piped."""
    if output.errors.is_terminal:
        yield from track(items, description=what.capitalize(), total=total, console=output.errors.console)
        return
    for number, item in enumerate(items, 1):
        output.say(f"{number} of {total} {what}")
        yield item
