"""Changes of a running grid whose commit fails or comes late: grid, file and links are as the store decides."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from koalapy.config import GridFile, engine_settings, read_grid
from koalapy.core.remaining import Remaining
from koalapy.driver.driver import Delivery
from koalapy.model.commands import JoinCluster, LeaveCluster
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.events import ClusterChanged, ClusterJoined, ClusterLeft, Event
from koalapy.model.identity import JobId
from koalapy.model.lease import LeasedCluster
from koalapy.model.pilot import Pilot
from koalapy.model.request import PilotOptions
from koalapy.model.settings import Settings
from koalapy.runtime import current_grid, grid_changes
from koalapy.runtime.current_grid import CommandClusters, CurrentGrid
from koalapy.runtime.grid_changes import GridChanges, GridParts

BEFORE = """
grid: g
clusters:
  delft: {batch: local, connect: "local:", shared: /a, slots: 4}
  vu: {batch: local, connect: "local:", shared: /b}
"""
AFTER = """
grid: g
retries: {submission: 9}
clusters:
  delft: {batch: local, connect: "local:", shared: /a, slots: 4, backlog: 8}
  ut: {batch: local, connect: "local:", shared: /c}
"""


class Play:
    """A grid that changes, whose commit number `fails_at` fails.

    `links`: what was done with links, in order. While `late` is set, commits wait for `store_works`.
    """

    def __init__(self, directory: Path, fails_at: int = 0, late: bool = False) -> None:
        self.late, self.links, self._waiting = late, list[tuple[str, str]](), list[Delivery]()
        self.grid, self.fails_at = CurrentGrid(_read(BEFORE)), fails_at
        self.trouble: Reason | None = None
        self.left: dict[str, Remaining] = {}
        self.fails_after_drain = False
        self.commits: list[tuple[Event, ...]] = []
        self.adopted: list[tuple[GridFile, Settings]] = []
        parts = GridParts(
            loop=cast(Any, self),
            links=cast(Any, _Links(self.links)),
            logins=cast(Any, _Links([])),
            read=lambda: _read(AFTER),
            settings=_settings,
            check=lambda grid: None,
            adopt=lambda grid, settings: self.adopted.append((grid, settings)),
            state_directory=directory,
            shared_store=False,
        )
        self.changes = GridChanges(self.grid, CommandClusters(), parts)

    def ask(self, question: Callable[[Any], object]) -> dict[str, Remaining]:
        """Answer for the engine what is left on the clusters; the store may fail from then on."""
        if self.fails_after_drain:
            self.late, self.fails_after_drain = True, False
            self.trouble = Reason("store_full", "ours", "The disk is full.", "Make room.")
        return self.left

    def deliver(self, delivery: Delivery) -> None:
        self.commits.append(delivery.events)
        if self.late:
            self.trouble = Reason("store_full", "ours", "The disk is full.", "Make room.")
            self._waiting.append(delivery)
            return
        self._commit(delivery)

    def store_works(self) -> None:
        """Commit what has waited, and let everything follow that does."""
        self.late, self.trouble = False, None
        for delivery in self._waiting:
            self._commit(delivery)
        self.changes.drain("delft", False)  # it waits for the change under way

    def _commit(self, delivery: Delivery) -> None:
        assert delivery.refused is not None
        assert delivery.after is not None
        if len(self.commits) == self.fails_at:
            delivery.refused(Reason("not_committed", "ours", "The store cannot be written.", ""))
        else:
            delivery.after(cast(Any, None))


class _Links:
    """Links, or logins, that note what is done with them."""

    def __init__(self, done: list[tuple[str, str]]) -> None:
        self._done = done

    def join(self, name: str, asks: bool = False) -> None:
        self._done.append(("join", name))

    def leave(self, name: str) -> None:
        self._done.append(("leave", name))

    def renew(self, name: str) -> None:
        self._done.append(("renew", name))


def _read(text: str) -> GridFile:
    return read_grid(text, "grid.yaml", ["local"])


def _settings(grid: GridFile, draining: Collection[str]) -> Settings:
    settings = engine_settings(grid)
    return replace(
        settings, clusters=tuple(replace(each, draining=each.name in draining) for each in settings.clusters)
    )


@pytest.mark.parametrize(
    ("change", "fails_at", "events"),
    [
        pytest.param(
            lambda changes: changes.add("ut", {"batch": "local", "connect": "local:"}, ["local"]),
            1,
            [(ClusterJoined,)],
            id="add",
        ),
        pytest.param(lambda changes: changes.drain("vu", True), 1, [(ClusterChanged,)], id="drain"),
        pytest.param(lambda changes: changes.remove("vu"), 1, [(ClusterChanged,)], id="remove"),
        pytest.param(
            lambda changes: changes.remove("vu"),
            2,
            [(ClusterChanged,), (ClusterLeft,), (ClusterChanged,)],
            id="remove, once drained",
        ),
        pytest.param(
            lambda changes: changes.reload(),
            2,
            [(ClusterChanged,), (ClusterLeft, ClusterJoined, ClusterChanged), (ClusterChanged,)],
            id="reload, once drained",
        ),
    ],
)
def test_a_change_that_is_not_committed_changes_nothing(
    tmp_path: Path, change: Callable[[GridChanges], object], fails_at: int, events: list[tuple[type, ...]]
) -> None:
    play = Play(tmp_path, fails_at)
    with pytest.raises(KoalaError, match="cannot be written"):
        change(play.changes)
    assert [tuple(map(type, each)) for each in play.commits] == events
    assert sorted(play.grid.file.clusters) == ["delft", "vu"]
    assert play.grid.file.clusters["delft"].backlog is None
    assert current_grid.load_commanded(tmp_path).added == {}
    assert current_grid.load_commanded(tmp_path).draining == ()
    assert not any(each.draining for _, settings in play.adopted[-1:] for each in settings.clusters)
    assert play.links == []


def _add(changes: GridChanges) -> None:
    changes.add("ut", {"batch": "local", "connect": "local:"}, ["local"])


@pytest.mark.parametrize(
    ("change", "clusters", "added", "links"),
    [
        pytest.param(_add, ["delft", "ut", "vu"], ["ut"], [("join", "ut")], id="add"),
        pytest.param(lambda changes: changes.remove("vu"), ["delft"], [], [("leave", "vu")], id="remove"),
        pytest.param(
            lambda changes: changes.reload(),
            ["delft", "ut"],
            [],
            [("leave", "vu"), ("join", "ut")],
            id="reload",
        ),
    ],
)
def test_a_change_that_is_committed_late_is_in_force_then(
    tmp_path: Path,
    change: Callable[[GridChanges], object],
    clusters: list[str],
    added: list[str],
    links: list[tuple[str, str]],
) -> None:
    play = Play(tmp_path, late=True)
    with pytest.raises(KoalaError, match=r"not recorded yet: The disk is full.* unless koalad is stopped before"):
        change(play.changes)
    assert play.links == []
    play.store_works()
    assert sorted(play.grid.file.clusters) == clusters
    assert sorted(play.changes.added) == sorted(current_grid.load_commanded(tmp_path).added) == added
    assert play.links == links
    assert [type(each) for events in play.commits for each in events].count(ClusterLeft) == ("vu" not in clusters)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (Remaining(living=(JobId(411),)), "job 411 there"),
        (Remaining(living=(JobId(411), JobId(412))), "jobs 411 and 412 there"),
        (
            Remaining(living=(JobId(7), JobId(8)), pending_cancels=1, naming=(JobId(413),)),
            "jobs 7 and 8 there, 1 pending cancel, job 413 that can run nowhere else",
        ),
    ],
)
def test_a_cluster_in_use_is_refused_with_what_is_there(tmp_path: Path, left: Remaining, words: str) -> None:
    play = Play(tmp_path)
    play.left = {"vu": left}
    with pytest.raises(KoalaError) as refused:
        play.changes.remove("vu")
    assert refused.value.reason.message == f"vu cannot leave the grid because of {words}. Nothing was changed."


def test_nothing_is_changed_while_the_store_fails_and_no_undoing_is_lost(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.left = {"vu": Remaining(living=(JobId(1),))}
    play.fails_after_drain = True
    with pytest.raises(KoalaError, match="vu cannot leave the grid"):
        play.changes.remove("vu")
    play.store_works()
    assert [tuple(map(type, each)) for each in play.commits] == [(ClusterChanged,), (ClusterChanged,)]
    assert sorted(play.grid.file.clusters) == ["delft", "vu"]
    assert not any(each.draining for _, settings in play.adopted[-1:] for each in settings.clusters)


PILOT = Pilot(id=JobId(7), host_cluster="vu", options=PilotOptions())
LEASE = LeasedCluster("lyon", 3, "lyon:3")


def followed(play: Play) -> None:
    """Wait until the hints are carried out."""
    while (thread := play.changes.following) is not None:
        thread.join()


def test_hints_make_pilots_and_leases_clusters_and_remove_them(tmp_path: Path) -> None:
    play = Play(tmp_path)
    for held in (PILOT, PILOT, LEASE):
        play.changes.carry_out(JoinCluster(held))
        followed(play)
    assert list(play.grid.file.clusters) == ["delft", "vu", PILOT.name, LEASE.name]
    assert [type(each) for events in play.commits for each in events] == [ClusterJoined, ClusterJoined]
    for held in (PILOT, LEASE):
        play.changes.carry_out(LeaveCluster(held.name))
    play.changes.carry_out(LeaveCluster("pilot~8"))
    followed(play)
    assert list(play.grid.file.clusters) == ["delft", "vu"]
    assert play.links == [(what, each.name) for what in ("join", "leave") for each in (PILOT, LEASE)]


def test_a_hint_whose_commit_fails_is_carried_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_changes, "_AGAIN_S", 0.01)
    play = Play(tmp_path, fails_at=1)
    play.changes.carry_out(JoinCluster(PILOT))
    followed(play)
    assert PILOT.name in play.grid.file.clusters
    assert len(play.commits) == 2


def test_the_newest_hint_on_a_cluster_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_changes, "_AGAIN_S", 0.01)
    play = Play(tmp_path, late=True)
    play.changes.carry_out(JoinCluster(PILOT))
    while not play.commits:
        pass
    play.changes.carry_out(LeaveCluster(PILOT.name))
    play.store_works()
    followed(play)
    assert play.links == [("join", PILOT.name), ("leave", PILOT.name)]


def test_a_pilot_whose_cluster_has_left_joins_nothing(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.changes.carry_out(JoinCluster(replace(PILOT, host_cluster="gone")))
    followed(play)
    assert play.commits == []
