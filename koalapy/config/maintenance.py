"""The grid file's list of maintenance tasks: their times and options."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from koalapy.config.hours import HoursError, parse_hours
from koalapy.config.values import registered_word
from koalapy.model.hours import Hours
from koalapy.model.textfile.fields import Flag, Line, Section, Span, Word, as_duration, as_list, one_of, wrong
from koalapy.model.units import Duration
from koalapy.model.usage import By

MAINTENANCE = "maintenance"  # the group of its entry points, without koalapy's name
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # the most days that each month has
_MOST_KEPT = 10_000
_NEEDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # the options that tasks need, and may have
    "prune-history": (("keep",), ("without",)),
    "prune-output": (("keep",), ("without",)),
    "backup": (("to",), ("keep",)),
    "report": (("to",), ("by", "since")),
    "vacuum": ((), ()),
    "check": ((), ()),
    "clean-unknown": (("older_than",), ("really",)),
    "submit": (("file",), ()),
}


def never(hours: Hours) -> bool:
    """Return whether no date matches, such as 30 February."""
    if hours.either_day:
        return False
    return all(day > _DAYS[month - 1] for month in hours.months for day in hours.days)


def _cron(text: str) -> str:
    try:
        hours = parse_hours(text)
    except HoursError as error:
        raise wrong(str(error), error.advice) from error
    if never(hours):
        raise wrong(f"is {text!r}, a day that never comes", "Write a day that the month has.")
    return hours.text


def _keep(value: object) -> int | str:
    """Return a time for prune tasks, such as `90d`, or a number for backups, such as `7`; see the task's check."""
    text = str(value)
    if text.isascii() and text.isdecimal() and len(text) < 10:
        number = int(text)
        if not 1 <= number <= _MOST_KEPT:
            raise wrong(f"is {number}", f"Write a number from 1 to {_MOST_KEPT}.")
        return number
    as_duration(value)
    return text


def _path(text: str) -> str:
    if not text.startswith(("/", "~/")):
        raise wrong(f"is {text!r}, no absolute path", "Begin it with / or ~/.")
    return text


Keep = Annotated[int | str, BeforeValidator(_keep), WithJsonSchema({"type": ["string", "integer"]})]
Path = Annotated[Line, AfterValidator(_path)]


class Maintenance(Section):
    """One task, and when it runs."""

    task: Annotated[str, registered_word(MAINTENANCE, "maintenance task"), WithJsonSchema({"type": "string"})] = Field(
        description="task to run"
    )
    cron: Annotated[Line, AfterValidator(_cron)] = Field(
        description="when: minute, hour, day of the month, month, day of the week, by this host's clock"
    )
    name: Word | None = Field(default=None, description="of two entries of one task at least one needs a name")
    keep: Keep | None = Field(default=None, description="how long jobs are kept, or how many backups are")
    to: Path | None = Field(default=None, description="directory of the backups, or of the reports")
    by: Annotated[By, one_of(By)] | None = Field(
        default=None, description="what the report sums up by; user by default"
    )
    since: Span | None = Field(default=None, description="how far the report goes back; to the beginning by default")
    older_than: Span | None = Field(default=None, description="age of unknown directories that are reported")
    really: Flag = Field(default=False, description="remove what is found, and do not only report it")
    file: Path | None = Field(default=None, description="job file to submit")
    without: Annotated[tuple[Word, ...], Field(strict=False), BeforeValidator(as_list)] = Field(
        default=(), description="clusters on which directories are left behind"
    )

    @model_validator(mode="after")
    def _fits(self) -> "Maintenance":
        if self.task not in _NEEDS:
            return self
        needed, allowed = _NEEDS[self.task]
        given = [key for key, value in self.options.items() if value not in (None, False, ())]
        for key in needed:
            if key not in given:
                raise wrong(f"lacks `{key}`, which {self.task} needs", f"Write `{key}:` beside the task.")
        for key in given:
            if key not in (*needed, *allowed):
                raise wrong(f"has `{key}`, which {self.task} does not know", f"Remove `{key}`.")
        if self.task == "backup" and isinstance(self.keep, str):
            raise wrong(f"has keep: {self.keep}, where backups are counted", "Write how many are kept, such as 7.")
        if self.task.startswith("prune-") and isinstance(self.keep, int):
            raise wrong(f"has keep: {self.keep}, without a unit", "Write number and unit, such as 30d.")
        return self

    @property
    def called(self) -> str:
        """The task's name in the grid file, by default its registered name."""
        return self.name or self.task

    @property
    def options(self) -> dict[str, Any]:
        """The options of the task."""
        return {
            key: getattr(self, key) for key in ("keep", "to", "by", "since", "older_than", "really", "file", "without")
        }

    @property
    def kept(self) -> Duration:
        """The time for which jobs are kept. Raises ValueError for a task that keeps no jobs."""
        if not isinstance(self.keep, str):
            raise ValueError(f"{self.task} keeps no jobs")
        return as_duration(self.keep)


def names_differ(entries: Sequence[Maintenance]) -> Sequence[Maintenance]:
    """Return the entries. Raises an error of the file for two entries of one name."""
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        if entry.called in seen:
            what = f"is called {entry.called}, as another entry is"
            raise wrong(what, "Give it a `name` of its own.", at=(number,))
        seen.add(entry.called)
    return entries
