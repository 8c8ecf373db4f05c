"""A console of rich that shows control characters and ignores markup in texts from elsewhere."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from koalapy.model.textfile.words import HIDDEN, visible


class SafeConsole(Console):
    """A console that makes control characters visible, and interprets no text as markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print like rich's console. Texts are made visible here, because rich drops some control characters."""
        super().print(*(visible(each) if isinstance(each, str) else each for each in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render like rich's console. This covers objects other than plain text: tables, live displays, progress."""
        for segment in super().render(renderable, options):
            hidden = segment.control is None and HIDDEN.search(segment.text)
            yield Segment(visible(segment.text), segment.style) if hidden else segment
