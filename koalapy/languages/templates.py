"""Texts of a sweep's program: `{x}` stands for a parameter's value, `{#}` for its number, `{{` and `}}` for braces.

koalapy_adapters.launcher.space puts the values in, on the nodes.
"""

import re
from collections.abc import Mapping

NUMBER = "#"
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class TemplateError(ValueError):
    """A brace that is neither one of two nor begins a name; its words go on after the text's name."""


def names_in(text: str) -> list[str]:
    """The names that the text uses, in their order. Raises TemplateError for a lone brace."""
    found = []
    for piece in _PIECE.finditer(text):
        if piece[0] in ("{", "}"):
            raise TemplateError(f"has a lone {piece[0]}")
        if piece[1] is not None:
            found.append(piece[1])
    return found


def literal(text: str) -> str:
    """The template whose value is just this text."""
    return text.replace("{", "{{").replace("}", "}}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """The template with these of its names replaced; the others stay names."""
    return _PIECE.sub(lambda piece: literal(values[piece[1]]) if piece[1] in values else piece[0], text)
