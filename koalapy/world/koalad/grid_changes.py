"""Changes of a simulated koalad's grid: clusters added, drained, resumed and removed, and a grid file read again.

`driver/grid_change.py` decides their steps, as for koalad itself. Between them other events are handled, and koalad may
be killed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from koalapy.core.remaining import remaining_on
from koalapy.driver.driver import Delivery
from koalapy.driver.grid_change import (
    Change,
    Commit,
    Done,
    Failed,
    Grid,
    GridChange,
    GridCommand,
    InUse,
    Join,
    Keep,
    Leave,
    Look,
    Renew,
)
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import GridHint, JoinCluster
from koalapy.model.lease import LeasedCluster
from koalapy.model.pilot import Pilot
from koalapy.model.settings import Settings
from koalapy.model.units import MILLISECOND, SECOND, Duration
from koalapy.world.koalad.cluster_link import SimClusterLink
from koalapy.world.koalad.koalad_process import KoaladProcess

_SOON, _AGAIN = Duration(10 * MILLISECOND), Duration(SECOND)  # from a hint to its change, and to another try


class Host(Protocol):
    """The host of koalad."""

    @property
    def process(self) -> KoaladProcess | None: ...

    @property
    def takes_requests(self) -> bool:
        """Return whether koalad takes a user's request now."""
        ...

    def link(self, name: str) -> SimClusterLink:
        """Return a new link to a cluster."""
        ...

    def temporary_settings(self, held: Pilot | LeasedCluster) -> ClusterSettings | None:
        """Return the settings of the cluster of a pilot or lease; None before the processors of a pilot are there."""
        ...


@dataclass(frozen=True, slots=True)
class Files:
    """The two files: the grid file with its clusters and its rules for all of them, and `clusters.json`.

    `added`: the clusters that were added by command. `temporary`: the pilots and leases of the present koalad, which no
    file has.
    """

    file: Mapping[str, ClusterSettings]
    rules: Settings
    added: Mapping[str, ClusterSettings] = field(default_factory=dict)
    draining: tuple[str, ...] = ()
    temporary: Mapping[str, ClusterSettings] = field(default_factory=dict)

    @property
    def grid(self) -> "Grid[Files]":
        """The grid of these files: of one name, the grid file's cluster."""
        added = {name: each for name, each in self.added.items() if name not in self.file}
        return self.grid_of({**self.file, **added, **self.temporary})

    def grid_of(self, clusters: Mapping[str, ClusterSettings]) -> "Grid[Files]":
        """Return the grid of these clusters."""
        marked = tuple(replace(each, draining=name in self.draining) for name, each in clusters.items())
        return Grid(self, replace(self.rules, clusters=marked))


