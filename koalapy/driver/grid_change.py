"""A change of the grid as a machine: outcomes in, commands out. koalad and the simulated world carry it out.

    idle -> draining -> looking -> keeping -> changing -> idle, and the change is in force
    draining, looking, keeping, changing -> restoring, undoing -> idle, and all is as before
    looking -> changing -> forgetting -> idle, if clusters are given up with all that is there

The files have a cluster as long as the store may have something there, also if koalad is killed between two steps. A
cluster that leaves is drained first, so that nothing is placed there between the look at it and its end. The outcome
of a commit decides what follows, however late it comes: nothing is undone, and nothing else begins, before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from koalapy.model.errors import KoalaError
from koalapy.model.events import ClusterChanged, ClusterJoined, ClusterLeft, Event
from koalapy.model.settings import Settings

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Grid(Generic[K]):
    """A grid. `kept`: its files, which outlive koalad. `settings`: the engine's, with the marks of drained clusters."""

    kept: K
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[K]):
    """The change to the grid `after`. A cluster that joins and leaves is another one of that name.

    `renewing`: clusters that stay and get a new link. `forced`: they leave with all that is there. `renews`: see
    Delivery.
    """

    after: Grid[K]
    leaving: tuple[str, ...] = ()
    joining: tuple[str, ...] = ()
    renewing: tuple[str, ...] = ()
    forced: bool = False
    renews: bool = False


# ---- commands. The first three have an outcome: one of the machine's methods is called with it, before anything else.


@dataclass(frozen=True, slots=True)
class Keep(Generic[K]):
    """Write this into the files, as a whole or not at all. Outcome: `kept` or `not_kept`."""

    kept: K


@dataclass(frozen=True, slots=True)
class Commit(Generic[K]):
    """Commit the events and, with them, bring the grid into force. Outcome: `committed` or `refused`.

    `undoes`: it must be committed in time, even if the store fails now.
    """

    events: tuple[Event, ...]
    grid: Grid[K]
    renews: bool = False
    undoes: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """Look at what koalapy has on these clusters. Outcome: `looked`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """End the link to a cluster."""

    name: str


@dataclass(frozen=True, slots=True)
class Join:
    """Begin a link to a cluster."""

    name: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Replace the link to a cluster by a new one."""

    name: str


