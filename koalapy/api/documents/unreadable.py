"""Records of the store that cannot be read, as JSON and in sentences."""

from collections.abc import Iterable

from koalapy.api.documents.document import Document
from koalapy.runtime.changes import held
from koalapy.store.unreadable import Unreadable


def unreadable(found: Iterable[Unreadable]) -> Document:
    return {
        "schema": "koala.unreadable/1",
        "records": [
            {"record": each.name, "kind": each.kind, "job": each.job, "reason": f"{each.why}. {held(each)}"}
            for each in found
        ],
    }


def unreadable_records(found: Iterable[Unreadable]) -> list[str]:
    """A sentence or two for each, for `koala status`."""
    return [f"The record {each.name} cannot be read ({each.why}). {held(each)}" for each in found]
