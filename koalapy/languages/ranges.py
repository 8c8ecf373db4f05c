"""Ranges of decimal numbers, such as `1:1000000`, `1:100:5`, `0.1:1:0.1`, with both ends included.

A range is stored as its ends, step and size, never as a list of its numbers.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from koalapy.model.textfile.fields import wrong
from koalapy.model.textfile.words import shown

MOST_PARAMETERS = 1_000_000_000  # of one sweep

_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?", re.ASCII)
_PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
_MOST_DIGITS = 40
_FORM = "Write FIRST:LAST or FIRST:LAST:STEP, such as 1:100 or 0:1:0.1."


class Loop(NamedTuple):
    """A range: decimal numbers without exponent. `without`: the excluded ones. `size`: the number of those left."""

    first: str
    last: str
    step: str
    without: tuple[str, ...]
    size: int


def looks_like_range(text: str) -> bool:
    """Return whether a text has two or three parts and begins with a number, so that it is meant as a range."""
    parts = text.split(":")
    return len(parts) in (2, 3) and _NUMBER.fullmatch(parts[0].strip()) is not None


def as_loop(text: str, without: Iterable[str] = ()) -> Loop:
    """Return the range without the values of `without`. Its step is 1 by default.

    Raises an error of the file if it is not a range, or has too many values.
    """
    parts = [part.strip() for part in text.split(":")]
    if len(parts) not in (2, 3):
        raise wrong(f"is {shown(text)}, no range", _FORM)
    first, last, step = (as_decimal(part, text) for part in [*parts, "1"][:3])
    left_out = tuple(as_decimal(each, each) for each in without)
    return Loop(first, last, step, left_out, _count(first, last, step, left_out, text))


def as_decimal(text: str, whole: str) -> str:
    """Return the number without exponent and plus. Its zeros stay, since they determine how numbers are written.

    Raises an error of the file if the text is not a number. `whole`: the text that the error quotes.
    """
    if not _NUMBER.fullmatch(text):
        named = (
            f"is {shown(whole)}, not a number"
            if text == whole
            else f"is {shown(whole)}, and {shown(text)} is not a number"
        )
        raise wrong(named, f"{_FORM} For text with colons write a list in brackets.")
    plain = text if _PLAIN.fullmatch(text) else f"{Decimal(text):f}"
    if len(plain) > _MOST_DIGITS:
        raise wrong(
            f"is {shown(whole)}, with more than {_MOST_DIGITS} digits", "Write numbers that a program can read."
        )
    return plain


def _count(first: str, last: str, step: str, without: tuple[str, ...], text: str) -> int:
    start, end, by = Fraction(first), Fraction(last), Fraction(step)
    if not by:
        raise wrong(f"is {shown(text)}, with a step of zero", f"Write a step that leads from {first} to {last}.")
    if (end - start) / by < 0:
        advice = f"Write {first}:{last}:{_turned(step)}, or {last}:{first}:{step}."
        raise wrong(f"is {shown(text)}, and steps of {step} from {first} never reach {last}", advice)
    steps = (end - start) // by
    if steps >= MOST_PARAMETERS:
        raise wrong(f"is {shown(text)}, of more than {MOST_PARAMETERS:,} numbers", "Write a shorter range.", "too_many")
    places = {(Fraction(each) - start) / by for each in without}
    count = steps + 1 - sum(place.denominator == 1 and 0 <= place <= steps for place in places)
    if not count:
        raise wrong(f"is {shown(text)}, and all of it is left out", "Leave some of it.")
    return count


def _turned(step: str) -> str:
    return step[1:] if step.startswith("-") else f"-{step}"
