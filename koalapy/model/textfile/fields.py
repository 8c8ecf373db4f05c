"""The types of a file's values. Each reads what was written, and refuses the rest with advice."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function

from koalapy.model.request import MAX_PROCESSORS, Moment
from koalapy.model.textfile.document import Path, Plain, kind_of
from koalapy.model.textfile.words import HIDDEN, listed, nearest, shown
from koalapy.model.units import (
    DAY,
    HOUR,
    MILLISECOND,
    SECOND,
    Duration,
    Instant,
    format_duration,
    parse_duration,
    parse_size,
)

LONGEST_DURATION = Duration(3650 * DAY)
_LONGEST_LINE, _LONGEST_WORD = 4_096, 255
_LONGEST_MEASURE = 40
_MOST_DIGITS = 15
_KEYS_SHOWN = 3  # of a mapping in an advice
_LARGEST = 10**40  # of a mapping's numbers; Python refuses to write very long ones
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_HOURS, _MOST_HOURS = re.compile(r"\d{1,12}(\.\d{1,15})?(e-\d{1,2})?", re.ASCII), 100_000_000
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[-+]\d\d:\d\d)?)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WORD = re.compile(r"[^\s-]\S*")
_TRUE, _FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})


class Section(BaseModel):
    """A part of a file: frozen, and without foreign keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False)


def wrong(what: str, advice: str, code: str = "wrong_value", at: Path = ()) -> PydanticCustomError:
    """Return the error for a value. `what` continues after the key's name.

    `at`: the place below the section, if any.
    """
    return PydanticCustomError("koala", "{what}", {"what": what, "advice": advice, "code": code, "at": at})


def as_text(value: object) -> str:
    """Return text as it was written, with numbers and truth values of a mapping as a file would have them.

    Raises PydanticCustomError for other values, or for text that no program can take.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise wrong(f"is {kind_of(value)} where text belongs", 'Write text; quotes make text of anything, "" is empty.')
    return _clean(_written(value))


def as_line(value: object) -> str:
    """Return text of one line, not empty, as it can stand in a batch script.

    Raises PydanticCustomError for the rest.
    """
    text = as_text(value)
    if not text.strip():
        raise wrong("is empty", "Write its value, or remove the key.")
    if len(text) > _LONGEST_LINE:
        raise wrong(f"has {len(text)} characters, more than {_LONGEST_LINE}", "Write a shorter one.")
    if not is_one_line(text):
        raise wrong("holds a line break or control character", "Write it on one line, without control characters.")
    return text


def is_one_line(text: str) -> bool:
    """Return whether the text has no line break and no control character but the tab, bidirectional ones included."""
    return "\n" not in text and HIDDEN.search(text) is None


def as_word(value: object) -> str:
    """Return a name of the batch system's. Raises PydanticCustomError if it has spaces or begins with a dash."""
    text = as_line(value)
    if not _WORD.fullmatch(text) or len(text) > _LONGEST_WORD:
        raise wrong(
            f"is {shown(text)}, which is not a valid name",
            "Write a name without spaces that does not begin with a dash.",
        )
    return text


def as_number(value: object) -> int:
    """Return a whole number that is written in decimal digits. Raises PydanticCustomError for other values."""
    digits = str(value) if isinstance(value, Plain) or _is_small(value) else ""
    if len(digits) > _MOST_DIGITS and _INTEGER.fullmatch(digits):
        raise wrong("is absurdly large", "Write a number that a cluster could have.")
    if _INTEGER.fullmatch(digits):
        return int(digits)
    quoted = " Remove the quotes." if type(value) is str and _INTEGER.fullmatch(value) else ""
    raise wrong(f"is {_named(value)}, not a whole number", f"Write decimal digits only, such as 4.{quoted}")


def as_flag(value: object) -> bool:
    """Return the value of true or false, also of yes, no, on and off. Raises PydanticCustomError for other values."""
    if isinstance(value, bool):
        return value
    word = value.casefold() if isinstance(value, Plain) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise wrong(f"is {_named(value)}, not a truth value", "Write true or false.")


