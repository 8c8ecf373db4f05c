"""Index of Launchers: by owner and cluster, those that the next step examines, and those with a running timer."""

from collections.abc import Collection
from typing import TypeVar

from koalapy.core.due import LAUNCHERS, MISSING, DueSteps
from koalapy.model.attempt import Attempt, Owner, OwnerKind
from koalapy.model.identity import AttemptId

K = TypeVar("K")


class Launchers:
    """An index of the Launchers that are neither cleaned up nor detached, whose owners are no jobs.

    `dirty`: Launchers that the next step examines. `timed`: Launchers that wait at their barriers or on the way there,
    or are missing, so that a timer may run. `turned`: Launchers whose state changed since the list was last cleared.
    """

    def __init__(self, due: DueSteps) -> None:
        self._due = due
        self.dirty: dict[AttemptId, None] = {}
        self.timed: dict[AttemptId, Attempt] = {}
        self.turned: list[AttemptId] = []
        self._of: dict[Owner, dict[AttemptId, Attempt]] = {}
        self._on: dict[str, dict[AttemptId, Attempt]] = {}

    def added(self, launcher: Attempt) -> None:
        self._of.setdefault(launcher.owner, {})[launcher.id] = launcher
        self._on.setdefault(launcher.cluster, {})[launcher.id] = launcher
        self._enter(launcher)

    def changed(self, launcher: Attempt, names: Collection[str]) -> None:
        if not launcher.let_go:
            if "state" in names:
                self.turned.append(launcher.id)
            self._enter(launcher)
            return
        _remove(self._of, launcher.owner, launcher.id)
        _remove(self._on, launcher.cluster, launcher.id)
        self.dirty.pop(launcher.id, None)
        self.timed.pop(launcher.id, None)

    def of(self, owner: Owner) -> list[Attempt]:
        """Return the Launchers of the owner, in the order of their numbers."""
        return [launcher for _, launcher in sorted(self._of.get(owner, {}).items())]

    def on(self, cluster: str, kind: OwnerKind) -> list[Attempt]:
        """Return the Launchers of this kind of owners on the cluster, in the order of their numbers."""
        found = sorted(self._on.get(cluster, {}).items())
        return [launcher for _, launcher in found if launcher.owner.kind is kind]

    def mark_dirty(self, launcher: AttemptId) -> None:
        """Let the next step examine the Launcher."""
        self.dirty[launcher] = None
        self._due.wake(LAUNCHERS)

    def _enter(self, launcher: Attempt) -> None:
        self.mark_dirty(launcher.id)
        waits = launcher.allocated_at is not None and not (launcher.state.released or launcher.state.ended)
        if waits or launcher.unknown_since is not None:
            self.timed[launcher.id] = launcher
            self._due.wake(MISSING)
        else:
            self.timed.pop(launcher.id, None)


def _remove(index: dict[K, dict[AttemptId, Attempt]], key: K, launcher: AttemptId) -> None:
    found = index.get(key, {})
    found.pop(launcher, None)
    if not found:
        index.pop(key, None)
