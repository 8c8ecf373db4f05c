"""Changes of the grid while koalad runs: clusters that are added, drained and removed, and a grid file read again.

One change is made at a time. Each is checked as a whole before anything happens, then carried out as
`driver/grid_change.py` decides. A caller may stop waiting for a store that fails; the change goes on when it
works again.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import structlog

from koalapy.config import (
    Cluster,
    Difference,
    GridFile,
    cluster_config,
    difference,
    read_cluster,
    with_clusters,
    with_temporary,
)
from koalapy.config.difference import PLACE
from koalapy.core.remaining import Remaining, remaining_on
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
from koalapy.model.commands import GridHint, JoinCluster
from koalapy.model.errors import KoalaError, Reason, RequestError, TransientError
from koalapy.model.lease import LeasedCluster, lease_of_cluster
from koalapy.model.pilot import Pilot, job_of_pilot
from koalapy.model.settings import Settings
from koalapy.model.textfile.words import listed
from koalapy.runtime import current_grid
from koalapy.runtime.cluster_link.connect import may_ask
from koalapy.runtime.current_grid import CommandClusters, CurrentGrid, no_such_cluster, place_of, places_of
from koalapy.runtime.driver_thread import (
    COMMIT_S,
    DriverThread,
    committed_in_time,
    not_committed,
    refusal,
    store_failing,
)
from koalapy.runtime.links import ClusterLinks
from koalapy.runtime.logins import Logins

_LOG = structlog.get_logger()
_AGAIN_S = 5.0  # after a change for a hint that failed
_RESTART = "`koala down`, then `koala up` does it; jobs run on."
# Keys of a cluster that only its link knows, beside those in its KCM's configuration.
_OF_LINK = ("connect", "identity", "known_hosts", "ssh_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridParts:
    """The parts of koalad that follow a change of the grid.

    `read`: reads the grid file, and raises RequestError. `settings`: the engine's settings of a grid file. `check`:
    raises RequestError for policies and tasks that cannot be loaded. `adopt`: gives settings and grid to everything
    else that depends on them, once they are committed; it is called on the driver's thread and must return at once.
    `shared_store`: whether a koalad of another host may take this store over.
    """

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


@dataclass(frozen=True, slots=True)
class Kept:
    """The grid, and the contents of the state directory's file."""

    file: GridFile
    contents: CommandClusters


