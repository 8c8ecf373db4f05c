"""The clusters at one moment as placing needs them, with what has been found out about them once and for all."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from koalapy.broker.fit import demand
from koalapy.broker.shape import Need
from koalapy.information.kis import Size, View, evolve_view, same_room
from koalapy.information.promises import processors_taken
from koalapy.model.request import ComponentRequest, Request
from koalapy.policies.placement import Offer


class Room:
    """What can be used of it: clusters without trouble. It never changes; `after` gives the room that is left.

    `most_backlog`: the largest component that any batch queue would still take. `sizes`: what is known of every
    cluster's size; None where it cannot be used now.
    """

    def __init__(self, views: Iterable[View], like: "Room | None" = None) -> None:
        """`like`: another room of the same clusters, whose findings hold here too if all sizes are the same."""
        self.views = tuple(views)
        self.usable = {view.name: view for view in self.views if view.trouble is None}
        self.idle = {name: view.idle for name, view in self.usable.items()}
        self.most_idle = max(self.idle.values(), default=0)
        self.most_backlog = max(map(backlog_left, self.usable.values()), default=0)
        self.sizes = tuple([(view.name, _sizes(view) if view.trouble is None else None) for view in self.views])
        self._demands: dict[tuple[int, int | None, bool], Mapping[str, int]] = {}
        if like is not None and like.sizes == self.sizes:
            self.sizes, self._demands = like.sizes, like._demands
        self._most = {name: most for name, view in self.usable.items() if (most := _largest_idle(view)) is not None}
        self._offers: tuple[Offer, ...] = ()
        self._slots: dict[int, int] = {}
        self._networks: list[Room] | None = None

    @property
    def troubled(self) -> frozenset[str]:
        return frozenset(view.name for view in self.views if view.trouble is not None)

    @property
    def smaller(self) -> bool:
        """Whether some cluster has fewer processors now than when nothing of it is broken."""
        return any(view.whole is not None for view in self.usable.values())

    def unsettled(self, *, anew: bool) -> frozenset[str]:
        """Clusters whose size is not known yet. `anew`: a job that was not there before may go by what they show, if
        that is anything: its user is there to be told.
        """
        unsettled = (view for view in self.usable.values() if not view.settled)
        return frozenset(view.name for view in unsettled if not anew or not (view.whole or view.size)[0])

    @property
    def offers(self) -> tuple[Offer, ...]:
        """What is idle, nothing of it used."""
        if not self._offers:
            self._offers = tuple(Offer(name, idle) for name, idle in self.idle.items())
        return self._offers

    def is_as(self, views: Sequence[View]) -> bool:
        """Whether the clusters have this very room."""
        return len(views) == len(self.views) and all(map(same_room, views, self.views))

    def may_take(self, need: Need) -> bool:
        """False: it does not fit, whatever policy is asked."""
        for cluster, processors in need.named:
            if self.idle.get(cluster, -1) < processors:
                return False
        return all(self._slots_of(size) >= count for size, count in need.free)

    def demand(self, component: ComponentRequest) -> Mapping[str, int]:
        """What a component that names no cluster takes on each cluster that is large enough for it, and may be now."""
        key = component.processors, component.processors_per_node, component.exclusive
        found = self._demands.get(key)
        if found is None:
            found = self._demands[key] = demand(component, self.usable.values())
        if self._most:
            return {name: needed for name, needed in found.items() if needed <= self._most.get(name, needed)}
        return found

    def networks(self, request: Request) -> list["Room"]:
        """What components may share: each network of its own, the one with the most idle processors first."""
        if not request.communication or len(request.components) == 1:
            return [self]
        if self._networks is None:
            self._networks = self._by_network()
        return self._networks

    def has_clusters_apart(self, request: Request) -> bool:
        """Whether there is surely a cluster of its own for each component, if nobody were there and none is named."""
        for network in self.networks(request):
            clusters = len(network.usable)
            too_small = sum(clusters - len(network.demand(component)) for component in request.components)
            if clusters - too_small >= len(request.components):
                return True
        return False

    def without(self, clusters: Collection[str]) -> "Room":
        return Room(view for view in self.views if view.name not in clusters) if clusters else self

    def after(self, allocation: Sequence[str | None], request: Request, patient: bool = False) -> "Room":
        """With the allocation's processors off, and in the backlog of jobs that went into batch queues (`patient`)."""
        taken: dict[str, int] = {}
        for cluster, component in zip(allocation, request.components, strict=True):
            if cluster is not None:
                taken[cluster] = taken.get(cluster, 0) + processors_taken(component, self.usable[cluster].settings)
        return Room((_less(view, taken.get(view.name, 0), patient) for view in self.views), self)

    def emptied(self) -> "Room":
        """If nobody were on the clusters."""
        return Room(_empty(view, view.size) for view in self.usable.values())

    def whole(self) -> "Room":
        """If nobody were on the clusters, and nothing of them were broken."""
        return Room(_empty(view, view.whole or view.size) for view in self.usable.values())

    def _slots_of(self, size: int) -> int:
        """How many components of the size would fit at once."""
        found = self._slots.get(size)
        if found is None:
            found = self._slots[size] = sum(idle // size for idle in self.idle.values())
        return found

    def _by_network(self) -> list["Room"]:
        networks: dict[str, list[View]] = {}
        for view in self.usable.values():
            networks.setdefault(view.settings.network, []).append(view)
        if len(networks) == 1:
            return [self]
        ordered = sorted(networks.values(), key=lambda network: -sum(view.idle for view in network))
        return [Room(network) for network in ordered]


def backlog_left(view: View) -> int:
    """Processors of ours that may still be put into its queue."""
    limit = view.total if view.settings.backlog is None else view.settings.backlog
    return min(limit - view.backlog, view.total)


def _less(view: View, taken: int, patient: bool) -> View:
    changes = {"idle": max(0, view.idle - taken), "promised": view.promised + taken}
    if patient:
        changes["backlog"] = view.backlog + taken
    return evolve_view(view, changes) if taken else view


def _empty(view: View, size: Size) -> View:
    total, largest = size
    state = view.state
    if state is not None:
        state = replace(state, total=total, largest=largest, free_nodes=(), largest_idle=None)
    return replace(view, total=total, idle=total, state=state)


def _sizes(view: View) -> tuple[Size, Size | None, bool]:
    return view.size, view.whole, view.settled


def _largest_idle(view: View) -> int | None:
    return view.state.largest_idle if view.state else None