@dataclass(frozen=True, slots=True)
class Done:
    """The change is in force. `remaining`: what was given up on clusters that left."""

    remaining: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class InUse:
    """Nothing has changed, for the sake of what is left on clusters that were to leave."""

    remaining: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing has changed, because of this error."""

    error: KoalaError


GridCommand: TypeAlias = Keep[K] | Commit[K] | Look | Leave | Join | Renew | Done | InUse | Failed


class _State(Enum):
    IDLE = "idle"
    DRAINING = "draining"
    LOOKING = "looking"
    KEEPING = "keeping"
    CHANGING = "changing"
    FORGETTING = "forgetting"
    RESTORING = "restoring"
    UNDOING = "undoing"


class GridChange(Generic[K]):
    """One change at a time. Every event is a method, which returns commands to carry out in their order.

    `present`: the grid in force. `why_not`: why the change under way, or the last one, changes nothing, once that is
    decided.
    """

    def __init__(self, present: Grid[K]) -> None:
        self.present = present
        self.why_not: InUse | Failed | None = None
        self._state = _State.IDLE
        self._change: Change[K] = Change(after=present)
        self._undone: tuple[str, ...] = ()  # clusters that are drained for the time of the change
        self._remaining: Mapping[str, object] = {}

    @property
    def is_changing(self) -> bool:
        """Return whether a change is under way, so that no other may begin."""
        return self._state is not _State.IDLE

    def begin(self, change: Change[K]) -> list[GridCommand[K]]:
        assert not self.is_changing
        self._change, self._remaining, self.why_not = change, {}, None
        drained = {each.name for each in self.present.settings.clusters if each.draining}
        self._undone = tuple(name for name in change.leaving if name not in drained)
        if self._undone:
            self._state = _State.DRAINING
            return [_commit(self.present, _marked(self.present, self._undone))]
        return self._look() if change.leaving else self._keep()

    def committed(self) -> list[GridCommand[K]]:
        if self._state is _State.DRAINING:
            return self._look()
        if self._state is _State.UNDOING:
            return self._end()
        assert self._state is _State.CHANGING
        change, self.present = self._change, self._change.after
        links: list[GridCommand[K]] = [Leave(name) for name in change.leaving]
        links += [Join(name) for name in change.joining]
        links += [Renew(name) for name in change.renewing]
        if change.forced:
            self._state = _State.FORGETTING
            return [*links, Keep(change.after.kept)]
        return links + self._end(Done(self._remaining))

    def refused(self, error: KoalaError) -> list[GridCommand[K]]:
        """React to events that are not committed, and never will be."""
        if self._state is _State.UNDOING:
            return self._end()
        self.why_not = Failed(error)
        if self._state is _State.DRAINING:
            return self._end()
        assert self._state is _State.CHANGING
        if self._change.forced:
            return self._undo()
        self._state = _State.RESTORING
        return [Keep(self.present.kept)]

    def looked(self, remaining: Mapping[str, object]) -> list[GridCommand[K]]:
        """React to what is on the clusters that leave: those with anything, by name."""
        assert self._state is _State.LOOKING
        if remaining and not self._change.forced:
            self.why_not = InUse(remaining)
            return self._undo()
        self._remaining = remaining
        return self._commit_change() if self._change.forced else self._keep()

    def not_looked(self, error: KoalaError) -> list[GridCommand[K]]:
        """React to a look that got no answer."""
        assert self._state is _State.LOOKING
        self.why_not = Failed(error)
        return self._undo()

    def kept(self) -> list[GridCommand[K]]:
        if self._state is _State.RESTORING:
            return self._undo()
        if self._state is _State.FORGETTING:
            return self._end(Done(self._remaining))
        assert self._state is _State.KEEPING
        return self._commit_change()

    def not_kept(self, error: KoalaError) -> list[GridCommand[K]]:
        if self._state is _State.FORGETTING:  # the cluster comes back with the next start
            return self._end(Done(self._remaining))
        self.why_not = self.why_not or Failed(error)
        return self._undo()

    # ---- inside

    def _look(self) -> list[GridCommand[K]]:
        self._state = _State.LOOKING
        return [Look(self._change.leaving)]

    def _keep(self) -> list[GridCommand[K]]:
        self._state = _State.KEEPING
        return [Keep(self._change.after.kept)]

    def _commit_change(self) -> list[GridCommand[K]]:
        self._state = _State.CHANGING
        return [_commit(self.present, self._change.after, self._change)]

    def _undo(self) -> list[GridCommand[K]]:
        if not self._undone:
            return self._end()
        self._state = _State.UNDOING
        return [replace(_commit(_marked(self.present, self._undone), self.present), undoes=True)]

    def _end(self, outcome: Done | None = None) -> list[GridCommand[K]]:
        """End the change. Without an outcome nothing has changed."""
        self._state = _State.IDLE
        found = outcome or self.why_not
        assert found is not None
        return [found]


def _commit(before: Grid[K], after: Grid[K], change: Change[K] | None = None) -> Commit[K]:
    """Return the commit that leads from one grid to the next."""
    leaving: Sequence[str] = () if change is None else change.leaving
    joining: Sequence[str] = () if change is None else change.joining
    old = {each.name: each for each in before.settings.clusters}
    events: list[Event] = [ClusterLeft(name=name) for name in leaving]
    events += [ClusterJoined(settings=each) for each in after.settings.clusters if each.name in joining]
    events += [
        ClusterChanged(settings=each)
        for each in after.settings.clusters
        if each.name not in joining and each != old[each.name]
    ]
    return Commit(tuple(events), after, renews=change is not None and change.renews)


def _marked(grid: Grid[K], draining: Sequence[str]) -> Grid[K]:
    """Return the grid with these clusters drained too."""
    clusters = tuple(replace(each, draining=each.draining or each.name in draining) for each in grid.settings.clusters)
    return replace(grid, settings=replace(grid.settings, clusters=clusters))
