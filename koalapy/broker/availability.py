"""The availability: the clusters at one instant as placing needs them, with cached results about them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from koalapy.broker.fit import demand
from koalapy.broker.shape import Beyond, MinimumDemand, beyond
from koalapy.information.commitments import processors_taken
from koalapy.information.kis import ClusterSummary, Size, evolve_summary, same_availability
from koalapy.model.cluster import ClusterSettings
from koalapy.model.lease import is_temporary
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.units import Duration
from koalapy.policies.placement import IdleCluster


class Availability:
    """The clusters that can be used, which are those without trouble. It never changes; `after` returns a new one.

    `most_backlog`: the largest component, in processors, that some batch queue would still take. `sizes`: name,
    settings and known size of every cluster; the size is None if it cannot be used now. `troubled`: the clusters that
    cannot be used now. `smaller`: whether some cluster has fewer processors now than with all its nodes up.
    `unmeasured`: whether some cluster is connected and was not measured since.
    """

    _idle_clusters: tuple[IdleCluster, ...] = ()
    _networks: "list[Availability] | None" = None

    def __init__(self, summaries: Iterable[ClusterSummary], like: "Availability | None" = None) -> None:
        """Share the cached results of `like`, an availability of the same clusters, if all `sizes` are the same."""
        self.summaries = tuple(summaries)
        self.usable: dict[str, ClusterSummary] = {}
        self.idle: dict[str, int] = {}
        self.unmeasured = False
        self._most: dict[str, int] = {}
        self._limits: dict[str, Duration] = {}
        sizes: list[tuple[str, ClusterSettings, object]] = []
        for summary in self.summaries:
            name, state = summary.name, summary.state
            if summary.trouble is not None:
                sizes.append((name, summary.settings, None))
                self.unmeasured = self.unmeasured or summary.unmeasured
                continue
            limit = summary.walltime_limit
            sizes.append((name, summary.settings, (summary.size, summary.whole, summary.size_known, limit)))
            if limit is not None:
                self._limits[name] = limit
            self.usable[name], self.idle[name] = summary, summary.idle
            if state is not None and state.largest_idle is not None:
                self._most[name] = state.largest_idle
        self.most_idle = max(self.idle.values(), default=0)
        self.most_backlog = max([0, *map(backlog_left, self.usable.values())])
        self._slots: dict[int, int] = {}
        self.sizes = tuple(sizes)
        if like is not None and like.sizes == self.sizes:
            self._share(like)
        else:
            self._demands: dict[tuple[int, int | None, bool, Beyond | None], Mapping[str, int]] = {}
            self._size_unknown: dict[bool, frozenset[str]] = {}
            self.troubled = frozenset([each.name for each in self.summaries if each.trouble is not None])
            self.smaller = any([each.whole is not None for each in self.usable.values()])  # noqa: C419 — faster
            self._has_temporary = any([is_temporary(name) for name in self.usable])  # noqa: C419 — faster

    def _share(self, like: "Availability") -> None:
        """Take over all that depends on the sizes alone."""
        self.sizes, self.troubled, self.smaller = like.sizes, like.troubled, like.smaller
        self._has_temporary = like._has_temporary
        self._demands, self._size_unknown = like._demands, like._size_unknown

    def size_unknown(self, *, anew: bool) -> frozenset[str]:
        """Return the clusters whose size is not known yet.

        `anew`: a job that was submitted after koalad's start may rely on the sizes that they show, unless these are
        zero. Its user can read the error at once.
        """
        found = self._size_unknown.get(anew)
        if found is None:
            found = self._size_unknown[anew] = frozenset(
                summary.name
                for summary in self.usable.values()
                if not summary.size_known and (not anew or not (summary.whole or summary.size)[0])
            )
        return found

    @property
    def idle_clusters(self) -> tuple[IdleCluster, ...]:
        """The idle processors of each cluster, as a placement policy sees them."""
        if not self._idle_clusters:
            self._idle_clusters = tuple([IdleCluster(name, idle) for name, idle in self.idle.items()])
        return self._idle_clusters

    def is_as(self, summaries: Sequence[ClusterSummary]) -> bool:
        """Return whether the summaries agree with this availability in everything that placing depends on."""
        return len(summaries) == len(self.summaries) and all(map(same_availability, summaries, self.summaries))

    def may_fit(self, minimum: MinimumDemand) -> bool:
        """Return whether the request may fit; False if it fits under no policy."""
        for cluster, processors in minimum.named:
            if self.idle.get(cluster, -1) < processors:
                return False
        slots = self._slots
        for size, count in minimum.free:
            found = slots.get(size)
            if found is None:  # how many components of this size would fit at once
                found = slots[size] = sum([idle // size for idle in self.idle.values()])
            if found < count:
                return False
        return True

    def demand(self, component: ComponentRequest) -> Mapping[str, int]:
        """Return the processors that a component takes on each cluster that is large enough for it now.

        The component names no cluster.
        """
        needed = beyond(component) if self._has_temporary else None
        key = component.processors, component.processors_per_node, component.exclusive, needed
        found = self._demands.get(key)
        if found is None:
            found = self._demands[key] = demand(component, self.usable.values())
        if self._limits and (short := self._too_short(component)):
            found = {name: taken for name, taken in found.items() if name not in short}
        if self._most:
            return {name: taken for name, taken in found.items() if taken <= self._most.get(name, taken)}
        return found

    def too_short(self, request: Request) -> tuple[frozenset[str], ...]:
        """Return, for each component, the clusters whose queues do not take its walltime; empty if none has a limit.

        Requests of one shape have one answer if they have the same of these too.
        """
        return tuple([self._too_short(each) for each in request.components]) if self._limits else ()

    def _too_short(self, component: ComponentRequest) -> frozenset[str]:
        asked = component.queue_walltime
        return frozenset([name for name, limit in self._limits.items() if asked is not None and asked > limit])

    def networks(self, request: Request) -> list["Availability"]:
        """Return one availability for each network; all components must be placed within one of them.

        The network with most idle processors comes first. For a request whose components may be placed anywhere, return
        this availability alone.
        """
        if not request.communication or len(request.components) == 1:
            return [self]
        if self._networks is None:
            self._networks = self._by_network()
        return self._networks

    def has_clusters_apart(self, request: Request) -> bool:
        """Return whether each component could certainly have a cluster of its own if all clusters were idle.

        No component names a cluster.
        """
        for network in self.networks(request):
            clusters = len(network.usable)
            too_small = sum(clusters - len(network.demand(component)) for component in request.components)
            if clusters - too_small >= len(request.components):
                return True
        return False

    def without(self, clusters: Collection[str]) -> "Availability":
        """Return the availability without the given clusters."""
        return Availability(summary for summary in self.summaries if summary.name not in clusters) if clusters else self

    def after(self, placement: Sequence[str | None], request: Request, patient: bool = False) -> "Availability":
        """Return the availability less the processors of a placement.

        `patient`: the job entered batch queues, so its processors also count in the backlog.
        """
        taken: dict[str, int] = {}
        for cluster, component in zip(placement, request.components, strict=True):
            if cluster is not None:
                taken[cluster] = taken.get(cluster, 0) + processors_taken(component, self.usable[cluster].settings)
        less = {name: _less(self.usable[name], count, patient) for name, count in taken.items()}
        left = Availability.__new__(Availability)  # made after every claim: only what differs is determined anew
        left.summaries = tuple([less.get(each.name, each) for each in self.summaries])
        left.usable = self.usable | less
        left.idle = self.idle.copy()
        for name, summary in less.items():
            left.idle[name] = summary.idle
        left.most_idle = max(left.idle.values(), default=0)
        left.most_backlog = max([0, *map(backlog_left, left.usable.values())]) if patient else self.most_backlog
        left._most, left._limits, left._slots, left.unmeasured = self._most, self._limits, {}, self.unmeasured
        left._share(self)
        return left

    def emptied(self) -> "Availability":
        """Return the availability if the clusters were idle."""
        return Availability(_empty(summary, summary.size) for summary in self.usable.values())

    def whole(self) -> "Availability":
        """Return the availability if the clusters were idle and all their nodes were up."""
        return Availability(_empty(summary, summary.whole or summary.size) for summary in self.usable.values())

    def _by_network(self) -> list["Availability"]:
        networks: dict[str, list[ClusterSummary]] = {}
        for summary in self.usable.values():
            networks.setdefault(summary.settings.network, []).append(summary)
        if len(networks) == 1:
            return [self]
        ordered = sorted(networks.values(), key=lambda network: -sum(summary.idle for summary in network))
        return [Availability(network) for network in ordered]


def backlog_left(summary: ClusterSummary) -> int:
    """Return how many processors of koalapy's jobs may still enter the cluster's batch queue."""
    limit = summary.total if summary.settings.backlog is None else summary.settings.backlog
    return min(limit - summary.backlog, summary.total)


def _less(summary: ClusterSummary, taken: int, patient: bool) -> ClusterSummary:
    idle = summary.idle - taken
    changes = {"idle": idle if idle > 0 else 0, "committed": summary.committed + taken}
    if patient:
        changes["backlog"] = summary.backlog + taken
    return evolve_summary(summary, changes)


def _empty(summary: ClusterSummary, size: Size) -> ClusterSummary:
    total, largest = size
    state = summary.state
    if state is not None:
        state = replace(state, total=total, largest=largest, free_nodes=(), largest_idle=None)
    return replace(summary, total=total, idle=total, state=state)
