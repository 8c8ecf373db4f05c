"""Tags that the store does not know, as JSON."""

from collections.abc import Sequence

from koalapy.api.documents.document import Document
from koalapy.model.units import format_instant
from koalapy.runtime.unknown import Survey, UnknownTag

_ALIVE_S = 60.0  # since a wrapper's last sign of life: it gives one every 10 s, which NFS may show late


def unknown(surveys: Sequence[Survey]) -> Document:
    """Tags that this store does not know, and of which clusters that is the whole truth."""
    return {
        "schema": "koala.unknown/1",
        "tags": [unknown_tag(tag) for survey in surveys for tag in survey.tags],
        "clusters": [
            {
                "cluster": each.cluster,
                "at": format_instant(each.at),
                "reason": str(each.trouble) if each.trouble else None,
            }
            for each in surveys
        ],
    }


def unknown_tag(found: UnknownTag) -> Document:
    """`wrapper` is alive, silent (it has stopped to give signs), ended (it left a record) or none."""
    return {
        "cluster": found.cluster,
        "tag": found.tag,
        "store": found.instance,
        "own": found.own,
        "attempt": str(found.attempt),
        "batch_id": found.batch_id or None,
        "batch_state": found.state or None,
        "directory": found.directory,
        "wrapper": _wrapper(found),
        "heartbeat_age_s": _seconds(found.heartbeat_age_s),
        "age_s": _seconds(found.age_s),
    }


def _wrapper(found: UnknownTag) -> str:
    if found.ended:
        return "ended"
    if found.heartbeat_age_s is None:
        return "none"
    return "alive" if found.heartbeat_age_s < _ALIVE_S else "silent"


def _seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def cleaned(cluster: str, tag: str, done: bool) -> Document:
    return {"schema": "koala.clean/1", "cluster": cluster, "tag": tag, "state": "cleaned" if done else "cleaning"}
