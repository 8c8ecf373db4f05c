"""What was used, as JSON: processor-seconds by user, cluster, job or day."""

from collections.abc import Mapping

from koalapy.api.documents.document import Document
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.model.usage import By, Sum

_KEYS: Mapping[By, tuple[str, ...]] = {
    By.USER: ("user",),
    By.CLUSTER: ("cluster",),
    By.JOB: ("job", "name", "user"),
    By.DAY: ("day",),
}
_ALL_KEYS = tuple(dict.fromkeys(name for names in _KEYS.values() for name in names))


def usage(found: Mapping[tuple[str | int, ...], Sum], by: By, since: Instant | None, until: Instant | None) -> Document:
    """Each row has all keys; those that it is not summed by are null."""
    total = Sum()
    for each in found.values():
        total = total.plus(each)
    return {
        "schema": "koala.usage/1",
        "by": str(by),
        "since": None if since is None else format_instant(since),
        "until": None if until is None else format_instant(until),
        "rows": [
            {**dict.fromkeys(_ALL_KEYS), **dict(zip(_KEYS[by], key, strict=True)), **_seconds(each)}
            for key, each in sorted(found.items())
        ],
        "total": _seconds(total),
    }


def _seconds(found: Sum) -> Document:
    """A JSON number keeps microseconds of up to 285 years of one processor."""
    return {
        "held": found.held / SECOND,
        "run": found.run / SECOND,
        "lost": found.lost / SECOND,
        "scavenged": found.scavenged / SECOND,
        "total": found.total / SECOND,
        "open": found.open / SECOND,
        "estimated": found.estimated / SECOND,
        "attempts": found.attempts,
    }
