"""`koala usage`: sums of processor time as rows in seconds, and as CSV."""

import csv
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, cast

from koalapy.answers import koalad as answers
from koalapy.model.ended_lease import Charged
from koalapy.model.units import SECOND, Instant
from koalapy.model.usage import By, Sum
from koalapy.views.fields import optional_instant

UsageKey = Literal["user", "cluster", "job", "day", "site"]

KEYS: Mapping[By, tuple[str, ...]] = {
    By.USER: ("user",),
    By.CLUSTER: ("cluster",),
    By.JOB: ("job", "name", "user"),
    By.DAY: ("day",),
    By.SITE: ("site",),
}
PARTS = ("run", "held", "lost", "scavenged", "total", "open", "estimated", "attempts", "on_pilots", "used")
LEASED = ("lent", "borrowed", "difference", "leases", "lent_now", "borrowed_now")
_ALL_KEYS = tuple(dict.fromkeys(name for names in KEYS.values() for name in names))


def rows_of(
    found: Mapping[tuple[str | int, ...], Sum], by: By, charged: Mapping[str, Charged] = MappingProxyType({})
) -> list[answers.UsageRow]:
    """Return rows in the order of their keys, in seconds. Each has all keys; those that it is not summed by are None.

    Number and name of pruned jobs are None too; they share a row for each user. So is the site of what has nothing to
    do with a neighbour. `charged`: the leases by neighbour, for rows by site.
    """
    if by is By.SITE:
        found = {**{(name,): Sum() for name in charged}, **found}
    leased = [charged.get(str(key[0]), Charged()) if by is By.SITE and key[0] else None for key in sorted(found)]
    rows = [
        {**dict.fromkeys(_ALL_KEYS), **dict(zip(KEYS[by], _shown(key, by), strict=True)), **in_seconds(each)}
        | {"leased": None if leases is None else leased_in_seconds(leases)}
        for (key, each), leases in zip(sorted(found.items()), leased, strict=True)
    ]
    return cast(list[answers.UsageRow], rows)


def answer(
    found: Mapping[tuple[str | int, ...], Sum],
    by: By,
    since: Instant | None,
    until: Instant | None,
    charged: Mapping[str, Charged],
) -> answers.UsageAnswer:
    """Answer with sums of processor-seconds, and their total. `charged`: leases by neighbour, for sums by site."""
    return {
        "schema": "koala.usage/1",
        "by": cast(UsageKey, str(by)),
        "since": optional_instant(since),
        "until": optional_instant(until),
        "rows": rows_of(found, by, charged),
        "total": in_seconds(total_of(found.values())),
        "leased": leased_in_seconds(charges_of(charged.values())) if by is By.SITE else None,
    }


def total_of(sums: Iterable[Sum]) -> Sum:
    """Add sums of processor time."""
    total = Sum()
    for each in sums:
        total = total.plus(each)
    return total


def charges_of(charged: Iterable[Charged]) -> Charged:
    """Add sums of leases."""
    total = Charged()
    for each in charged:
        total = total.plus(each)
    return total


def leased_in_seconds(found: Charged) -> answers.Leased:
    """Return processor-seconds of leases, and their number. `difference`: what was charged beyond the own figure."""
    seconds = {name: getattr(found, name) / SECOND for name in ("lent", "borrowed", "lent_now", "borrowed_now")}
    difference = (found.borrowed - found.measured) / SECOND
    leased = {name: {**seconds, "difference": difference, "leases": found.leases}[name] for name in LEASED}
    return cast(answers.Leased, leased)


def _shown(key: tuple[str | int, ...], by: By) -> tuple[str | int | None, ...]:
    """Replace the number and name of pruned jobs by None, and this site's own name."""
    if by is By.SITE:
        return (key[0] or None,)
    return (None, None, *key[2:]) if key[0] == 0 else key


def in_seconds(found: Sum) -> answers.Used:
    """Return processor-seconds by part. A float keeps microseconds for up to 285 years of one processor."""
    parts = {part: getattr(found, part) if part == "attempts" else getattr(found, part) / SECOND for part in PARTS}
    return cast(answers.Used, parts)


def as_csv(rows: Iterable[Mapping[str, Any]], by: By) -> str:
    """Return lines of values with a header: the keys that the rows are summed by, the parts, and what was leased."""
    text = _Text()
    lines = csv.writer(text, lineterminator="\n")
    leased = LEASED if by is By.SITE else ()
    lines.writerow([*KEYS[by], *PARTS, *leased])
    for row in rows:
        of_leases = row["leased"] or dict.fromkeys(leased)
        lines.writerow([*(row[name] for name in (*KEYS[by], *PARTS)), *(of_leases[name] for name in leased)])
    return "".join(text)


class _Text(list[str]):
    """A list of pieces of text with the interface of a file."""

    def write(self, piece: str) -> None:
        self.append(piece)