def as_duration(value: object) -> Duration:
    """Return the duration of `90s`, `10m`, `2h` or `30d`.

    Raises PydanticCustomError for other values, or too long ones.
    """
    try:
        duration = parse_duration(_short(value))
    except (ValueError, OverflowError):
        raise wrong(f"is {_named(value)}, not a duration", "Write number and unit: 90s, 10m, 2h or 30d.") from None
    if duration > LONGEST_DURATION:
        raise wrong(f"is {shown(value)}, longer than {format_duration(LONGEST_DURATION)}", "Write a shorter time.")
    return duration


def as_size(value: object) -> int:
    """Return the bytes of `512M` or `4G` (binary). Raises PydanticCustomError for other values.

    A bare number is refused: batch systems do not agree on its unit.
    """
    try:
        text = _short(value)
        size = 0 if text.strip().isdecimal() else parse_size(text)
    except ValueError:
        size = 0
    if not size:
        raise wrong(f"is {_named(value)}, not a size", "Write number and unit: 512M or 4G.")
    if not 1 << 20 <= size < 1 << 53:
        raise wrong(f"is {shown(value)}, which is too {'small' if size < 1 << 20 else 'large'}", "Write 1M or more.")
    return size


def as_moment(value: object) -> Moment:
    """Return the instant that is written, or the time after the submission, such as `3d` or `+2h`.

    An instant without an offset is one of the local clock. Raises PydanticCustomError for other values.
    """
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        try:
            instant = (datetime.fromisoformat(value).astimezone() - _EPOCH) // timedelta(microseconds=1)
        except (ValueError, OverflowError):
            raise wrong(f"is {shown(value)}, which is no instant", "Write it like 2030-01-31T20:00.") from None
        return Moment(instant=Instant(instant))
    try:
        after = as_duration(type(value)(value.removeprefix("+")) if isinstance(value, str) else value)
    except PydanticCustomError:
        advice = "Write it like 2030-01-31T20:00, or as a time from the submission on: 2h or 3d."
        raise wrong(f"is {_named(value)}, neither an instant nor a duration", advice) from None
    if after < SECOND:
        raise wrong(f"is {format_duration(after)}, shorter than 1s", "Write a longer time.")
    return Moment(after=after)


def as_processor_hours(value: object) -> int:
    """Return the processor-microseconds of a number of processor hours, such as 4 or 0.5.

    Raises PydanticCustomError for other values, for 0, and for more than could ever be used.
    """
    is_number = isinstance(value, Plain | float) or _is_small(value)
    if not is_number or not _HOURS.fullmatch(text := str(value)):
        raise wrong(f"is {_named(value)}, not a number of processor hours", "Write decimal digits, such as 4 or 0.5.")
    found = round(float(text) * HOUR)
    if not 0 < found <= _MOST_HOURS * HOUR:
        what = "is 0" if not found else f"is more than {_MOST_HOURS:,}"
        raise wrong(what, f"Write a number above 0, up to {_MOST_HOURS:,}; without the key there is no bound.")
    return found


@dataclass(frozen=True, slots=True)
class Between:
    """A bound of numbers, both ends included."""

    least: int
    most: int

    def check(self, number: int) -> int:
        """Return the number. Raises PydanticCustomError if it is out of bounds."""
        if number < self.least:
            raise wrong(f"is {number}, less than {self.least}", f"Write {self.least} or more.")
        if number > self.most:
            raise wrong(f"is {number}, more than {self.most}", f"Write {self.most} or less.")
        return number

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "minimum": self.least, "maximum": self.most}


def lasting(least: Duration) -> AfterValidator:
    """Return a validator that refuses shorter durations than this."""

    def check(duration: Duration) -> Duration:
        if duration < least:
            raise wrong(
                f"is {format_duration(duration)}, shorter than {format_duration(least)}", "Write a longer time."
            )
        return duration

    return AfterValidator(check)


