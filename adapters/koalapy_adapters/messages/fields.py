"""The types and bounds of the fields of messages, and the readers that check a JSON object against them.

A message is a NamedTuple. The annotation of each of its fields is, at run time, a check: a function of a JSON value
that returns the value, or raises MessageError. To a type checker it is the plain type of the value. `reader` makes one
function of all checks of a message; both ends of a connection use the same.
"""

import math
import re
import reprlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence, Tuple, Type, Union

Json = Dict[str, Any]
Rows = List[List[Any]]
Check = Callable[[Any], Any]

MOST_ITEMS = 200000  # of a list; a frame has no room for more of them
MOST_NUMBERS = 1 << 53  # what JSON's other readers, and doubles, hold exactly
_LONG_NAME = 256
_LONG_LINE = 1 << 12
_LONG_WORDS = 1 << 16
_FEW = 6  # values of a list that are looked at one by one
_DEEP = 12  # levels of the details of an answer

_MISSING = object()
_ALL_PASS: Dict[Check, Callable[[Sequence[Any]], bool]] = {}  # the same for many values at once, where that is faster
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60
_REPR.maxlevel = 3
# Controls, line separators, marks that turn the direction of writing, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class MessageError(ValueError):
    """A message that this side does not understand; `place` is its type, and the field that is wrong."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__("%s: %s" % (place, problem) if place else problem)
        self.problem, self.place = problem, place

    def inside(self, place: str) -> "MessageError":
        """The same error, seen from what holds the value."""
        return MessageError(self.problem, place + self.place)


# ---- checks


def whole(least: int, most: int) -> Check:
    """A whole number of these bounds, both included; true and false are none."""

    def check(value: Any) -> Any:
        if type(value) is int and least <= value <= most:
            return value
        raise MessageError("%s is not a whole number from %d to %d" % (shown(value), least, most))

    _ALL_PASS[check] = lambda values: set(map(type, values)) == {int} and least <= min(values) <= max(values) <= most
    return check


def number(least: float, most: float) -> Check:
    """A finite number of these bounds, both included."""

    def check(value: Any) -> Any:
        if type(value) in (int, float) and math.isfinite(value) and least <= value <= most:
            return value
        raise MessageError("%s is not a number from %g to %g" % (shown(value), least, most))

    return check


def yes_or_no(value: Any) -> Any:
    """Check a flag: true or false. Raises MessageError."""
    if value is True or value is False:
        return value
    raise MessageError("%s is neither true nor false" % shown(value))


def name(longest: int) -> Check:
    """A text by which something is known: refused if it is too long, or holds what cannot be printed."""

    def check(value: Any) -> Any:
        if type(value) is str and len(value) <= longest:
            if value.isprintable() or not _UNPRINTABLE.search(value):
                return value
            raise MessageError("%s holds control characters" % shown(value))
        raise MessageError("%s is not a text of at most %d characters" % (shown(value), longest))

    def all_pass(values: Sequence[Any]) -> bool:
        return set(map(type, values)) == {str} and max(map(len, values)) <= longest and "".join(values).isprintable()

    _ALL_PASS[check] = all_pass
    return check


def line(value: Any) -> Any:
    """Check a line that is only shown. It is cut, and control characters are spelled out. Raises MessageError."""
    if type(value) is str:
        if value.isprintable() and len(value) <= _LONG_LINE:
            return value
        return _UNPRINTABLE.sub(_spelled_in_line, value[:_LONG_LINE])
    raise MessageError("%s is not a text" % shown(value))


def words(value: Any) -> Any:
    """Check a text that is only shown: as `line`, but line ends and tabs stay. Raises MessageError."""
    if type(value) is str:
        if value.isprintable() and len(value) <= _LONG_WORDS:
            return value
        return _UNPRINTABLE.sub(_spelled, value[:_LONG_WORDS].replace("\r\n", "\n"))
    raise MessageError("%s is not a text" % shown(value))


def content(value: Any) -> Any:
    """Check a text of a user, such as an argument: any text is accepted. Raises MessageError for another type."""
    if type(value) is str:
        return value
    raise MessageError("%s is not a text" % shown(value))


def sized(most: int) -> Check:
    """A text of a user's of at most so many bytes as UTF-8."""

    def check(value: Any) -> Any:
        if len(content(value)) <= most and len(value.encode("utf-8", "replace")) <= most:
            return value
        raise MessageError("a text of %d characters is longer than %d bytes" % (len(value), most))

    return check


