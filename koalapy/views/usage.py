"""`koala usage`: sums of processor time as rows in seconds, and as CSV."""

import csv
from collections.abc import Iterable, Mapping
from typing import Any

from koalapy.model.units import SECOND
from koalapy.model.usage import By, Sum

KEYS: Mapping[By, tuple[str, ...]] = {
    By.USER: ("user",),
    By.CLUSTER: ("cluster",),
    By.JOB: ("job", "name", "user"),
    By.DAY: ("day",),
}
PARTS = ("run", "held", "lost", "scavenged", "total", "open", "estimated", "attempts")
_ALL_KEYS = tuple(dict.fromkeys(name for names in KEYS.values() for name in names))


def rows_of(found: Mapping[tuple[str | int, ...], Sum], by: By) -> list[dict[str, Any]]:
    """Return rows in the order of their keys, in seconds. Each has all keys; those that it is not summed by are None.

    Number and name of pruned jobs are None too; they share a row for each user.
    """
    return [
        {**dict.fromkeys(_ALL_KEYS), **dict(zip(KEYS[by], _shown(key), strict=True)), **in_seconds(each)}
        for key, each in sorted(found.items())
    ]


def total_of(sums: Iterable[Sum]) -> Sum:
    """Add sums of processor time."""
    total = Sum()
    for each in sums:
        total = total.plus(each)
    return total


def _shown(key: tuple[str | int, ...]) -> tuple[str | int | None, ...]:
    """Replace the number and name of pruned jobs by None."""
    return (None, None, *key[2:]) if key[0] == 0 else key


def in_seconds(found: Sum) -> dict[str, Any]:
    """Return processor-seconds by part. A float keeps microseconds for up to 285 years of one processor."""
    return {part: getattr(found, part) if part == "attempts" else getattr(found, part) / SECOND for part in PARTS}


def as_csv(rows: Iterable[Mapping[str, Any]], by: By) -> str:
    """Return lines of values with a header: the keys that the rows are summed by, then the parts."""
    text = _Text()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*KEYS[by], *PARTS])
    lines.writerows([row[name] for name in (*KEYS[by], *PARTS)] for row in rows)
    return "".join(text)


class _Text(list[str]):
    """A list of pieces of text with the interface of a file."""

    def write(self, piece: str) -> None:
        self.append(piece)
