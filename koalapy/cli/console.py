"""rich's console, made safe for words of others."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from koalapy.model.textfile.words import HIDDEN, visible


class SafeConsole(Console):
    """A console that shows control characters of what it prints, and takes nothing in it for markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's. Texts are made visible here, because rich drops some control characters."""
        super().print(*(visible(each) if isinstance(each, str) else each for each in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """As rich's, for what is no plain text: tables, live displays, progress."""
        for segment in super().render(renderable, options):
            hidden = segment.control is None and HIDDEN.search(segment.text)
            yield Segment(visible(segment.text), segment.style) if hidden else segment