def many(check: Check, most: int = MOST_ITEMS) -> Check:
    """A list of at most so many values, each of which passes the check."""

    all_pass = _ALL_PASS.get(check)

    def check_all(value: Any) -> Any:
        if type(value) is not list and type(value) is not tuple:  # a tuple before it is sent
            raise MessageError("%s is not a list" % shown(value))
        if len(value) > most:
            raise MessageError("a list of %d is longer than %d" % (len(value), most))
        if len(value) > _FEW and all_pass is not None and all_pass(value):
            return value
        try:
            return [check(each) for each in value]
        except MessageError as error:
            raise error.inside("[%d]" % _first_wrong(check, value)) from None

    return check_all


def row(*checks: Check) -> Check:
    """A list of as many values as there are checks, each of which passes its own."""

    def check_each(value: Any) -> Any:
        if (type(value) is not list and type(value) is not tuple) or len(value) != len(checks):
            raise MessageError("%s is not a list of %d" % (shown(value), len(checks)))
        try:
            return [check(each) for check, each in zip(checks, value)]
        except MessageError as error:
            wrong = [passes(check, each) for check, each in zip(checks, value)].index(False)
            raise error.inside("[%d]" % wrong) from None

    columns = [_ALL_PASS.get(check) for check in checks]

    def all_pass(values: Sequence[Any]) -> bool:
        if not set(map(type, values)) <= {list, tuple} or set(map(len, values)) != {len(checks)}:
            return False
        return all(passes is not None and passes(column) for passes, column in zip(columns, zip(*values)))

    _ALL_PASS[check_each] = all_pass
    return check_each


def ranges(most: int = MOST_NUMBERS) -> Check:
    """Lists of [first, last], both included and at least 1; of at most so many numbers in all."""
    pairs = many(row(whole(1, MOST_NUMBERS), whole(0, MOST_NUMBERS)))

    def check(value: Any) -> Any:
        value = pairs(value)
        count = sum(last - first + 1 for first, last in value if first <= last)
        if count > most:
            raise MessageError("ranges of %d numbers are more than %d" % (count, most))
        return value

    return check


def optional(check: Check) -> Check:
    """A value that passes the check, or null."""

    def check_some(value: Any) -> Any:
        return None if value is None else check(value)

    return check_some


def fields_of(kind: Type[Any]) -> Check:
    """A JSON object with fields of this NamedTuple, not all perhaps; it stays an object, without those unknown."""
    table = _table(kind)

    def check_all(value: Any) -> Any:
        if type(value) is not dict:
            raise MessageError("%s is not an object" % shown(value))
        there = [(field, check, default) for field, check, default in table if field in value]
        try:
            return {field: check(value[field]) for field, check, _ in there}
        except MessageError as error:
            raise _placed(there, value, error) from None

    return check_all


def body(value: Any) -> Any:
    """Check a JSON object whose fields its receiver reads itself. Raises MessageError."""
    if type(value) is dict:
        return value
    raise MessageError("%s is not an object" % shown(value))


def details(value: Any) -> Any:
    """Check a JSON object of finite depth, with bounded numbers and printable texts. Raises MessageError."""
    if type(value) is not dict:
        raise MessageError("%s is not an object" % shown(value))
    return _plain(value, _DEEP)


_any_whole, _any_number = whole(-MOST_NUMBERS, MOST_NUMBERS), number(-1e300, 1e300)
_any_size = whole(-(1 << 63), 1 << 63)  # the bytes of a large file system are more than 2**53


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return words(value)
    if kind is int:
        return _any_size(value)
    if value is None or kind is bool:
        return value
    if kind is float:
        return _any_number(value)
    if depth == 0:
        raise MessageError("is nested deeper than %d" % _DEEP)
    if kind is list:
        return [_plain(each, depth - 1) for each in value]
    if kind is dict:
        return {content(key): _plain(each, depth - 1) for key, each in value.items()}
    raise MessageError("%s is nothing of JSON" % shown(value))


# ---- what fields are annotated with