class SimGrid:
    """The grid of a koalad, with the files that outlive its processes.

    A change that is not allowed, or is requested during another one, changes nothing. `forced`: clusters that are to
    leave with all that is there.
    """

    def __init__(self, host: Host, settings: Settings) -> None:
        self.forced: dict[str, None] = {}
        self._host = host
        self._files = Files({each.name: each for each in settings.clusters}, settings)
        self.read_files()

    # ---- queries

    @property
    def file(self) -> Mapping[str, ClusterSettings]:
        """The grid file's clusters."""
        return self._files.file

    @property
    def rules(self) -> Settings:
        """The grid file's rules for all clusters."""
        return self._files.rules

    @property
    def draining(self) -> Sequence[str]:
        """The clusters that are drained by command."""
        return self._files.draining

    @property
    def names(self) -> Sequence[str]:
        """The clusters of the grid."""
        return list(self._present)

    @property
    def settings(self) -> Settings:
        """The engine's settings of the present grid, also of one that is drained for the time of a change."""
        return self._in_force

    def read_files(self, temporary: Iterable[ClusterSettings] = ()) -> None:
        """Take the clusters of the files as the grid, and those that the store holds, as a starting koalad does."""
        self._files = replace(self._files, temporary={each.name: each for each in temporary})
        names = {*self._files.file, *self._files.added, *self._files.temporary}
        self._files = replace(self._files, draining=tuple(name for name in self._files.draining if name in names))
        self._machine = GridChange(self._files.grid)
        self._in_force = self._machine.present.settings
        self.forced = {}
        self._hints: dict[str, GridHint] = {}

    # ---- changes

    def add(self, cluster: ClusterSettings) -> None:
        """Add a cluster, as `koala cluster add` does."""
        if self._may_begin and cluster.name not in self.names:
            after = replace(self._files, added={**self._files.added, cluster.name: cluster})
            self._make(Change(after=after.grid_of(self._present | {cluster.name: cluster}), joining=(cluster.name,)))

    def drain(self, name: str, draining: bool) -> None:
        """Drain or resume a cluster, as `koala cluster remove --drain` and `koala cluster resume` do."""
        if self._may_begin and name in self.names and draining is not (name in self.draining):
            others = tuple(each for each in self.draining if each != name)
            after = replace(self._files, draining=(*others, name) if draining else others)
            self._make(Change(after=after.grid_of(self._present)))

    def carry_out(self, hint: GridHint) -> None:
        """Begin to carry out a hint of the engine; see the hints."""
        self._hints.pop(hint.name, None)
        self._hints[hint.name] = hint
        self._process.after(_SOON, self._follow_hint)

    def _follow_hint(self) -> None:
        """Carry out the oldest hint that can be carried out now."""
        for name, hint in list(self._hints.items()) if self._may_begin else ():
            if isinstance(hint, JoinCluster):
                settings = self._host.temporary_settings(hint.joining)
                if settings is None:
                    continue
                self._join(settings)
            else:
                self._leave(name)
            del self._hints[name]
            break
        if self._hints:
            self._process.after(_AGAIN, self._follow_hint)

    def _join(self, settings: ClusterSettings) -> None:
        if settings.name not in self.names:
            after = replace(self._files, temporary={**self._files.temporary, settings.name: settings})
            self._make(Change(after=after.grid_of(self._present | {settings.name: settings}), joining=(settings.name,)))

    def _leave(self, name: str) -> None:
        if name in self.names:
            self.forced[name] = None
            held = {each: settings for each, settings in self._files.temporary.items() if each != name}
            draining = tuple(each for each in self.draining if each != name)
            rest = {each: settings for each, settings in self._present.items() if each != name}
            after = replace(self._files, temporary=held, draining=draining)
            self._make(Change(after=after.grid_of(rest), leaving=(name,), forced=True))

    def remove(self, name: str, force: bool = False) -> None:
        """Remove a cluster, as `koala cluster remove` does. Without `force` it stays if koalapy has something there."""
        others = [each for each in self.names if each not in (name, *self._files.temporary)]
        if self._may_begin and name in self.names and name not in self._files.temporary and others:
            if force:
                self.forced[name] = None
            added = {each: cluster for each, cluster in self._files.added.items() if each != name}
            draining = tuple(each for each in self.draining if each != name)
            after = replace(self._files, added=added, draining=draining)
            rest = {each: cluster for each, cluster in self._present.items() if each != name}
            self._make(Change(after=after.grid_of(rest), leaving=(name,), forced=force))

    def reload(self, file: Mapping[str, ClusterSettings], rules: Settings, renewed: str = "") -> None:
        """Read a changed grid file, as `koala reload` does. `renewed`: the cluster of a key that its KCM needs."""
        if not self._may_begin:
            return
        added = {name: each for name, each in self._files.added.items() if name not in file}
        grid = Files(file, rules, added, temporary=self._files.temporary).grid
        new, present = [each.name for each in grid.settings.clusters], self.names
        leaving = tuple(name for name in present if name not in new)
        joining = tuple(name for name in new if name not in present)
        draining = tuple(name for name in self.draining if name not in leaving)
        if new:
            change = Change(
                after=replace(grid.kept, draining=draining).grid,
                leaving=leaving,
                joining=joining,
                renewing=(renewed,) if renewed in new and renewed not in joining else (),
                renews=replace(rules, clusters=()) != replace(self.settings, clusters=()),
            )
            self._make(change)

    # ---- steps

    @property
    def _may_begin(self) -> bool:
        """Return whether koalad takes a request, and makes no other change."""
        return self._host.takes_requests and not self._machine.is_changing

    @property
    def _present(self) -> dict[str, ClusterSettings]:
        return {each.name: each for each in self._machine.present.settings.clusters}

    @property
    def _process(self) -> KoaladProcess:
        process = self._host.process
        assert process is not None
        return process

    def _make(self, change: Change[Files]) -> None:
        self._carry_out(self._machine.begin(change))

    def _carry_out(self, commands: Iterable[GridCommand[Files]]) -> None:
        """Carry the machine's commands out; those that follow a commit come when it is done."""
        for command in commands:
            match command:
                case Keep():
                    self._files = command.kept
                    self._carry_out(self._machine.kept())
                case Commit():
                    self._commit(command)
                case Look():
                    engine = self._process.engine
                    found = {name: remaining_on(engine.core, name) for name in command.names}
                    self._carry_out(self._machine.looked({name: left for name, left in found.items() if left}))
                case Leave():
                    self.forced.pop(command.name, None)
                    self._process.leave(command.name)
                case Join():
                    self._process.join(command.name, self._host.link(command.name))
                case Renew():
                    self._process.renew(command.name, self._host.link(command.name))
                case Done() | InUse() | Failed():
                    pass

    def _commit(self, command: Commit[Files]) -> None:
        machine = self._machine

        def after(step: object) -> None:
            self._in_force = command.grid.settings
            self._carry_out(machine.committed())

        self._process.deliver(Delivery(events=command.events, after=after, renews=command.renews))
