"""The count of a sweep's files that were collected and that were not, with the first names of each kind."""

from dataclasses import dataclass, field

from koalapy.model.counts import counted_as
from koalapy.model.identity import JobId
from koalapy.runtime.collecting.collect import Collected

_NAMED = 5  # in a sentence
_MOST_MISSING = 100  # names in an answer


@dataclass(slots=True)
class Several:
    """A count of things of one kind, and the names of the first."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.first) < _MOST_MISSING:
            self.first.append(name)

    def take(self, other: "Several") -> None:
        self.count += other.count
        self.first += other.first[: _MOST_MISSING - len(self.first)]

    def __str__(self) -> str:
        named = self.first[:_NAMED]
        more = f" and {self.count - len(named):,} more" if self.count > len(named) else ""
        return ", ".join(named) + more


@dataclass(slots=True)
class Tally:
    """The result of collecting parameters' files.

    `missing`: paths that were needed. `nothing`: patterns without a match, with their parameters. `left`: entries that
    are no files to bring. `failed`: parameters that are skipped, since they did not succeed.
    """

    files: int = 0
    size: int = 0
    missing: Several = field(default_factory=Several)
    nothing: Several = field(default_factory=Several)
    left: Several = field(default_factory=Several)
    failed: Several = field(default_factory=Several)

    def take(self, other: "Tally") -> None:
        self.files += other.files
        self.size += other.size
        self.missing.take(other.missing)
        self.nothing.take(other.nothing)
        self.left.take(other.left)
        self.failed.take(other.failed)

    def home(self, sweep: JobId, count: int) -> Collected:
        """Return the result for the sweep. `count`: number of parameters whose files were requested."""
        return Collected(self.files, self.size, tuple(self.missing.first), tuple(self._notes(sweep)), self._lack(count))

    def _lack(self, count: int) -> str:
        if not self.missing.count:
            return ""
        what = counted_as(f"{self.missing.count:,}", "expected output file is", "expected output files are")
        of = counted_as(f"{count:,}", "parameter")
        return f"{what} missing (of {of}): {self.missing}."

    def _notes(self, sweep: JobId) -> list[str]:
        notes = []
        if self.nothing.count:
            notes.append(f"{counted_as(f'{self.nothing.count:,}', 'pattern')} matched nothing: {self.nothing}.")
        if self.left.count:
            notes.append(f"{counted_as(f'{self.left.count:,}', 'entry was', 'entries were')} left: {self.left}.")
        if self.failed.count:
            kept = f"what they left stays on its clusters, and `koala fetch {sweep}` brings it"
            notes.append(f"{_of(self.failed)} did not end well ({self.failed}): {kept}.")
        return notes


def _of(several: Several) -> str:
    return counted_as(f"{several.count:,}", "parameter")