if TYPE_CHECKING:
    Flag = bool
    Whole = int  # any of at most 2**53
    Count = int  # none or more
    Number = int  # counted from 1
    Processors = int  # or nodes, of one cluster
    Instant = int  # microseconds
    Epoch = int
    Status = int  # of an exit
    Cost = float  # seconds
    Tag = str
    Name = str  # by which something is known
    LongName = str
    Line = str  # to be shown
    Words = str  # to be shown, on several lines
    Content = str  # a user's
    Ranges = List[List[int]]
    FewRanges = List[List[int]]  # of what one Launcher has at one time
    Body = Json
    Details = Json
else:
    Flag = yes_or_no
    Whole = _any_whole
    Count = whole(0, MOST_NUMBERS)
    Number = whole(1, MOST_NUMBERS)
    Processors = whole(0, 10**9)
    Instant = _any_whole
    Epoch = whole(0, 1 << 62)
    Status = whole(-(1 << 32), 1 << 32)
    Cost = number(0, 1e12)
    Tag = name(64)
    Name = name(_LONG_NAME)
    LongName = name(_LONG_LINE)
    Line = line
    Words = words
    Content = content
    Ranges = ranges()
    FewRanges = ranges(1 << 20)
    Body = body
    Details = details

_PLAIN: Dict[Any, Check] = {
    int: _any_whole,
    float: _any_number,
    bool: yes_or_no,
    str: name(_LONG_LINE),
    Json: body,
    Any: lambda value: value,
}


# ---- readers

_Table = List[Tuple[str, Check, Any]]  # name, check and default of each field


def reader(kind: Type[Any]) -> Callable[[Any], Any]:
    """The function that makes this NamedTuple of a JSON object; it ignores fields that are unknown.

    It raises MessageError, with the name of the field, for an object that misses one or has a wrong value.
    """
    table = _table(kind)
    new = tuple.__new__

    def read(data: Any) -> Any:
        try:
            get = data.get
            return new(kind, [check(get(field, default)) for field, check, default in table])
        except (MessageError, AttributeError) as error:
            if type(data) is not dict:
                raise MessageError("%s is not an object" % shown(data)) from None
            if isinstance(error, MessageError):
                raise _placed(table, data, error) from None
            raise

    return read


def _table(kind: Type[Any]) -> _Table:
    defaults = kind._field_defaults
    hints = kind.__annotations__
    return [(field, _check_of(hints[field]), defaults.get(field, _MISSING)) for field in kind._fields]


def _check_of(hint: Any) -> Check:
    """The check that an annotation stands for."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = getattr(hint, "__origin__", None), list(getattr(hint, "__args__", None) or ())
    if origin in (list, List):
        return many(_check_of(inner[0]))
    if origin is Union and len(inner) == 2 and inner[1] is type(None):
        return optional(_check_of(inner[0]))
    if origin is None and callable(hint) and not isinstance(hint, type):
        check: Check = hint
        return check
    raise TypeError("%r does not state what a field may hold" % (hint,))


def _paired(table: _Table, data: Json) -> List[Tuple[str, Check, Any]]:
    return [(field, check, data.get(field, default)) for field, check, default in table]


def _placed(table: _Table, data: Any, error: MessageError) -> MessageError:
    """The error with the name of the first field that is wrong."""
    if type(data) is not dict:
        return error
    for field, check, value in _paired(table, data):
        if value is _MISSING:
            return MessageError("is missing", "." + field)
        if not passes(check, value):
            return error.inside("." + field)
    return error


def passes(check: Check, value: Any) -> bool:
    """Return whether the value passes the check."""
    try:
        check(value)
    except MessageError:
        return False
    return True


def _first_wrong(check: Check, values: Sequence[Any]) -> int:
    return next(index for index, each in enumerate(values) if not passes(check, each))


def shown(value: Any) -> str:
    """A value as an error quotes it, in few characters."""
    if value is _MISSING:
        return "what is missing"
    if type(value) is int and value.bit_length() > 128:
        return "a number of %d bits" % value.bit_length()
    return _REPR.repr(value)


def _spelled(match: Any) -> str:
    character: str = match.group()
    if character in "\n\t":
        return character
    return "\\x%02x" % ord(character) if ord(character) < 256 else "\\u%04x" % ord(character)


def _spelled_in_line(match: Any) -> str:
    return " " if match.group() in "\r\n\t" else _spelled(match)
