"""The values that each number of a sweep stands for, and the program's texts with these values in them.

A space is JSON: `koalapy.model.sweep.Space` with its dataclasses as dictionaries. Numbers count from 1. In a text `{x}`
is the value of x, `{#}` the number itself, `{{` and `}}` are braces. The results are bytes, exactly those
that the program gets: UTF-8, and the bytes of a file unchanged.
"""

import csv
import re
from bisect import bisect_right
from operator import itemgetter
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

Json = Dict[str, Any]
ReadLine = Callable[[str, int], bytes]  # of a file, the line of this index from 0, without its end
Value = Callable[[int], bytes]  # of an index from 0

NUMBER = "#"
_PIECE = re.compile(r"(\{\{|\}\}|\{[^{}]*\}|[{}])")


class Compiled:
    """Compiled texts. `of` makes those of one number in some microseconds."""

    def __init__(self, space: Json, texts: Iterable[str], read_line: Optional[ReadLine] = None) -> None:
        """`read_line` reads lines for a space of files. Raises ValueError for a text that is no template."""
        self._count = count(space)
        self._constant: List[bytes] = []
        self._varying: List[Tuple[int, bytes, Callable[[Sequence[bytes]], Any]]] = []
        patterns = [_pattern(text) for text in texts]
        wanted = sorted({name for _, names in patterns for name in names})
        self._dials = _dials(space, wanted, read_line)
        for place, (pattern, names) in enumerate(patterns):
            self._constant.append(b"" if names else pattern % ())
            if names:
                self._varying.append((place, pattern, itemgetter(*[wanted.index(name) for name in names])))

    def of(self, number: int) -> List[bytes]:
        """The texts of a number, in their order.

        Raises ValueError if the sweep does not have the number, or its line of a file cannot be read.
        """
        index = number - 1
        if not 0 <= index < self._count:
            raise ValueError("the sweep has no parameter %d" % number)
        values = [value(index // weight % size) for weight, size, value in self._dials]
        texts = self._constant[:]
        for place, pattern, chosen in self._varying:
            texts[place] = pattern % chosen(values)
        return texts


def values(space: Json, number: int, read_line: Optional[ReadLine] = None) -> Dict[str, str]:
    """The value of each name, in the order of `names`. Bytes that are no UTF-8 become surrogates."""
    wanted = names(space)
    found = Compiled(space, ["{%s}" % name for name in wanted], read_line).of(number)
    return {name: value.decode("utf-8", "surrogateescape") for name, value in zip(wanted, found)}


def names(space: Json) -> List[str]:
    """The names, in the order in which the sweep has them."""
    return [name for axis in space["axes"] for source in axis["sources"] for name in source["names"]]


def count(space: Json) -> int:
    """The number of parameters."""
    product = 1
    for axis in space["axes"]:
        product *= axis["count"]
    return product


def names_in(text: str) -> List[str]:
    """The names in a text, in their order. Raises ValueError for a text that is no template."""
    return _pattern(text)[1]


class _Dial(NamedTuple):
    """A name's position, like a digit of the number. It moves on after `weight` numbers, through `size` values."""

    weight: int
    size: int
    value: Value


def _dials(space: Json, wanted: Sequence[str], read_line: Optional[ReadLine]) -> List[_Dial]:
    """The dials of the names. Raises ValueError for a name that the space does not have."""
    whole = count(space)
    known = {NUMBER: _Dial(1, whole, lambda index: b"%d" % (index + 1))}
    weight = whole
    for axis in space["axes"]:
        weight //= axis["count"]
        for source in axis["sources"]:
            dial = _Dial(weight, axis["count"], _value(source, read_line))
            known.update((name, dial) for name in source["names"])
    for name in wanted:
        if name not in known:
            raise ValueError("no parameter is named %s" % name)
    return [known[name] for name in wanted]


def _value(source: Json, read_line: Optional[ReadLine]) -> Value:
    if source.get("loop"):
        return _loop(source)
    if source.get("file"):
        if read_line is None:
            raise ValueError("nobody reads the file %s" % source["file"])
        return _line(source, read_line)
    return [text.encode("utf-8", "surrogateescape") for text in source["values"]].__getitem__


def _line(source: Json, read_line: ReadLine) -> Value:
    """The line of an index. The first line of a file with columns has their names, and is left out."""
    file, column = source["file"], source.get("column", -1)
    if column < 0:
        return lambda index: read_line(file, index)

    def cell(index: int) -> bytes:
        cells = split(read_line(file, index + 1))
        if column >= len(cells):
            raise ValueError("%s:%d has no column %d" % (file, index + 2, column + 1))
        return cells[column]

    return cell


def split(line: bytes) -> List[bytes]:
    """The cells of a line of comma-separated values, quoted as in RFC 4180. Raises ValueError for an unclosed quote."""
    if b'"' not in line:
        return line.split(b",")
    try:
        cells = next(csv.reader([line.decode("latin-1")], strict=True))  # in which each byte is a character
    except csv.Error as error:
        raise ValueError(str(error)) from None
    return [cell.encode("latin-1") for cell in cells]


def _loop(source: Json) -> Value:
    """first + index * step, in units of the last decimal place, without the excluded values."""
    first, last, step = source["loop"]
    places = max(_places(first), _places(step))
    start, by, write = _scaled(first, places), _scaled(step, places), _writer(places, _width(first, last))
    left_out = _left_out(first, step, source.get("without", ()))
    if not left_out:
        return lambda index: write(start + by * index)
    before = [index - rank for rank, index in enumerate(left_out)]
    return lambda index: write(start + by * (index + bisect_right(before, index)))


def _left_out(first: str, step: str, without: Sequence[str]) -> List[int]:
    """The positions of the excluded values in the loop. Values that the loop does not reach are ignored."""
    found = set()
    for text in without:
        places = max(map(_places, (first, step, text)))
        steps, rest = divmod(_scaled(text, places) - _scaled(first, places), _scaled(step, places))
        if steps >= 0 and not rest:
            found.add(steps)
    return sorted(found)


def _places(text: str) -> int:
    return len(text.partition(".")[2])


def _scaled(text: str, places: int) -> int:
    """A decimal number in units of the decimal place `places` after the point."""
    whole, _, fraction = text.partition(".")
    return int(whole + fraction + "0" * (places - len(fraction)))


def _width(first: str, last: str) -> int:
    """The least number of digits before the point: 001:100 has three, as a shell's {001..100}."""
    digits = [text.lstrip("+-").partition(".")[0] for text in (first, last)]
    padded = any(len(each) > 1 and each.startswith("0") for each in digits)
    return max(map(len, digits)) if padded else 1


def _writer(places: int, width: int) -> Callable[[int], bytes]:
    if places == 0 and width == 1:
        return lambda number: b"%d" % number
    unit = 10**places
    pattern = b"%%s%%0%dd" % width + (b".%%0%dd" % places if places else b"")

    def write(number: int) -> bytes:
        whole, fraction = divmod(abs(number), unit)
        sign = b"-" if number < 0 else b""
        return pattern % ((sign, whole, fraction) if places else (sign, whole))

    return write


def _pattern(text: str) -> Tuple[bytes, List[str]]:
    """A text as a pattern of bytes, and the names whose values are inserted."""
    pattern, found = [], []
    for position, piece in enumerate(_PIECE.split(text)):
        if position % 2 == 0:
            pattern.append(piece.replace("%", "%%"))
        elif piece in ("{{", "}}"):
            pattern.append(piece[0])
        elif len(piece) > 1:
            pattern.append("%b")
            found.append(piece[1:-1])
        else:
            raise ValueError("a lone %s: %s%s is one" % (piece, piece, piece))
    return "".join(pattern).encode("utf-8", "surrogateescape"), found
