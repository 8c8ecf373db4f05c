"""Labels of jobs: their valid keys and values, and the comparison with wanted labels."""

import re
from collections.abc import Iterable, Sequence

from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import HIDDEN, shown

MOST_LABELS = 32  # of one job
LONGEST_KEY, LONGEST_VALUE = 63, 255  # characters
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*", re.ASCII)

Labels = tuple[tuple[str, str], ...]
Wanted = tuple[str, str | None]


class InvalidLabel(ValueError):
    """An invalid label. `what` continues a sentence that begins with the label's name; `advice` is a sentence."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.what, self.advice = what, advice


def check_key(key: str) -> str:
    """Return the key. Raises InvalidLabel if it is too long, or has other characters than a key may have."""
    if len(key) > LONGEST_KEY:
        raise InvalidLabel(f"has a key of {len(key)} characters, more than {LONGEST_KEY}", "Write a shorter key.")
    if not KEY.fullmatch(key):
        advice = "Use letters, digits, '.', '_', '-' and '/', and begin with a letter or digit."
        raise InvalidLabel("has an invalid key", advice)
    return key


def check_value(value: str) -> str:
    """Return the value. Raises InvalidLabel if it is empty, too long, or has a line break or control character."""
    if not value.strip():
        raise InvalidLabel("has no value", "Write a value, or remove the label.")
    if len(value) > LONGEST_VALUE:
        what = f"has a value of {len(value)} characters, more than {LONGEST_VALUE}"
        raise InvalidLabel(what, "Write a shorter value.")
    if "\n" in value or HIDDEN.search(value):
        advice = "Write it on one line, without control characters."
        raise InvalidLabel("has a line break or control character in its value", advice)
    return value


def wanted_label(text: str) -> Wanted:
    """Return the key and value of KEY=VALUE; the value is None for KEY alone. Raises RequestError if one is invalid."""
    key, equals, value = text.partition("=")
    try:
        return check_key(key), check_value(value) if equals else None
    except InvalidLabel as error:
        message = f"The label {shown(text)} {error.what}."
        raise RequestError("bad_label", message, f"{error.advice} The form is KEY or KEY=VALUE.") from error


def has_labels(labels: Labels, wanted: Sequence[Wanted]) -> bool:
    """Return whether each of the wanted labels is there, with its value if it has one."""
    found = dict(labels)
    return all(key in found and value in (None, found[key]) for key, value in wanted)


def joined(labels: Labels, further: Iterable[tuple[str, str]]) -> Labels:
    """Return the labels with further ones, which replace those of the same key.

    Raises RequestError if one is invalid, or if the job would have too many.
    """
    found = dict(labels)
    for key, value in further:
        try:
            found[check_key(key)] = check_value(value)
        except InvalidLabel as error:
            raise RequestError("bad_label", f"The label {shown(key)} {error.what}.", error.advice) from error
    if len(found) > MOST_LABELS:
        message = f"The job has {len(found)} labels, more than {MOST_LABELS}."
        raise RequestError("too_many", message, "Remove some.")
    return tuple(found.items())
