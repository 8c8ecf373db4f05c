"""Clusters as JSON."""

from collections.abc import Iterable

from koalapy.api.documents.document import Document
from koalapy.model.cluster import ClusterState
from koalapy.model.units import SECOND
from koalapy.views.clusters import ClusterReport

_NOT_UP = {"connecting": "connecting", "asks": "asks", "answer_refused": "asks"}


def clusters(reports: Iterable[ClusterReport]) -> Document:
    return {"schema": "koala.clusters/1", "clusters": [cluster(each) for each in reports]}


def cluster(report: ClusterReport) -> Document:
    """`connection` is up, down, connecting or asks; `reason` says in one sentence why nothing is placed there."""
    known, summary, state = report.known, report.summary, report.summary.state
    numbers = {name: _number(state, name) for name in ("total", "ours", "others", "waiting_local")}
    return {
        "name": summary.name,
        "batch": known.settings.batch,
        "version": known.version or None,
        "connection": _connection(report),
        **numbers,
        "scavenged": report.scavenged if state else None,
        "idle": summary.idle if state else None,
        "promised": summary.committed,
        "unit": state.unit if state else None,
        "age_s": None if report.age is None else round(report.age / SECOND, 3),
        "reason": str(summary.trouble) if summary.trouble else None,
        "foreign": report.foreign.count if report.foreign else 0,
    }


def _connection(report: ClusterReport) -> str:
    if report.known.connected:
        return "up"
    trouble = report.known.trouble
    return _NOT_UP.get(trouble.code, "down") if trouble else "down"


def _number(state: ClusterState | None, name: str) -> int | None:
    return None if state is None else getattr(state, name)
