"""KIS, the resource monitor (DCS, section 3.3): connections, measurements, and the view that the broker places by."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.errors import Reason
from koalapy.model.identity import tag_of
from koalapy.model.records import Records
from koalapy.model.request import ComponentRequest
from koalapy.model.units import Instant, format_duration

NEVER_CONNECTED = Reason("connecting", "transient", "koalad has not reached its head node yet.", "Wait a moment.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What KIS knows of one cluster. `trouble` says why it cannot be used, None while it can."""

    settings: ClusterSettings
    connected: bool = False
    version: str = ""
    state: ClusterState | None = None
    trouble: Reason | None = NEVER_CONNECTED


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A cluster as the broker sees it now, in processors. `idle` has what is promised but not shown yet taken off.

    A cluster that cannot be used has nothing idle, and `trouble` says why. `backlog`: processors of ours that wait
    in its queue; `state` is the last measurement, however old.
    """

    name: str
    settings: ClusterSettings
    total: int
    idle: int
    promised: int
    backlog: int
    trouble: Reason | None
    state: ClusterState | None


class Information:
    """The clusters of the grid, by name, in the order of the grid file."""

    def __init__(self, clusters: Iterable[ClusterSettings]) -> None:
        self.clusters: dict[str, Known] = {settings.name: Known(settings=settings) for settings in clusters}

    def connected(self, cluster: str, version: str) -> None:
        known = self.clusters[cluster]
        trouble = Reason("not_measured", "transient", "its batch system has not been asked yet.", "Wait a moment.")
        self.clusters[cluster] = replace(
            known, connected=True, version=version or known.version, state=None, trouble=trouble
        )

    def lost(self, cluster: str, reason: Reason) -> None:
        self.clusters[cluster] = replace(self.clusters[cluster], connected=False, trouble=reason)

    def measured(self, cluster: str, state: ClusterState) -> None:
        """A measurement older than the last one is left aside."""
        known = self.clusters[cluster]
        if known.state is None or state.measured_at >= known.state.measured_at:
            self.clusters[cluster] = replace(known, state=state, trouble=None)

    def measurement_failed(self, cluster: str, reason: Reason) -> None:
        self.clusters[cluster] = replace(self.clusters[cluster], trouble=reason)

    def is_connected(self, cluster: str | None) -> bool:
        return cluster in self.clusters and self.clusters[cluster].connected

    def could_take(self, component: ComponentRequest) -> list[str]:
        """Clusters in reach that the component would fit on if nobody else were there."""
        return [
            name
            for name, known in self.clusters.items()
            if known.connected and known.state and processors_taken(component, known.settings) <= known.state.total
        ]

    def views(self, now: Instant, records: Records) -> list[View]:
        return [_view(now, known, records) for known in self.clusters.values()]


def processors_taken(component: ComponentRequest, cluster: ClusterSettings) -> int:
    """Processors that the component takes there: whole nodes where allocation is exclusive."""
    size = cluster.processors_per_node
    if not size or not (component.exclusive or cluster.exclusive):
        return component.processors
    per_node = min(component.processors_per_node or size, size)
    return -(-component.processors // per_node) * size


def _view(now: Instant, known: Known, records: Records) -> View:
    name, state = known.settings.name, known.state
    trouble = known.trouble or _stale(now, known)
    promised, backlog = _promised(known, records)
    return View(
        name=name,
        settings=known.settings,
        total=state.total if state else 0,
        idle=max(0, state.idle - promised) if state and not trouble else 0,
        promised=promised,
        backlog=backlog,
        trouble=trouble,
        state=state,
    )


def _stale(now: Instant, known: Known) -> Reason | None:
    age = now - known.state.measured_at if known.state else 0
    if age <= known.settings.max_age:
        return None
    message = f"its batch system was last heard {format_duration(age)} ago."  # type: ignore[arg-type]
    return Reason("stale", "transient", message, "Nothing is placed there until it answers again.")


def _promised(known: Known, records: Records) -> tuple[int, int]:
    """Processors promised on the cluster that its batch system does not show as taken, and those seen to wait.

    An attempt counts from its claim until nothing of it is left.
    """
    shown = frozenset(known.state.allocated) if known.state else frozenset()
    pending = frozenset(known.state.pending) if known.state else frozenset()
    promised = backlog = 0
    for job, component in records.live(known.settings.name):
        tag = tag_of(records.instance, job.attempt_of(component))
        taken = processors_taken(component.request, known.settings)
        promised += taken if tag not in shown else 0
        backlog += taken if tag in pending else 0
    return promised, backlog
