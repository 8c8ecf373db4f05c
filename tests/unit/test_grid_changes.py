"""Changes of a running grid whose commit fails: grid, file and links are as before."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from koalapy.config import GridFile, engine_settings, read_grid
from koalapy.model.errors import KoalaError, OurError
from koalapy.model.events import ClusterChanged, ClusterJoined, ClusterLeft, Event
from koalapy.model.settings import Settings
from koalapy.runtime import command_clusters
from koalapy.runtime.command_clusters import CommandClusters
from koalapy.runtime.current_grid import CurrentGrid
from koalapy.runtime.grid_changes import GridChanges, GridParts
from koalapy.views.clusters import LeftOn

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
    """A grid that changes, whose commit number `fails_at` fails. Nothing else of koalad may be reached then."""

    def __init__(self, directory: Path, fails_at: int) -> None:
        self.grid, self.fails_at = CurrentGrid(_read(BEFORE)), fails_at
        self.commits: list[tuple[Event, ...]] = []
        self.adopted: list[tuple[GridFile, Settings]] = []
        parts = GridParts(
            commit=self._commit,
            loop=cast(Any, self),
            links=cast(Any, None),
            logins=cast(Any, None),
            read=lambda: _read(AFTER),
            settings=_settings,
            check=lambda grid: None,
            adopt=lambda grid, settings: self.adopted.append((grid, settings)),
            state_directory=directory,
            shared_store=False,
        )
        self.changes = GridChanges(self.grid, CommandClusters(), parts)

    def ask(self, question: Callable[[Any], object]) -> dict[str, LeftOn]:
        """Answer for the engine that nothing is left on any cluster."""
        return {}

    def _commit(self, *events: Event, committed: Callable[[], None], renews: bool) -> None:
        self.commits.append(events)
        if len(self.commits) == self.fails_at:
            raise OurError("not_committed", "The store cannot be written.", "")
        committed()


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
        pytest.param(lambda changes: changes.remove("vu"), 1, [(ClusterChanged,), (ClusterChanged,)], id="remove"),
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
    assert command_clusters.load(tmp_path).added == {}
    assert command_clusters.load(tmp_path).draining == ()
    assert not any(each.draining for _, settings in play.adopted[-1:] for each in settings.clusters)
