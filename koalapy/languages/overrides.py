"""`-o KEY=VALUE` of the command line: single values of a job, said anew."""

from collections.abc import Mapping

from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document, Path, read_value
from koalapy.model.textfile.words import shown

_ADVICE = "Write a key of the job, such as priority=5, or of a component, such as components.0.processors=8."


def override(document: Document, overrides: Mapping[str, str]) -> Document:
    """The document with other values. Values are read as in the file: `[a, b]` is a list, all else as written."""
    for key, text in overrides.items():
        origin = f"-o {shown(key, quote='')}"
        try:
            document = document.with_value(_path(key), read_value(text, origin), origin)
        except (KeyError, IndexError, TypeError) as error:
            message = f"{origin}: the job has no place of this name."
            raise RequestError("unknown_key", message, _ADVICE) from error
    return document


def _path(key: str) -> Path:
    """Raises IndexError for an index beyond any list, and KeyError for an empty step."""
    steps = key.split(".")
    if not all(steps):
        raise KeyError(key)
    return tuple(_index(step) if step.isdecimal() and step.isascii() else step for step in steps)


def _index(step: str) -> int:
    if len(step) > 6:
        raise IndexError(step)
    return int(step)
