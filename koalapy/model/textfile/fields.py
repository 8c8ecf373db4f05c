"""The types of a file's values: each reads what was written and refuses the rest with advice."""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from koalapy.model.textfile.document import Plain, kind_of
from koalapy.model.textfile.words import listed, nearest, shown
from koalapy.model.units import DAY, MILLISECOND, Duration, format_duration, parse_duration, parse_size

LONGEST_DURATION = Duration(3650 * DAY)
LARGEST_NUMBER = 10**15
_LONGEST_WORD = 255
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_WORD = re.compile(r"[^\s-]\S*")
_TRUE, _FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})


class Section(BaseModel):
    """A part of a file: frozen, and with none but its own keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False)


def wrong(what: str, advice: str, code: str = "wrong_value", key: str = "") -> PydanticCustomError:
    """The error for a value: `what` goes on after the key's name. `key` names one of the section's own keys."""
    context = {"what": what, "advice": advice, "key": key}
    return PydanticCustomError("koala", "{what}", {**context, "code": code})


def as_text(value: object) -> str:
    """Text as it was written; numbers and truth values of a mapping as a file would have them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise wrong(f"is {kind_of(value)} where text belongs", 'Write text; quotes make text of anything, "" is empty.')
    return _clean(_written(value))


def as_line(value: object) -> str:
    """Text of one line, not empty, as it can stand in a batch script."""
    text = as_text(value)
    if not text.strip():
        raise wrong("is empty", "Write its value, or remove the key.")
    if any((ord(character) < 32 and character != "\t") or character in "\x7f\x85\u2028\u2029" for character in text):
        raise wrong("holds a line break or control character", "Write it on one line.")
    return text


def as_word(value: object) -> str:
    """A name of the batch system's: no spaces, and no option in disguise."""
    text = as_line(value)
    if not _WORD.fullmatch(text) or len(text) > _LONGEST_WORD:
        raise wrong(
            f"is {shown(text)}, which is no name", "Write a name without spaces that does not begin with a dash."
        )
    return text


