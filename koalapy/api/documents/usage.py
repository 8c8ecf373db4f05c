"""What was used, as JSON: processor-seconds by user, cluster, job or day."""

from collections.abc import Mapping

from koalapy.api.documents.document import Document
from koalapy.model.units import Instant, format_instant
from koalapy.model.usage import By, Sum
from koalapy.views.usage import in_seconds, rows_of


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
        "rows": rows_of(found, by),
        "total": in_seconds(total),
    }
