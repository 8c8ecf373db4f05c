"""A reader for the jobs of a log, line by line, in any format, with the handling of lines that are not valid."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from koalapy.experiments.workloads.lines import bad_line, read_lines
from koalapy.model.errors import RequestError
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.units import Duration


class Ended(StrEnum):
    """How a job of a log ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job of a log. `submitted` counts from the log's beginning. Unknown values are None or an empty text.

    `processors` are those that it took, else those that it requested; 0 for a job that never ran. `site`: the part of
    the system where it was submitted (SWF's partition, GWF's OrigSiteID).
    """

    number: int
    submitted: Duration
    processors: int
    runtime: Duration | None = None
    waited: Duration | None = None
    requested: Duration | None = None
    memory_per_processor: int | None = None  # bytes
    user: str = ""
    group: str = ""
    queue: str = ""
    site: str = ""
    ended: Ended = Ended.UNKNOWN

    @property
    def ran(self) -> bool:
        """Return whether the job can be run again: it took processors for a known time."""
        return self.runtime is not None and self.processors > 0


def processors_of(allocated: int | None, requested: int | None, runtime: Duration | None, ended: Ended) -> int:
    """Return the processors of a job, as defined in `TraceJob`.

    A run time of 0 on no or unknown processors means that the job never ran, whatever it requested. So does a run time
    of 0 of a cancelled job: some logs have it instead of -1.
    """
    if runtime == 0 and (not allocated or ended is Ended.CANCELLED):
        return 0
    return allocated or requested or 0


Parse = Callable[[str, Counter[str]], TraceJob]  # of a line; what it ignores is counted by its kind
LENIENT = "Correct it, or read the file with --lenient, which skips such lines and counts them."
_MOST_COMMENTS = 10_000
_UNKNOWN = ("-1", "")
_TOO_LARGE = 1e15


class BadField(ValueError):
    """An error in a line. Its text ends a sentence that begins with the line's number; `kind` is its category."""

    def __init__(self, what: str, kind: str) -> None:
        super().__init__(what)
        self.kind = kind


class TooFewFields(BadField):
    def __init__(self, found: int, needed: int) -> None:
        super().__init__(f"has {found} fields where {needed} are needed", "of another number of fields")
        self.found, self.needed = found, needed


class TraceReader:
    """The jobs of one file, in its order.

    `line` is that of the last job. `skipped` counts the lines that a lenient reader left out, by kind, and `ignored`
    those of which a part was ignored. `comments`: the header as it stands, 10,000 lines at most. `advice`: what to do
    about a line that is not valid.

    The iteration raises RequestError, with the number of the line, for the first line that is not valid. A lenient
    reader raises it only if all lines have the same too small number of fields.
    """

    def __init__(self, path: Path, comment: str, parse: Parse, lenient: bool, advice: str) -> None:
        self.header: dict[str, str] = {}
        self.comments: list[str] = []
        self.line = 0
        self.skipped: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self._path, self._comment, self._parse = path, comment, parse
        self._lenient, self._advice = lenient, advice

    def __iter__(self) -> Iterator[TraceJob]:
        first = True
        for number, line in read_lines(self._path):
            if line.startswith(self._comment):
                self._note(line)
            elif line.strip():
                job = self._job(number, line, first)
                first = False
                if job is not None:
                    self.line = number
                    yield job

    def _job(self, number: int, line: str, first: bool) -> TraceJob | None:
        try:
            return self._parse(line, self.ignored)
        except BadField as error:
            if first and isinstance(error, TooFewFields):
                self._refuse_other_format(number, error)
            if not self._lenient:
                raise self._bad(number, error) from error
            self.skipped[error.kind] += 1
            return None

    def _refuse_other_format(self, first: int, error: TooFewFields) -> None:
        """Check the other lines if the first one has too few fields.

        Raises RequestError if all lines, at least two, have as few fields: the file then has another format.
        """
        count = 0
        for number, line in read_lines(self._path):
            if number < first or line.startswith(self._comment) or not line.strip():
                continue
            try:
                self._parse(line, Counter())
                return
            except TooFewFields as other:
                if other.found != error.found:
                    return
            except BadField:
                return
            count += 1
        if count > 1:
            what = f"has {error.found} fields where {error.needed} are needed, and so have all {count:,} lines"
            advice = "Is it in another format? Write fields that the log does not have as -1, in their places."
            raise bad_line(self._path, first, what, advice) from error

    def _bad(self, number: int, error: BadField) -> RequestError:
        return bad_line(self._path, number, str(error), self._advice)

    def _note(self, line: str) -> None:
        """Note a header line such as `; MaxProcs: 128`. The first line of a name counts; later ones are left out."""
        if len(self.comments) < _MOST_COMMENTS:
            self.comments.append(line.lstrip(self._comment).rstrip())
        name, colon, value = line.lstrip(self._comment + " \t").partition(":")
        if colon and name and " " not in name:
            self.header.setdefault(name, value.strip())


class Fields:
    """The fields of one line by their columns; -1 stands for an unknown value. `ignored` counts further fields."""

    def __init__(self, texts: list[str], names: tuple[str, ...], needed: int, ignored: Counter[str]) -> None:
        if len(texts) < needed:
            raise TooFewFields(len(texts), needed)
        if len(texts) > len(names):
            ignored[f"of more than {len(names)} fields, the rest of which is ignored"] += 1
        self._texts, self._places = texts + ["-1"] * (len(names) - len(texts)), _places(names)

    def text(self, name: str) -> str:
        """Return the text of a field; empty if it is unknown."""
        text = self._texts[self._places[name]]
        return "" if text == "-1" else text

    def number(self, name: str) -> float | None:
        """Return the field as a number; None for -1 (unknown). Raises BadField for text and other negative numbers."""
        return self.numbers(name)[0]

    def numbers(self, *names: str) -> list[float | None]:
        """Return several fields as `number` does, at a lower cost. Raises BadField."""
        texts = [self._texts[self._places[name]] for name in names]
        try:
            found = [None if text in _UNKNOWN else float(text) for text in texts]
        except ValueError:
            found = [_number(name, text) for name, text in zip(names, texts, strict=True)]  # raises for the first one
        for place, value in enumerate(found):
            if value is not None and not 0 <= value < _TOO_LARGE:
                found[place] = _number(names[place], texts[place])
        return found


def _number(name: str, text: str) -> float | None:
    """Return a field that is not an ordinary number: None for -1. Raises BadField for any other."""
    try:
        value = float(text or -1)
    except ValueError:
        raise BadField(f"has {text[:40]!r} for {name}, which is not a number", "with words for numbers") from None
    if value == -1:
        return None
    if not 0 <= value < _TOO_LARGE:  # also refuses not-a-number
        raise BadField(f"has {text[:40]!r} for {name}, which cannot be", "with negative or too large numbers")
    return value


def needed(name: str, value: float | None) -> float:
    """Return the value of a field. Raises BadField if it is unknown."""
    if value is None:
        raise BadField(f"has no {name}", f"without {name}")
    return value


def whole(name: str, value: float | None) -> int | None:
    """Return the value of a field as a whole number. Raises BadField for a fraction."""
    if value is None:
        return None
    if value.is_integer():
        return int(value)
    raise BadField(f"has '{value:g}' for {name}, which is not a whole number", "with parts of processors")


def counts_text(counted: Mapping[str, int]) -> str:
    """Return counts as text: `3 that never ran, 1 larger than any cluster`."""
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counted.items(), key=lambda each: -each[1]))


@cache
def _places(names: tuple[str, ...]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}
