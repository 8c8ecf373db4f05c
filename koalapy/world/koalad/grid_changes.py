"""Changes of a simulated koalad's grid: clusters added, drained, resumed and removed, and a grid file read again.

The steps are those of `koalapy.runtime.grid_changes`. Between them other events are handled, and koalad may be killed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from koalapy.driver import Delivery
from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import ClusterChanged, ClusterJoined, ClusterLeft, Event
from koalapy.model.settings import Settings
from koalapy.views.clusters import left_on
from koalapy.world.koalad.koalad_process import KoaladProcess
from koalapy.world.koalad.uplink import Uplink


class Host(Protocol):
    """The host of koalad."""

    @property
    def process(self) -> KoaladProcess | None: ...

    @property
    def takes_requests(self) -> bool:
        """Whether koalad takes a user's request now."""
        ...

    def link(self, name: str) -> Uplink:
        """Return a new link to a cluster."""
        ...


class SimGrid:
    """The grid of a koalad, with the two files that outlive its processes: the grid file and `clusters.json`.

    A change that is not allowed, or is requested during another one, changes nothing. `file`: the grid file's clusters;
    `added`: those added by command. `forced`: clusters that are to leave with all that is there.
    """

    def __init__(self, host: Host, settings: Settings) -> None:
        self.file = {each.name: each for each in settings.clusters}
        self.added: dict[str, ClusterSettings] = {}
        self.draining: dict[str, None] = {}
        self.forced: dict[str, None] = {}
        self.rules = settings  # of the grid file, for all clusters
        self._host = host
        self._present, self._present_rules = dict(self.file), settings
        self._changing: KoaladProcess | None = None  # makes a change; dead if it was killed meanwhile

    # ---- queries

    @property
    def names(self) -> Sequence[str]:
        """The clusters of the grid."""
        return list(self._present)

    @property
    def settings(self) -> Settings:
        """The engine's settings of the present grid."""
        return replace(self._present_rules, clusters=tuple(map(self._with_mark, self._present.values())))

    def read_files(self) -> None:
        """Take the clusters of the files as the grid, as a starting koalad does."""
        self._present, self._present_rules = self._of_files(self.file), self.rules
        self.draining = {name: None for name in self.draining if name in self._present}
        self._changing, self.forced = None, {}

    # ---- changes

    def add(self, cluster: ClusterSettings) -> None:
        """Add a cluster, as `koala cluster add` does."""
        if self._may_begin and cluster.name not in self._present:
            self.added[cluster.name] = cluster
            self._commit(lambda: self._join(cluster), ClusterJoined(settings=self._with_mark(cluster)))

    def drain(self, name: str, draining: bool) -> None:
        """Drain or resume a cluster, as `koala cluster remove --drain` and `koala cluster resume` do."""
        if self._may_begin and name in self._present and draining is not (name in self.draining):
            self.draining.pop(name, None)
            if draining:
                self.draining[name] = None
            self._commit(lambda: None, ClusterChanged(settings=self._with_mark(self._present[name])))

    def remove(self, name: str, force: bool = False) -> None:
        """Remove a cluster, as `koala cluster remove` does. Without `force` it stays if koalapy has something there."""

        def committed() -> None:
            self._leave(name)
            self.added.pop(name, None)
            self.draining.pop(name, None)

        if self._may_begin and name in self._present and len(self._present) > 1:
            self._drained([name], force, lambda: self._commit(committed, ClusterLeft(name=name)))

    def reload(self, file: Mapping[str, ClusterSettings], rules: Settings, renewed: str = "") -> None:
        """Read a changed grid file, as `koala reload` does. `renewed`: the cluster of a key that its KCM needs."""
        grid, present = self._of_files(file), self._present
        leaving = [name for name in present if name not in grid]
        joining = [name for name in grid if name not in present]
        changed = [name for name in grid if name in present and grid[name] != present[name]]

        def change() -> None:
            self.file, self.rules = dict(file), rules
            self.added = {name: each for name, each in self.added.items() if name not in file}
            self.draining = {name: None for name in self.draining if name not in leaving}
            events: list[Event] = [ClusterLeft(name=name) for name in leaving]
            events += [ClusterJoined(settings=self._with_mark(grid[name])) for name in joining]
            events += [ClusterChanged(settings=self._with_mark(grid[name])) for name in changed]
            renews = replace(rules, clusters=()) != replace(self._present_rules, clusters=())
            self._commit(committed, *events, renews=renews)

        def committed() -> None:
            self._present_rules = rules
            self._present |= {name: grid[name] for name in changed}
            for name in leaving:
                self._leave(name)
            for name in joining:
                self._join(grid[name])
            if renewed in grid and renewed not in joining:
                self._process.renew(renewed, self._host.link(renewed))

        if self._may_begin and grid:
            self._drained(leaving, False, change)

    # ---- steps

    @property
    def _may_begin(self) -> bool:
        """Whether koalad takes a request, and makes no other change."""
        return self._host.takes_requests and self._changing is not self._host.process

    @property
    def _process(self) -> KoaladProcess:
        process = self._host.process
        assert process is not None
        return process

    def _drained(self, names: Sequence[str], force: bool, then: Callable[[], None]) -> None:
        """Drain the clusters, and go on if nothing is left on them, or with `force`. Else they are as they were."""
        undone = [self._present[name] for name in names if name not in self.draining]
        if force:
            self.forced |= dict.fromkeys(names)

        def look() -> None:
            engine = self._process.engine
            if force or not any(left_on(engine, name) for name in names):
                then()
            else:
                self._commit(lambda: None, *(ClusterChanged(settings=each) for each in undone))

        if undone:
            self._commit(look, *(ClusterChanged(settings=replace(each, draining=True)) for each in undone))
        else:
            look()

    def _commit(self, committed: Callable[[], None], *events: Event, renews: bool = False) -> None:
        """Hand the events to koalad, and go on when they are committed."""
        process = self._changing = self._process

        def after(step: object) -> None:
            self._changing = None
            committed()

        process.deliver(Delivery(events=events, after=after, renews=renews))

    def _join(self, cluster: ClusterSettings) -> None:
        self._present[cluster.name] = cluster
        self._process.join(cluster.name, self._host.link(cluster.name))

    def _leave(self, name: str) -> None:
        del self._present[name]
        self.forced.pop(name, None)
        self._process.leave(name)

    def _of_files(self, file: Mapping[str, ClusterSettings]) -> dict[str, ClusterSettings]:
        """Return the clusters of this grid file with those that were added by command: of one name, the file's."""
        return {**file, **{name: each for name, each in self.added.items() if name not in file}}

    def _with_mark(self, cluster: ClusterSettings) -> ClusterSettings:
        return replace(cluster, draining=cluster.name in self.draining)