class GridChanges:
    """Changes the grid of a koalad. Any thread may call it; every call blocks until its change is in force.

    A call whose change is not recorded in time raises TransientError, code `not_committed`. Its change goes on, and no
    other one begins before it is in force or refused.
    """

    def __init__(self, grid: CurrentGrid, contents: CommandClusters, parts: GridParts) -> None:
        """`contents`: those of the state directory's file, with clusters that are in `grid` already."""
        self._grid, self._parts = grid, parts
        self._lock = threading.Lock()  # held by a change from its check until its end
        kept = Kept(grid.file, contents)
        self._machine = GridChange(Grid(kept, parts.settings(grid.file, contents.draining)))
        self._hints_lock, self._closed = threading.Lock(), threading.Event()
        self._hints: dict[str, GridHint] = {}  # by cluster, those that are yet to be carried out
        self._hinted: threading.Thread | None = None

    # ---- queries

    @property
    def added(self) -> frozenset[str]:
        """The names of the clusters that the grid file does not have: added by command, pilots or leases."""
        return frozenset((*self._contents.added, *self.pilots, *self.leases))

    @property
    def pilots(self) -> list[str]:
        """The names of the clusters that are pilots."""
        return [name for name in self._grid.file.clusters if job_of_pilot(name) is not None]

    @property
    def leases(self) -> list[str]:
        """The names of the clusters that are leases of other sites."""
        return [name for name in self._grid.file.clusters if lease_of_cluster(name) is not None]

    # ---- pilots and leases

    def carry_out(self, hint: GridHint) -> None:
        """Begin to carry out a hint of the engine, in a thread of its own; returns at once. See the hints."""
        with self._hints_lock:
            self._hints.pop(hint.name, None)
            self._hints[hint.name] = hint
            if self._hinted is None:
                self._hinted = threading.Thread(target=self._follow_hints, name="grid-hints", daemon=True)
                self._hinted.start()

    @property
    def following(self) -> threading.Thread | None:
        """The thread that carries hints out, if there are any."""
        return self._hinted

    def close(self) -> None:
        """Begin no more changes for hints. The next koalad finds what is to be done."""
        self._closed.set()

    def _follow_hints(self) -> None:
        """Carry the hints out, one after the other, until there are none."""
        while True:
            with self._hints_lock:
                if not self._hints or self._closed.is_set():
                    self._hinted = None
                    return
                name, hint = next(iter(self._hints.items()))
                del self._hints[name]
            try:
                self._join(hint.joining) if isinstance(hint, JoinCluster) else self._leave(name)
            except Exception as error:
                _LOG.warning(
                    "hint_not_followed", cluster=name, reason=str(error), exc_info=not isinstance(error, KoalaError)
                )
                with self._hints_lock:
                    self._hints.setdefault(name, hint)
                self._closed.wait(_AGAIN_S)

    def _join(self, held: Pilot | LeasedCluster) -> None:
        """Make a pilot or lease a cluster of the grid. It is not kept: the store has it. Raises KoalaError."""

        def joined() -> Change[Kept] | None:
            if held.name in self._grid.file.clusters:
                return None
            file = with_temporary(self._grid.file, [held])
            if held.name not in file.clusters:
                return None
            return Change(after=self._grid_of(file, self._contents), joining=(held.name,))

        self._make(joined)
        _LOG.info("cluster_joined", cluster=held.name)

    def _leave(self, name: str) -> None:
        """Remove the cluster of a pilot or lease, if it is one. Attempts there are lost. Raises KoalaError."""

        def left() -> Change[Kept] | None:
            if name not in self._grid.file.clusters:
                return None
            draining = tuple(each for each in self._contents.draining if each != name)
            after = self._grid_of(_without(self._grid.file, name), replace(self._contents, draining=draining))
            return Change(after=after, leaving=(name,), forced=True)

        lost = self._make(left).get(name, Remaining())
        _LOG.info("cluster_ended", cluster=name, lost=str(lost))

    # ---- one cluster

    def add(self, name: str, values: Mapping[str, str], batch_systems: Collection[str]) -> None:
        """Add a cluster, which is kept over restarts. It connects in the background.

        Raises KoalaError; then nothing has changed.
        """

        def added() -> Change[Kept]:
            cluster = read_cluster(name, values, batch_systems)
            file = with_clusters(self._grid.file, {name: cluster})
            self._refuse_other_place(name, cluster)
            contents = replace(self._contents, added=self._contents.added | {name: dict(values)})
            return Change(after=self._grid_of(file, contents), joining=(name,))

        if self._parts.shared_store:
            message = "This grid's store is shared, and a koalad of another host would not know the cluster."
            raise RequestError("shared_store", message, "Write it into the grid file of each host: `koala reload`.")
        self._make(added)
        _LOG.info("cluster_added", cluster=name)

    def remove(self, name: str, force: bool = False) -> Remaining:
        """Remove a cluster, and return what was given up there.

        `force`: give up what koalapy has there: attempts count as lost, and nobody cancels them. Raises KoalaError if
        there is something and `force` is not given, and for the last cluster; then nothing has changed.
        """

        def removed() -> Change[Kept]:
            self._check_name(name)
            if job_of_pilot(name) is not None:
                message = f"{name} is a pilot, which leaves with its job."
                raise RequestError("pilot", message, f"`koala pilots close {name}` ends it.")
            if lease_of_cluster(name) is not None:
                message = f"{name} is a lease, which leaves when it is over."
                raise RequestError("lease", message, f"`koala leases end {name}` returns it.")
            if len(self._grid.file.clusters) - len(self.pilots) - len(self.leases) == 1:
                message = f"{name} is the only cluster of the grid."
                raise RequestError("last_cluster", message, "Add another one first, or end koalad with `koala down`.")
            before = self._contents
            contents = CommandClusters(
                {each: values for each, values in before.added.items() if each != name},
                tuple(each for each in before.draining if each != name),
                {each: place for each, place in before.places.items() if each != name},
            )
            file = _without(self._grid.file, name)
            after = Grid(Kept(file, contents), self._parts.settings(file, contents.draining))
            return Change(after=after, leaving=(name,), forced=force)

        given_up = self._make(removed).get(name, Remaining())
        _LOG.info("cluster_removed", cluster=name, given_up=str(given_up))
        return given_up

    def drain(self, name: str, draining: bool) -> Remaining:
        """Place nothing on the cluster any more, or place jobs there again. Returns what koalapy has there now.

        It is kept over restarts. Raises KoalaError; then nothing has changed.
        """

        def drained() -> Change[Kept] | None:
            self._check_name(name)
            if draining is (name in self._contents.draining):
                return None
            others = tuple(each for each in self._contents.draining if each != name)
            contents = replace(self._contents, draining=(*others, name) if draining else others)
            return Change(after=self._grid_of(self._grid.file, contents))

        self._make(drained)
        _LOG.info("cluster_draining" if draining else "cluster_resumed", cluster=name)
        return self._remaining([name]).get(name, Remaining())

    # ---- the grid file

    def reload(self, check: bool = False) -> Reloaded:
        """Read the grid file again and do what it changes, as a whole. `check`: only find out what that is.

        Raises KoalaError for a grid file with a mistake, and for a change that is refused; then nothing has changed.
        """
        outcome: list[Reloaded] = []

        def reloaded() -> Change[Kept] | None:
            file = self._parts.read()
            self._parts.check(file)
            added = {name: values for name, values in self._contents.added.items() if name not in file.clusters}
            grid = with_clusters(
                file, {name: self._grid.file.clusters[name] for name in (*added, *self.pilots, *self.leases)}
            )
            found = difference(self._grid.file, grid)
            for name in found.added:
                self._refuse_other_place(name, grid.clusters[name])
            if check:
                outcome.append(Reloaded(found, tuple(_refusals(found, self._remaining(found.leaving)))))
                return None
            outcome.append(Reloaded(found))
            if refused := _refusals(found, {}):
                raise RequestError("needs_restart", refused[0], _RESTART)
            return self._change(grid, found, added)

        self._make(reloaded)
        (made,) = outcome
        if not check:
            changed = [".".join(filter(None, (each.cluster, each.key))) for each in made.difference.changed]
            of = made.difference
            _LOG.info("grid_file_read_again", added=[*of.added], removed=[*of.removed], changed=changed)
        return made

    def _change(self, grid: GridFile, found: Difference, added: dict[str, dict[str, str]]) -> Change[Kept]:
        """Return the change to a grid file."""
        before = self._grid.file
        stay = [name for name in grid.clusters if name in before.clusters and name not in found.moved]
        draining = tuple(name for name in self._contents.draining if name not in found.leaving)
        after = self._grid_of(grid, CommandClusters(added, draining, self._contents.places))
        old = self._parts.settings(before, draining)
        return Change(
            after=after,
            leaving=found.leaving,
            joining=(*found.added, *found.moved),
            renewing=tuple(name for name in stay if _link_of(before, name) != _link_of(grid, name)),
            renews=replace(old, clusters=()) != replace(after.settings, clusters=()),
        )

    # ---- a change, step by step

    def _make(self, change: Callable[[], Change[Kept] | None]) -> Mapping[str, Remaining]:
        """Make a change, if there is one. Returns what was given up on clusters that left. Raises KoalaError."""
        if not self._lock.acquire(timeout=COMMIT_S):
            raise not_committed(self._trouble())
        try:
            if (made := change()) is None:
                self._lock.release()
                return {}
            commands = self._machine.begin(made)
        except BaseException:
            self._lock.release()
            raise
        outcome: Future[Mapping[str, Remaining]] = Future()
        threading.Thread(target=self._carry_out, args=(commands, outcome), name="grid-change", daemon=True).start()
        try:
            return committed_in_time(outcome, self._trouble)
        except TransientError:
            if (why := self._machine.why_not) is not None:  # it was not done, and what was begun is undone in time
                raise _error_of(why) from None
            raise

    def _trouble(self) -> Reason | None:
        return self._parts.loop.trouble

    def _carry_out(self, commands: Iterable[GridCommand[Kept]], outcome: "Future[Mapping[str, Remaining]]") -> None:
        """Carry the machine's commands out until the change is over, and set its outcome."""
        waiting = deque(commands)
        try:
            while waiting:
                waiting += self._perform(waiting.popleft(), outcome)
        except BaseException as error:
            _LOG.exception("grid_change_failed")
            if not outcome.done():
                outcome.set_exception(error)
        finally:
            self._lock.release()

    def _perform(self, command: GridCommand[Kept], outcome: "Future[Any]") -> Iterable[GridCommand[Kept]]:
        match command:
            case Keep():
                return self._keep(command.kept)
            case Commit():
                return self._commit(command)
            case Look():
                try:
                    return self._machine.looked(self._remaining(command.names))
                except KoalaError as error:
                    return self._machine.not_looked(error)
            case Leave():
                self._parts.logins.leave(command.name)
                self._parts.links.leave(command.name)
            case Join():
                self._parts.logins.join(command.name, may_ask(self._grid.file.clusters[command.name]))
                self._parts.links.join(command.name)
            case Renew():
                self._parts.logins.leave(command.name)
                self._parts.logins.join(command.name, may_ask(self._grid.file.clusters[command.name]))
                self._parts.links.renew(command.name)
            case Done():
                outcome.set_result(command.remaining)
            case InUse() | Failed():
                outcome.set_exception(_error_of(command))
        return ()

    def _keep(self, kept: Kept) -> Iterable[GridCommand[Kept]]:
        try:
            current_grid.save_commanded(self._parts.state_directory, kept.contents)
        except KoalaError as error:
            _LOG.warning("clusters_not_written", reason=str(error))
            return self._machine.not_kept(error)
        return self._machine.kept()

    def _commit(self, command: Commit[Kept]) -> Iterable[GridCommand[Kept]]:
        """Commit events and, with them, bring a grid into force. Waits for the outcome as long as that takes."""
        if (trouble := self._trouble()) is not None and not command.undoes:
            return self._machine.refused(store_failing(trouble))
        done: Future[KoalaError | None] = Future()

        def committed(step: object) -> None:
            self._grid.file = command.grid.kept.file
            self._parts.adopt(command.grid.kept.file, command.grid.settings)
            done.set_result(None)

        def refused(reason: Reason) -> None:
            done.set_result(refusal(reason))

        delivery = Delivery(events=command.events, after=committed, refused=refused, renews=command.renews)
        self._parts.loop.deliver(delivery)
        error = done.result()
        return self._machine.committed() if error is None else self._machine.refused(error)

    # ---- what is there

    @property
    def _contents(self) -> CommandClusters:
        return self._machine.present.kept.contents

    def _remaining(self, names: Iterable[str]) -> dict[str, Remaining]:
        """Return the clusters that koalapy has something on, or waits for. Raises TransientError without an answer."""
        found = self._parts.loop.ask(lambda engine: {name: remaining_on(engine.core, name) for name in names})
        return {name: left for name, left in found.items() if left}

    def _grid_of(self, file: GridFile, contents: CommandClusters) -> Grid[Kept]:
        """Return the grid of these files, with the places of its clusters."""
        placed = replace(contents, places=contents.places | places_of(file))
        return Grid(Kept(file, placed), self._parts.settings(file, contents.draining))

    def _check_name(self, name: str) -> None:
        if name not in self._grid.file.clusters:
            raise no_such_cluster(name, self._grid.file.clusters)

    def _refuse_other_place(self, name: str, cluster: Cluster) -> None:
        """Refuse a cluster that comes back elsewhere while the store has attempts of the former one."""
        known = self._contents.places.get(name)
        if known is None or known == place_of(cluster):
            return
        left = self._remaining([name]).get(name)
        if left is not None and (left.living or left.pending_cancels):
            was = ", ".join(f"{key}: {_shown(value)}" for key, value in zip(PLACE, known, strict=True) if value)
            message = f"The store knows a cluster {name} at another place ({was}), with {left}."
            advice = "Give the new one another name, or add the former one again until nothing is left there."
            raise RequestError("other_place", message, advice)


