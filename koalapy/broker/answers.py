"""What the broker has answered: it is not asked again while nothing has changed that the answer depends on."""

from koalapy.broker.broker import Allocation, PolicyFailed, place_in
from koalapy.broker.room import Room
from koalapy.broker.shape import Shape
from koalapy.model.request import Request
from koalapy.policies.placement import PlacementPolicy

_MANY = 100_000  # shapes; then they are forgotten


class Answers:
    """One policy's, which must be a pure function."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self._policy = policy
        self._room: Room | None = None
        self._refused: dict[tuple[Shape, frozenset[str]], None] = {}
        self._sizes: dict[str, int] = {}
        self._empty: Room | None = None
        self._fits: dict[Shape, bool] = {}

    def place(
        self, request: Request, shape: Shape, room: Room, without: frozenset[str]
    ) -> Allocation | PolicyFailed | None:
        """As the broker's `place`."""
        if room is not self._room:
            self._room, self._refused = room, {}
        if (shape, without) in self._refused:
            return None
        answer = place_in(request, room.without(without), self._policy)
        if answer is None:
            self._refused[shape, without] = None
        return answer

    def never_fits(self, request: Request, shape: Shape, room: Room) -> bool:
        """Whether the job does not fit even on idle clusters. False while one that might take it cannot be asked."""
        named = {component.cluster for component in shape.components}
        if any(view.trouble or view.state is None for view in room.views if None in named or view.name in named):
            return False
        self._notice(room)
        fits = self._fits.get(shape)
        if fits is None:
            fits = self._fits[shape] = self._fits_on_idle(request, room, None in named)
        return not fits

    def _fits_on_idle(self, request: Request, room: Room, everywhere: bool) -> bool:
        if not everywhere:
            return place_in(request, room.emptied(), self._policy) is not None
        if self._empty is None:
            self._empty = room.emptied()
        return place_in(request, self._empty, self._policy) is not None

    def _notice(self, room: Room) -> None:
        """A cluster of another size makes other answers."""
        sizes = {name: view.total for name, view in room.usable.items()}
        changed = any(self._sizes.get(name) != total for name, total in sizes.items())
        if changed or len(self._fits) > _MANY:
            self._sizes |= sizes
            self._fits, self._empty = {}, None
