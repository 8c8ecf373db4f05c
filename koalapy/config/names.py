"""Names of grids, clusters and networks. Two names must differ in more than capitals."""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from koalapy.model.textfile.fields import as_line, wrong
from koalapy.model.textfile.words import shown

LONGEST_NAME = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*", re.IGNORECASE | re.ASCII)


def is_name(text: str) -> bool:
    """Return whether the text is a valid name."""
    return bool(_NAME.fullmatch(text)) and len(text) <= LONGEST_NAME


def as_name(value: object) -> str:
    """Return a name that can be part of a path, a host name and a table.

    Raises an error of the file if it is not valid.
    """
    text = as_line(value)
    if not _NAME.fullmatch(text):
        advice = "Use letters, digits, - and _, and begin with a letter or digit."
        raise wrong(f"is {shown(text)}, which is not a valid name", advice, "bad_name")
    if len(text) > LONGEST_NAME:
        raise wrong(f"has a name of {len(text)} characters", f"Use {LONGEST_NAME} or fewer.", "bad_name")
    return text


def check_names_differ(names: Iterable[str]) -> None:
    """Raises an error of the file for two names that differ in their capitals only."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise wrong(
                f"differs from {other} in its capitals only", "Rename one of the two.", "duplicate_key", at=(name,)
            )


GridName = Annotated[
    str,
    BeforeValidator(as_name),
    WithJsonSchema(
        {"type": ["string", "integer"], "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$", "maxLength": LONGEST_NAME}
    ),
]
