"""`-o KEY=VALUE` of the command line: single values of a job, said anew."""

from collections.abc import Mapping

from koalapy.languages.jobfile import ComponentFile, JobFile
from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document, Path, read_value
from koalapy.model.textfile.words import shown

_ADVICE = "Write a key of the job, such as priority=5, or of a component, such as components.0.processors=8."


def override(document: Document, overrides: Mapping[str, str]) -> Document:
    """Return the document with other values, which are read as in the file: `[a, b]` is a list.

    An empty text or null unsets a key. Raises RequestError for a key that the job does not have.
    """
    for key, text in overrides.items():
        origin = f"-o {shown(key, quote='')}"
        try:
            path, value = _path(key), read_value(text, origin)
            unset = value is None and _may_be_unset(path)
            document = document.without(path) if unset else document.with_value(path, value, origin)
        except (KeyError, IndexError, TypeError) as error:
            message = f"{origin}: the job has no place of this name."
            raise RequestError("unknown_key", message, _ADVICE) from error
    return document


def _may_be_unset(path: Path) -> bool:
    """Not a key that is unknown, which is refused as such, nor a whole component."""
    if len(path) == 1:
        return path[0] in JobFile.model_fields
    if path[0] != "components":
        return True
    return len(path) > 3 or (len(path) == 3 and path[2] in ComponentFile.model_fields)


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
