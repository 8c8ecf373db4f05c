"""Changes of the grid while koalad runs: clusters that are added, drained and removed, and a grid file read again.

One change is made at a time. Each is checked as a whole before anything happens. A cluster leaves only when koalapy has
nothing there: it is drained first, so that nothing is placed there between the check and its end.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import structlog

from koalapy.config import (
    Cluster,
    Difference,
    GridFile,
    cluster_config,
    difference,
    read_cluster,
    with_clusters,
)
from koalapy.config.difference import PLACE
from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import KoalaError, RequestError
from koalapy.model.events import ClusterChanged, ClusterJoined, ClusterLeft, Event
from koalapy.model.settings import Settings
from koalapy.model.textfile.words import listed
from koalapy.runtime import command_clusters
from koalapy.runtime.command_clusters import CommandClusters, place_of, places_of
from koalapy.runtime.current_grid import CurrentGrid
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.links import ClusterLinks
from koalapy.runtime.logins import Logins
from koalapy.runtime.no_such_cluster import no_such_cluster
from koalapy.runtime.uplink.connect import may_ask
from koalapy.views.clusters import LeftOn, left_on

_LOG = structlog.get_logger()
_RESTART = "`koala down`, then `koala up` does it; jobs run on."
# Keys of a cluster that only its link knows, beside those in its KCM's configuration.
_OF_LINK = ("connect", "identity", "known_hosts", "ssh_config")


class Commit(Protocol):
    """Commits events on the driver's thread, and returns then. `renews`: see Delivery. Raises KoalaError."""

    def __call__(self, *events: Event, committed: Callable[[], None], renews: bool) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GridParts:
    """The parts of koalad that follow a change of the grid.

    `read`: reads the grid file, and raises RequestError. `settings`: the engine's settings of a grid file. `check`:
    raises RequestError for policies and tasks that cannot be loaded. `adopt`: gives settings and grid to everything
    else that depends on them, once they are committed; it is called on the driver's thread and must return at once.
    `shared_store`: whether a koalad of another host may take this store over.
    """

    commit: Commit
    loop: DriverThread
    links: ClusterLinks
    logins: Logins
    read: Callable[[], GridFile]
    settings: Callable[[GridFile, Collection[str]], Settings]
    check: Callable[[GridFile], None]
    adopt: Callable[[GridFile, Settings], None]
    state_directory: Path
    shared_store: bool


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The outcome of a reload. `refused`: why it would not be done, as sentences; it was done if there are none."""

    difference: Difference
    refused: tuple[str, ...] = ()


class GridChanges:
    """Changes the grid of a koalad. Any thread may call it; every call blocks until its change is in force."""

    def __init__(self, grid: CurrentGrid, contents: CommandClusters, parts: GridParts) -> None:
        """`contents`: those of the state directory's file, with clusters that are in `grid` already."""
        self._grid, self._contents, self._parts = grid, contents, parts
        self._lock = threading.Lock()

    # ---- queries

    @property
    def added(self) -> frozenset[str]:
        """The names of the clusters that were added by command."""
        return frozenset(self._contents.added)

    # ---- one cluster

    def add(self, name: str, values: Mapping[str, str], batch_systems: Collection[str]) -> None:
        """Add a cluster, which is kept over restarts. It connects in the background.

        Raises KoalaError; then nothing has changed.
        """
        with self._lock:
            if self._parts.shared_store:
                message = "This grid's store is shared, and a koalad of another host would not know the cluster."
                raise RequestError("shared_store", message, "Write it into the grid file of each host: `koala reload`.")
            cluster = read_cluster(name, values, batch_systems)
            grid = with_clusters(self._grid.file, {name: cluster})
            self._refuse_other_place(name, cluster)
            before = self._contents
            self._save(replace(before, added=before.added | {name: dict(values)}, places=self._places(grid)))
            try:
                self._commit(grid, ClusterJoined(settings=self._settings_of(grid, name)))
            except KoalaError:
                self._save(before)
                raise
            self._join(name)
            _LOG.info("cluster_added", cluster=name, batch=cluster.batch)

    def remove(self, name: str, force: bool = False) -> LeftOn:
        """Remove a cluster, and return what was given up there.

        `force`: give up what koalapy has there: attempts count as lost, and nobody cancels them. Raises KoalaError if
        there is something and `force` is not given, and for the last cluster; then nothing has changed.
        """
        with self._lock:
            self._check_name(name)
            if len(self._grid.file.clusters) == 1:
                message = f"{name} is the only cluster of the grid."
                raise RequestError("last_cluster", message, "Add another one first, or end koalad with `koala down`.")
            with self._drained([name]) as left:
                if left and not force:
                    raise _in_use(left)
                rest = {each: cluster for each, cluster in self._grid.file.clusters.items() if each != name}
                grid = self._grid.file.model_copy(update={"clusters": rest})
                self._commit(grid, ClusterLeft(name=name))
            self._leave(name)
            before = self._contents
            self._save(
                CommandClusters(
                    {each: values for each, values in before.added.items() if each != name},
                    tuple(each for each in before.draining if each != name),
                    {each: place for each, place in before.places.items() if each != name},
                )
            )
            given_up = left.get(name, LeftOn())
            _LOG.info("cluster_removed", cluster=name, given_up=str(given_up))
            return given_up

    def drain(self, name: str, draining: bool) -> LeftOn:
        """Place nothing on the cluster any more, or place jobs there again. Returns what koalapy has there now.

        It is kept over restarts. Raises KoalaError; then nothing has changed.
        """
        with self._lock:
            self._check_name(name)
            before = self._contents
            if draining is (name in before.draining):
                return self._left([name]).get(name, LeftOn())
            others = tuple(each for each in before.draining if each != name)
            self._save(replace(before, draining=(*others, name) if draining else others))
            try:
                self._commit(self._grid.file, ClusterChanged(settings=self._settings_of(self._grid.file, name)))
            except KoalaError:
                self._save(before)
                raise
            _LOG.info("cluster_draining" if draining else "cluster_resumed", cluster=name)
            return self._left([name]).get(name, LeftOn())

    # ---- the grid file

    def reload(self, check: bool = False) -> Reloaded:
        """Read the grid file again and do what it changes, as a whole. `check`: only find out what that is.

        Raises KoalaError for a grid file with a mistake, and for a change that is refused; then nothing has changed.
        """
        with self._lock:
            file = self._parts.read()
            self._parts.check(file)
            added = {name: values for name, values in self._contents.added.items() if name not in file.clusters}
            grid = with_clusters(file, {name: self._grid.file.clusters[name] for name in added})
            found = difference(self._grid.file, grid)
            for name in found.added:
                self._refuse_other_place(name, grid.clusters[name])
            if check:
                return Reloaded(found, tuple(_refusals(found, self._left(found.leaving))))
            if refused := _refusals(found, {}):
                raise RequestError("needs_restart", refused[0], _RESTART)
            with self._drained(found.leaving) as left:
                if left:
                    raise _in_use(left)
                self._change(grid, found, added)
            return Reloaded(found)

    def _change(self, grid: GridFile, found: Difference, added: dict[str, dict[str, str]]) -> None:
        """Bring the new grid into force. No cluster that leaves has anything of koalapy's. Raises KoalaError."""
        before, contents = self._grid.file, self._contents
        stay = [name for name in grid.clusters if name in before.clusters and name not in found.moved]
        links = [name for name in stay if _link_of(before, name) != _link_of(grid, name)]
        old = self._parts.settings(before, contents.draining)
        draining = tuple(name for name in contents.draining if name not in found.leaving)
        new = self._parts.settings(grid, draining)
        old_clusters = {each.name: each for each in old.clusters}
        joining = [*found.added, *found.moved]
        events: list[Event] = [ClusterLeft(name=name) for name in found.leaving]
        events += [ClusterJoined(settings=each) for each in new.clusters if each.name in joining]
        events += [
            ClusterChanged(settings=each)
            for each in new.clusters
            if each.name not in joining and each != old_clusters[each.name]
        ]
        self._save(CommandClusters(added, draining, self._places(grid)))
        try:
            self._commit(grid, *events, renews=replace(old, clusters=()) != replace(new, clusters=()))
        except KoalaError:
            self._save(contents)
            raise
        for name in found.leaving:
            self._leave(name)
        for name in joining:
            self._join(name)
        for name in links:
            self._parts.logins.leave(name)
            self._parts.logins.join(name, may_ask(grid.clusters[name]))
            self._parts.links.renew(name)
        changed = [".".join(filter(None, (each.cluster, each.key))) for each in found.changed]
        _LOG.info("grid_file_read_again", added=[*found.added], removed=[*found.removed], changed=changed)

    # ---- steps

    @contextmanager
    def _drained(self, names: Sequence[str]) -> Iterator[dict[str, LeftOn]]:
        """Drain the clusters, and yield what is left on them. If the block raises, they are as they were."""
        grid, undone = self._grid.file, [name for name in names if name not in self._contents.draining]
        settings = [self._settings_of(grid, name) for name in undone]
        try:
            if settings:
                drained = [ClusterChanged(settings=replace(each, draining=True)) for each in settings]
                self._commit(grid, *drained, draining=undone)
            yield self._left(names)
        except BaseException:
            if settings:
                with suppress(KoalaError):  # a store that fails now commits it in time
                    self._commit(grid, *(ClusterChanged(settings=each) for each in settings))
            raise

    def _left(self, names: Iterable[str]) -> dict[str, LeftOn]:
        """Return the clusters that koalapy has something on, or waits for."""
        found = self._parts.loop.ask(lambda engine: {name: left_on(engine, name) for name in names})
        return {name: left for name, left in found.items() if left}

    def _commit(self, grid: GridFile, *events: Event, renews: bool = False, draining: Collection[str] = ()) -> None:
        """Commit the events and, with them, bring the grid into force. Raises KoalaError.

        `draining`: clusters that are drained for the time being.
        """
        settings = self._parts.settings(grid, (*self._contents.draining, *draining))

        def committed() -> None:
            self._grid.file = grid
            self._parts.adopt(grid, settings)

        self._parts.commit(*events, committed=committed, renews=renews)

    def _join(self, name: str) -> None:
        self._parts.logins.join(name, may_ask(self._grid.file.clusters[name]))
        self._parts.links.join(name)

    def _leave(self, name: str) -> None:
        self._parts.logins.leave(name)
        self._parts.links.leave(name)

    def _save(self, contents: CommandClusters) -> None:
        command_clusters.save(self._parts.state_directory, contents)
        self._contents = contents

    def _places(self, grid: GridFile) -> dict[str, list[Any]]:
        return self._contents.places | places_of(grid)

    def _settings_of(self, grid: GridFile, name: str) -> ClusterSettings:
        found = self._parts.settings(grid, self._contents.draining)
        return next(each for each in found.clusters if each.name == name)

    def _check_name(self, name: str) -> None:
        if name not in self._grid.file.clusters:
            raise no_such_cluster(name, self._grid.file.clusters)

    def _refuse_other_place(self, name: str, cluster: Cluster) -> None:
        """Refuse a cluster that comes back elsewhere while the store has attempts of the former one."""
        known = self._contents.places.get(name)
        if known is None or known == place_of(cluster):
            return
        left = self._left([name]).get(name)
        if left is not None and (left.living or left.pending_cancels):
            was = ", ".join(f"{key}: {_shown(value)}" for key, value in zip(PLACE, known, strict=True) if value)
            message = f"The store knows a cluster {name} at another place ({was}), with {left}."
            advice = "Give the new one another name, or add the former one again until nothing is left there."
            raise RequestError("other_place", message, advice)


def _in_use(left: Mapping[str, LeftOn]) -> RequestError:
    """Return the error for clusters that cannot leave yet."""
    sentences = " ".join(_sentences(left))
    advice = f"`koala cluster remove {next(iter(left))} --drain` waits until nothing is left there."
    if all(not (each.living or each.pending_cancels or each.collecting) for each in left.values()):
        advice = "Cancel these jobs, or submit them for another cluster."
    return RequestError("cluster_in_use", f"{sentences} Nothing was changed.", advice)


def _sentences(left: Mapping[str, LeftOn]) -> list[str]:
    return [f"{name} cannot leave the grid: there is {what}." for name, what in left.items()]


def _refusals(found: Difference, left: Mapping[str, LeftOn]) -> list[str]:
    """Return why the change cannot be made, as sentences."""
    keys = listed(found.at_start, "and")
    at_start = [f"koalad reads {keys} only when it starts. Nothing was changed."] if keys else []
    return at_start + _sentences(left)


def _link_of(grid: GridFile, name: str) -> tuple[object, ...]:
    """Return the values of a cluster that its link depends on."""
    cluster = grid.clusters[name]
    return grid.stream_timeout, cluster_config(grid, name), *(getattr(cluster, key) for key in _OF_LINK)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