def _without(grid: GridFile, name: str) -> GridFile:
    rest = {each: cluster for each, cluster in grid.clusters.items() if each != name}
    return grid.model_copy(update={"clusters": rest})


def _error_of(why: InUse | Failed) -> KoalaError:
    return why.error if isinstance(why, Failed) else _in_use(cast(Mapping[str, Remaining], why.remaining))


def _in_use(remaining: Mapping[str, Remaining]) -> RequestError:
    """Return the error for clusters that cannot leave yet."""
    sentences = " ".join(_sentences(remaining))
    advice = f"`koala cluster remove {next(iter(remaining))} --drain` waits until nothing is left there."
    if all(not (each.living or each.pending_cancels or each.collecting) for each in remaining.values()):
        advice = "Cancel these jobs, or submit them for another cluster."
    return RequestError("cluster_in_use", f"{sentences} Nothing was changed.", advice)


def _sentences(remaining: Mapping[str, Remaining]) -> list[str]:
    return [f"{name} cannot leave the grid because of {what}." for name, what in remaining.items()]


def _refusals(found: Difference, remaining: Mapping[str, Remaining]) -> list[str]:
    """Return why the change cannot be made, as sentences."""
    keys = listed(found.at_start, "and")
    at_start = [f"koalad reads {keys} only when it starts. Nothing was changed."] if keys else []
    return at_start + _sentences(remaining)


def _link_of(grid: GridFile, name: str) -> tuple[object, ...]:
    """Return the values of a cluster that its link depends on."""
    cluster = grid.clusters[name]
    return grid.stream_timeout, cluster_config(grid, name), *(getattr(cluster, key) for key in _OF_LINK)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