def as_number(value: object) -> int:
    """A whole number in decimal digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _bounded(str(value) if abs(value) < LARGEST_NUMBER else "9" * 40)
    if isinstance(value, Plain) and _INTEGER.fullmatch(value):
        return _bounded(value)
    quoted = " Remove the quotes." if type(value) is str and _INTEGER.fullmatch(value) else ""
    what = shown(value) if isinstance(value, str | float) else kind_of(value)
    raise wrong(f"is {what}, not a whole number", f"Write decimal digits only, such as 4.{quoted}")


def as_flag(value: object) -> bool:
    """true or false, also yes, no, on and off."""
    if isinstance(value, bool):
        return value
    word = value.casefold() if isinstance(value, Plain) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise wrong(
        f"is {shown(value) if isinstance(value, str) else kind_of(value)}, not a truth value", "Write true or false."
    )


def as_duration(value: object) -> Duration:
    """`90s`, `10m`, `2h`, `30d`."""
    try:
        text = value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
        duration = parse_duration(text[:40])
    except (ValueError, OverflowError):
        raise wrong(
            f"is {_named(value)}, not a duration", "Write a number and its unit: 90s, 10m, 2h or 30d."
        ) from None
    if duration > LONGEST_DURATION:
        raise wrong(f"is {shown(value)}, longer than {format_duration(LONGEST_DURATION)}", "Write a shorter time.")
    return duration


def as_size(value: object) -> int:
    """Bytes of `512M` or `4G` (binary). A bare number is refused: batch systems do not agree on its unit."""
    try:
        text = value[:40] if isinstance(value, str) else ""
        if text.strip().isdecimal():
            raise ValueError
        size = parse_size(text)
    except ValueError:
        raise wrong(f"is {_named(value)}, not a size", "Write a number and its unit: 512M or 4G.") from None
    if not 1 << 20 <= size < 1 << 60:
        raise wrong(f"is {shown(value)}, which is too {'small' if size < 1 << 20 else 'large'}", "Write at least 1M.")
    return size


def at_least(least: int) -> AfterValidator:
    """For numbers."""

    def check(number: int) -> int:
        if number < least:
            raise wrong(f"is {number}, less than {least}", f"Write {least} or more.")
        return number

    return AfterValidator(check)


def at_most(most: int) -> AfterValidator:
    """For numbers."""

    def check(number: int) -> int:
        if number > most:
            said = shown(number) if number < LARGEST_NUMBER else "absurdly large"
            raise wrong(f"is {said}, more than {most}", f"Write {most} or less.")
        return number

    return AfterValidator(check)


def lasting(least: Duration) -> AfterValidator:
    """For durations: no shorter than this."""

    def check(duration: Duration) -> Duration:
        if duration < least:
            raise wrong(
                f"is {format_duration(duration)}, shorter than {format_duration(least)}", "Write a longer time."
            )
        return duration

    return AfterValidator(check)


def as_list(value: object) -> list[object]:
    """A list; one value is not taken for a list of one."""
    if isinstance(value, list | tuple):
        return list(value)
    example = f"[{shown(value, quote='')}]" if isinstance(value, str) and value else "[a, b]"
    raise wrong(f"is {kind_of(value)} where a list belongs", f"Write it in brackets: {example}.")


def as_mapping(value: object) -> dict[object, object]:
    """Keys and values."""
    if isinstance(value, dict):
        return value
    raise wrong(
        f"is {kind_of(value)} where keys and values belong", "Write `key: value` lines below it, or {key: value}."
    )


def one_of(words: type[StrEnum]) -> BeforeValidator:
    """A choice: one of the words of an enum."""
    known = [word.value for word in words]

    def read(value: object) -> StrEnum:
        text = as_line(value)
        if text in known:
            return words(text)
        meant = nearest(text, known)
        raise wrong(f"is {shown(text)}", f"Did you mean {meant}?" if meant else f"Write {listed(known)}.")

    return BeforeValidator(read)


Text = Annotated[str, BeforeValidator(as_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Line = Annotated[str, BeforeValidator(as_line), WithJsonSchema({"type": "string", "minLength": 1})]
Word = Annotated[
    str,
    BeforeValidator(as_word),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^[^\s-]\S*$", "maxLength": 255}),
]
Number = Annotated[int, BeforeValidator(as_number)]
Positive = Annotated[Number, at_least(1), Field(json_schema_extra={"minimum": 1})]
Count = Annotated[Number, at_least(0), Field(json_schema_extra={"minimum": 0})]
Flag = Annotated[bool, BeforeValidator(as_flag)]
Span = Annotated[
    Duration,
    BeforeValidator(as_duration),
    PlainSerializer(lambda duration: _duration_text(duration), return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": r"^(\d+(\.\d+)?\s*(ms|s|m|h|d))+$", "examples": ["90s", "10m", "2h", "30d"]}
    ),
]
Size = Annotated[
    int,
    BeforeValidator(as_size),
    PlainSerializer(lambda size: f"{size}B", return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^\d+\s*[KMGTkmgt]?i?B?$", "examples": ["512M", "4G"]}),
]


def _duration_text(duration: Duration) -> str:
    whole = format_duration(duration)
    return whole if parse_duration(whole) == duration else f"{duration / MILLISECOND:.3f}ms"


def _bounded(digits: str) -> int:
    """The number, or one beyond any limit: longer texts cost Python an error of its own."""
    number = int(digits[:20])
    return number if abs(number) < LARGEST_NUMBER else LARGEST_NUMBER * (-1 if number < 0 else 1)


def _written(value: str | int | float) -> str:
    return str.__str__(value) if isinstance(value, str) else str(value) if abs(value) < LARGEST_NUMBER else repr(value)


def _clean(text: str) -> str:
    if "\0" in text:
        raise wrong("holds a NUL character", "Remove it; no program can be given one.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise wrong("is not valid Unicode text", "Write it in UTF-8.") from None
    return text


def _named(value: object) -> str:
    return shown(value) if isinstance(value, str | int | float) else kind_of(value)
