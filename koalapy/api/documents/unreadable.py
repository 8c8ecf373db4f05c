"""Records of the store that cannot be read, as JSON."""

from collections.abc import Iterable

from koalapy.api.documents.document import Document
from koalapy.model.unreadable import Unreadable
from koalapy.views.changes import held


def unreadable(found: Iterable[Unreadable]) -> Document:
    return {
        "schema": "koala.unreadable/1",
        "records": [
            {"record": each.name, "kind": each.kind, "job": each.job, "reason": f"{each.why}. {held(each)}"}
            for each in found
        ],
    }