def as_list(value: object) -> list[object]:
    """Return a list. Raises PydanticCustomError for the rest: one value is not taken for a list of one."""
    if isinstance(value, list | tuple):
        return list(value)
    words = [value] if isinstance(value, str) and value else []
    if words and words[0].startswith("-"):  # options of a program, each an argument
        words = words[0].split()
    example = f"[{', '.join(shown(word, quote='') for word in words)}]" if words else "[a, b]"
    raise wrong(f"is {kind_of(value)} where a list belongs", f"Write it in brackets: {example}.")


def as_entries(value: object) -> list[object]:
    """Return a list of mappings as it is. Raises PydanticCustomError for the rest, as for one mapping alone."""
    if isinstance(value, dict) and value:
        entry = next((each for each in value.values() if isinstance(each, dict) and each), value)
        keys = ", ".join(f"{shown(key, quote='')}: …" for key in list(entry)[:_KEYS_SHOWN])
        raise wrong("is a mapping where a list belongs", f"Begin each entry with a dash: `- {{{keys}}}`.")
    return as_list(value)


def as_mapping(value: object) -> dict[object, object]:
    """Return keys and values. Raises PydanticCustomError for a value that is not a mapping."""
    if isinstance(value, dict):
        return value
    raise wrong(
        f"is {kind_of(value)} where keys and values belong", "Write `key: value` lines below it, or {key: value}."
    )


def one_of(words: type[StrEnum]) -> BeforeValidator:
    """Return a validator that accepts the words of an enum."""
    known = [word.value for word in words]

    def read(value: object) -> StrEnum:
        text = as_line(value)
        if text in known:
            return words(text)
        meant = nearest(text, known)
        raise wrong(f"is {shown(text)}", f"Did you mean {meant}?" if meant else f"Write {listed(known)}.")

    return BeforeValidator(read)


def _version(number: int) -> int:
    if number != 1:
        advice = "Write koala: 1, or use the koalapy that wrote this file."
        raise wrong(f"is {number}, and this version reads 1 only", advice, "other_version")
    return number


Text = Annotated[str, BeforeValidator(as_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Line = Annotated[str, BeforeValidator(as_line), WithJsonSchema({"type": "string", "minLength": 1})]
Word = Annotated[
    str,
    BeforeValidator(as_word),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^[^\s-]\S*$", "maxLength": 255}),
]
Number = Annotated[int, BeforeValidator(as_number)]
Version = Annotated[Number, AfterValidator(_version), WithJsonSchema({"const": 1})]
Positive = Annotated[Number, Between(1, MAX_PROCESSORS)]
Count = Annotated[Number, Between(0, MAX_PROCESSORS)]
Flag = Annotated[bool, BeforeValidator(as_flag)]
Span = Annotated[
    Duration,
    BeforeValidator(as_duration),
    PlainSerializer(lambda duration: _duration_text(duration), return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": r"^(\d+(\.\d+)?\s*(ms|s|m|h|d))+$", "examples": ["90s", "10m", "2h", "30d"]}
    ),
]
When = Annotated[
    Moment,
    BeforeValidator(as_moment),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "minLength": 2, "examples": ["2030-01-31T20:00", "2030-01-31T20:00:00Z", "2h"]}),
]
ProcessorHours = Annotated[
    int,
    BeforeValidator(as_processor_hours),
    PlainSerializer(lambda held: held / HOUR, return_type=float),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": _MOST_HOURS}),
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


def _is_small(value: object) -> bool:
    """Return whether the value is an int that Python agrees to write."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST


def _written(value: str | int | float) -> str:
    """Return a number of a mapping as a file would have it. Raises PydanticCustomError for a very long one."""
    try:
        return str(value)
    except ValueError:
        raise wrong("is absurdly large", "Write it in quotes.") from None


def _clean(text: str) -> str:
    if "\0" in text:
        raise wrong("holds a NUL character", "Remove it; no program can be given one.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise wrong("is not valid Unicode text", "Write it in UTF-8.") from None
    return text


def _short(value: object) -> str:
    """Return text that cannot cost much to read. Raises ValueError for all else."""
    if not isinstance(value, str) or len(value) > _LONGEST_MEASURE:
        raise ValueError("no duration or size is as long as that")
    return str(value)


def _named(value: object) -> str:
    return shown(value) if isinstance(value, str | float) or _is_small(value) else kind_of(value)
