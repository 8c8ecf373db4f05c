"""A cache of the broker's answers, each valid until something changes that it depends on."""

from collections.abc import Callable

from koalapy.broker.availability import Availability
from koalapy.broker.broker import Placement, PolicyFailed, find_placement
from koalapy.broker.shape import Shape
from koalapy.broker.suitability import EVERY_CLUSTER, Suitability
from koalapy.information.kis import Size
from koalapy.model.cluster import ClusterSettings
from koalapy.model.request import Request
from koalapy.model.units import Duration
from koalapy.policies.placement import FIND_CLUSTERS_APART, PlacementPolicy

_MANY = 100_000  # shapes, after which the cache is cleared
_TooShort = tuple[frozenset[str], ...]  # see Availability.too_short


class PlacementCache:
    """The answers of one placement policy, which must be a pure function."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self._policy = policy
        self._room: Availability | None = None
        self._suitability: Suitability = EVERY_CLUSTER
        self._refused: dict[tuple[Shape, frozenset[str], _TooShort], None] = {}
        self._whole = _IdleClusters(policy, Availability.whole)
        self._emptied = _IdleClusters(policy, Availability.emptied)

    def find_placement(
        self,
        request: Request,
        shape: Shape,
        availability: Availability,
        excluded: frozenset[str],
        suitability: Suitability = EVERY_CLUSTER,
    ) -> Placement | PolicyFailed | None:
        """Return the broker's answer; a refusal is cached while availability and suitability are the same objects."""
        if availability is not self._room or suitability is not self._suitability:
            self._room, self._suitability, self._refused = availability, suitability, {}
        key = shape, excluded, availability.too_short(request)
        if self._refused and key in self._refused:
            return None
        answer = find_placement(request, availability.without(excluded), self._policy, suitability)
        if answer is None:
            self._refused[key] = None
        return answer

    def never_fits(self, request: Request, shape: Shape, availability: Availability, *, anew: bool = True) -> bool:
        """Return whether the job does not fit even if all clusters were idle and all their nodes were up.

        False while a cluster that might take it cannot be measured, or its size is not known. `anew`: the job was
        submitted after koalad's start.
        """
        named = {component.cluster for component in shape.components}
        doubtful = availability.troubled | availability.size_unknown(anew=anew)
        if doubtful and (None in named or not doubtful.isdisjoint(named)):
            return False
        return not self._whole.takes(request, shape, availability)

    def too_small(
        self, request: Request, shape: Shape, availability: Availability, suitability: Suitability = EVERY_CLUSTER
    ) -> bool:
        """Return whether all clusters that may take the job are usable, and too small for it even if they were idle.

        Those that do not suit may not take it; one that it was not compared with yet may.
        """
        if availability.troubled:
            named = {component.cluster for component in shape.components}
            if None in named or not availability.troubled.isdisjoint(named):
                return False
        idle = self._emptied if availability.smaller else self._whole
        return not idle.takes(request, shape, availability, suitability)


class _IdleClusters:
    """The requests that fit on idle clusters, which `emptied` makes of an availability."""

    def __init__(self, policy: PlacementPolicy, emptied: Callable[[Availability], Availability]) -> None:
        self._policy = policy
        self._made = emptied
        self._sizes: dict[str, tuple[Size, ClusterSettings, Duration | None]] = {}
        self._known_sizes: object = None  # the sizes of the last availability
        self._empty: Availability | None = None
        self._fits: dict[tuple[Shape, _TooShort], bool] = {}

    def takes(
        self,
        request: Request,
        shape: Shape,
        availability: Availability,
        suitability: Suitability = EVERY_CLUSTER,
    ) -> bool:
        empty = self._idle(availability)
        key = shape, empty.too_short(request)
        fits = self._fits.get(key)
        if fits is None:
            named = {component.cluster for component in shape.components}
            fits = self._fits[key] = self._fits_in(empty, request, named)
        if not fits or suitability is EVERY_CLUSTER:
            return fits
        if not all([suitability.is_settled(each) for each in request.components]):  # noqa: C419 — faster
            return True
        return find_placement(request, empty, self._policy, suitability) is not None

    def _fits_in(self, empty: Availability, request: Request, named: set[str | None]) -> bool:
        if self._policy in FIND_CLUSTERS_APART and named == {None} and empty.has_clusters_apart(request):
            return True
        return find_placement(request, empty, self._policy) is not None

    def _idle(self, availability: Availability) -> Availability:
        """Return the idle clusters.

        A cluster of another size or with other settings clears the cached answers, and one that has left does so too.
        """
        if self._empty is None or availability.sizes is not self._known_sizes:
            self._known_sizes, self._empty = availability.sizes, self._made(availability)
            usable = self._empty.usable.items()
            sizes = {name: (summary.size, summary.settings, summary.walltime_limit) for name, summary in usable}
            left = self._sizes.keys() - {name for name, *_ in availability.sizes}
            if left or len(self._fits) > _MANY or any(self._sizes.get(name) != size for name, size in sizes.items()):
                self._fits = {}
            self._sizes = {name: size for name, size in self._sizes.items() if name not in left} | sizes
        return self._empty
