"""Clusters as JSON."""

from collections.abc import Iterable

from koalapy.api.documents.document import Document
from koalapy.coallocation.speaking import Foreign
from koalapy.model.cluster import ClusterState
from koalapy.model.units import SECOND, format_instant
from koalapy.runtime.clusterreports import ClusterReport, Silent

_NOT_UP = {"connecting": "connecting", "asks": "asks", "answer_refused": "asks"}
_JOBS = 5  # of which a sentence has the numbers


def clusters(reports: Iterable[ClusterReport]) -> Document:
    return {"schema": "koala.clusters/1", "clusters": [cluster(each) for each in reports]}


def cluster(report: ClusterReport) -> Document:
    """`connection` is up, down, connecting or asks; `reason` says in one sentence why nothing is placed there."""
    known, view, state = report.known, report.view, report.view.state
    numbers = {name: _number(state, name) for name in ("total", "ours", "others", "waiting_local")}
    return {
        "name": view.name,
        "batch": known.settings.batch,
        "version": known.version or None,
        "connection": _connection(report),
        **numbers,
        "scavenged": report.scavenged if state else None,
        "idle": view.idle if state else None,
        "promised": view.promised,
        "unit": state.unit if state else None,
        "age_s": None if report.age is None else round(report.age / SECOND, 3),
        "reason": str(view.trouble) if view.trouble else None,
        "foreign": report.foreign.count if report.foreign else 0,
    }


def cluster_troubles(reports: Iterable[ClusterReport]) -> list[str]:
    """A sentence for each cluster that cannot be used, has silent components, or spoke of what is not its own."""
    told = list(reports)
    unusable = [f"{each.view.name}: {each.view.trouble}" for each in told if each.view.trouble]
    silent = [_nothing_is_heard(each.view.name, each.silent) for each in told if each.silent]
    return unusable + silent + [_spoke_of_others(each.view.name, each.foreign) for each in told if each.foreign]


def _nothing_is_heard(name: str, silent: Silent) -> str:
    components = "1 running component" if silent.components == 1 else f"{silent.components} running components"
    jobs = ", ".join(map(str, silent.jobs[:_JOBS])) + (", ..." if len(silent.jobs) > _JOBS else "")
    since = f"since {format_instant(silent.since)}{'' if silent.components == 1 else ' or later'}"
    return (
        f"{name}: Nothing has been heard of {components} (job{'' if len(silent.jobs) == 1 else 's'} {jobs}) {since}. "
        f"`koala explain` says what its batch system says."
    )


def _spoke_of_others(name: str, foreign: Foreign) -> str:
    times = "once" if foreign.count == 1 else f"{foreign.count} times"
    return (
        f"{name}: It has spoken {times} of what is not on it, and was not believed (last: {foreign.last}). "
        f"Look at what runs as the KCM there, and at who can write to its shared directory."
    )


def _connection(report: ClusterReport) -> str:
    if report.known.connected:
        return "up"
    trouble = report.known.trouble
    return _NOT_UP.get(trouble.code, "down") if trouble else "down"


def _number(state: ClusterState | None, name: str) -> int | None:
    return None if state is None else getattr(state, name)
