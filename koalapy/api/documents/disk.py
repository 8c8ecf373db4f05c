"""What koalapy takes up of disks, as JSON."""

from collections.abc import Iterable

from koalapy.api.documents.document import Document
from koalapy.model.units import format_instant
from koalapy.runtime.disk import Taken


def disk(found: Iterable[Taken]) -> Document:
    return {"schema": "koala.disk/1", "places": [_place(each) for each in found]}


def _place(taken: Taken) -> Document:
    return {
        "place": taken.place,
        "here": taken.is_here,
        "at": None if taken.at is None else format_instant(taken.at),
        "bytes": taken.size,
        "whole": taken.whole,
        "directories": taken.directories,
        "parts": dict(taken.parts),
        "reason": str(taken.trouble) if taken.trouble else None,
    }
