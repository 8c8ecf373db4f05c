"""KIS, the resource monitor (DCS, section 3.3): connections, measurements, and the view that the broker places by."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from koalapy.information.promises import Promises, Scavenged, processors_of, processors_taken
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.errors import Reason
from koalapy.model.evolve import evolver, quick
from koalapy.model.identity import InstanceId
from koalapy.model.request import ComponentRequest
from koalapy.model.units import Instant, format_duration

NEVER_CONNECTED = Reason("connecting", "transient", "koalad has not reached its head node yet.", "Wait a moment.")


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What KIS knows of one cluster. `trouble` says why it cannot be used, None while it can."""

    settings: ClusterSettings
    connected: bool = False
    version: str = ""
    state: ClusterState | None = None
    trouble: Reason | None = NEVER_CONNECTED


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A cluster as the broker sees it now, in processors. `idle` has what is promised but not shown yet taken off.

    A cluster that cannot be used has nothing idle, and `trouble` says why. `backlog`: processors of ours that wait
    in its queue; `state` is the last measurement, however old, but for what sweeps have: that counts as idle here,
    since they give it to whoever is placed on it.
    """

    name: str
    settings: ClusterSettings
    total: int
    idle: int
    promised: int
    backlog: int
    trouble: Reason | None
    state: ClusterState | None

    @property
    def largest(self) -> int:
        """The most that one component could get if nobody were there."""
        return largest(self.state) if self.state else self.total


_evolve_known, evolve_view = evolver(Known), evolver(View)


class Information:
    """The clusters of the grid, by name, in the order of the grid file.

    `promises` is to be an index of the records. `reachable`: the clusters that are connected. `availability` grows
    whenever a view is another than before in what placing depends on.
    """

    def __init__(self, clusters: Iterable[ClusterSettings], instance: InstanceId) -> None:
        self.clusters: dict[str, Known] = {settings.name: Known(settings=settings) for settings in clusters}
        self.promises = Promises(instance, [known.settings for known in self.clusters.values()])
        self.reachable: frozenset[str] = frozenset()
        self.availability = 0
        self._views: dict[str, View] = {}
        self._good_until: dict[str, Instant] = {}  # if nothing happens there
        self._looked_at = Instant(0)

    def connected(self, cluster: str, version: str) -> None:
        known = self.clusters[cluster]
        message = "waiting for the first answer of its batch system."
        trouble = Reason("not_measured", "transient", message, "Wait a moment.")
        version = version or known.version
        self._know(known, {"connected": True, "version": version, "state": None, "trouble": trouble})

    def lost(self, cluster: str, reason: Reason) -> None:
        self._know(self.clusters[cluster], {"connected": False, "trouble": reason})

    def measured(self, cluster: str, state: ClusterState) -> None:
        """A measurement older than the last one is left aside."""
        known = self.clusters[cluster]
        if known.state is None or state.measured_at >= known.state.measured_at:
            self._know(known, {"state": state, "trouble": None})

    def measurement_failed(self, cluster: str, reason: Reason) -> None:
        self._know(self.clusters[cluster], {"trouble": reason})

    def is_connected(self, cluster: str | None) -> bool:
        return cluster in self.clusters and self.clusters[cluster].connected

    def could_take(self, component: ComponentRequest) -> list[str]:
        """Clusters in reach that the component would fit on if nobody else were there."""
        return [
            name
            for name, known in self.clusters.items()
            if known.connected and known.state and processors_taken(component, known.settings) <= largest(known.state)
        ]

    def views(self, now: Instant) -> list[View]:
        """Only what may be another than before is looked at again."""
        still_good = self._views and self._looked_at <= now <= min(self._good_until.values(), default=now)
        for name in self.promises.moved if still_good else self.clusters:
            self._look_at(now, self.clusters[name])
        self.promises.moved.clear()
        self._looked_at = now
        return list(self._views.values())

    def _look_at(self, now: Instant, known: Known) -> None:
        name = known.settings.name
        promises = self.promises
        before, view = self._views.get(name), _view(now, known, *promises.on(name), promises.of_sweeps(name))
        if before is None or not same_room(before, view):
            self.availability += 1
        self._views[name] = view
        self._good_until[name] = _good_until(now, known, view)

    def _know(self, before: Known, changes: dict[str, object]) -> None:
        known, name = _evolve_known(before, changes), before.settings.name
        self.clusters[name] = known
        self.promises.shown(name, known.state)
        if known.connected is not before.connected:
            self.reachable = frozenset(name for name, each in self.clusters.items() if each.connected)


def same_room(one: View, other: View) -> bool:
    """Whether they are the same in all that placing depends on."""
    same = one.idle == other.idle and one.total == other.total and one.backlog == other.backlog
    if not same or (one.trouble is None) is not (other.trouble is None):
        return False
    return one.state is other.state or _shape(one.state) == _shape(other.state)


def _shape(state: ClusterState | None) -> tuple[object, ...] | None:
    return (state.free_nodes, state.waiting_local, state.largest, state.largest_idle) if state else None


def largest(state: ClusterState) -> int:
    """The most that one component could get if nobody were there."""
    return state.total if state.largest is None else min(state.total, state.largest)


def _view(now: Instant, known: Known, promised: int, backlog: int, scavenged: Scavenged) -> View:
    name, state = known.settings.name, known.state
    trouble = known.trouble or _stale(now, known)
    if state is not None and scavenged.nodes:
        state = _without_sweeps(state, scavenged)
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


def _without_sweeps(state: ClusterState, scavenged: Scavenged) -> ClusterState:
    """As if the sweeps' Launchers had gone. A batch system that suspends them for others may show as idle what they
    have: then it shows more in use and idle than there is, and so much of it is idle already.
    """
    nodes = _beyond(state.idle + state.ours + state.others - state.total, scavenged.nodes)
    processors = sum(nodes)
    free = Counter(dict(state.free_nodes))
    if free or not state.idle:  # else it does not tell of nodes
        free.update(nodes)
    return replace(
        state,
        idle=state.idle + processors,
        scavenged=processors_of(scavenged.held),
        free_nodes=tuple(sorted(free.items())),
        largest_idle=None if state.largest_idle is None else state.largest_idle + processors,
    )


def _beyond(processors: int, nodes: Iterable[tuple[int, int]]) -> list[int]:
    """The processors of each of these nodes, without so many of them."""
    left: list[int] = []
    for size in (size for size, count in nodes for _ in range(count)):
        if processors < size:
            left.append(size)
        processors = max(0, processors - size)
    return left


def _stale(now: Instant, known: Known) -> Reason | None:
    age = now - known.state.measured_at if known.state else 0
    if age <= known.settings.max_age:
        return None
    message = f"its batch system was last heard {format_duration(age)} ago."  # type: ignore[arg-type]
    return Reason("stale", "transient", message, "Nothing is placed there until it answers again.")


def _good_until(now: Instant, known: Known, view: View) -> Instant:
    """The last instant of which the view is true. One of a cluster not heard of lately says how long ago that was."""
    if known.trouble or known.state is None:
        return _FOR_EVER
    return now if view.trouble else Instant(known.state.measured_at + known.settings.max_age)


_FOR_EVER = Instant(1 << 62)
