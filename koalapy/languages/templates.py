"""Templates in a sweep's program: `{x}` is a parameter's value, `{#}` its number, `{{` and `}}` are braces.

koalapy_adapters.launcher.space inserts the values on the nodes.
"""

import re
from collections.abc import Mapping

NUMBER = "#"
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class TemplateError(ValueError):
    """A brace that is neither doubled nor part of a name. Its message continues a sentence about the text."""


def names_in(text: str) -> list[str]:
    """Return the names in the text, in order, with repetitions. Raises TemplateError for a lone brace."""
    found = []
    for piece in _PIECE.finditer(text):
        if piece[0] in ("{", "}"):
            raise TemplateError(f"has a lone {piece[0]}")
        if piece[1] is not None:
            found.append(piece[1])
    return found


def literal(text: str) -> str:
    """Return the template whose value is this text."""
    return text.replace("{", "{{").replace("}", "}}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the template with these names replaced by their values; the other names remain."""
    return _PIECE.sub(lambda piece: literal(values[piece[1]]) if piece[1] in values else piece[0], text)
