"""Index of pilots: by owner and cluster, those that the next step examines, and those with a running timer."""

from collections.abc import Collection
from typing import TypeVar

from koalapy.core.due import LAUNCHERS, MISSING, DueSteps
from koalapy.model.attempt import Attempt, Owner, OwnerKind
from koalapy.model.identity import AttemptId

K = TypeVar("K")


class Launchers:
    """An index of the pilots that are neither cleaned up nor detached, whose owners are no jobs.

    `dirty`: pilots that the next step examines. `timed`: pilots that wait at their barriers or on the way there, or are
    missing, so that a timer may run. `turned`: pilots whose state changed since the list was last cleared.
    """

    def __init__(self, due: DueSteps) -> None:
        self._due = due
        self.dirty: dict[AttemptId, None] = {}
        self.timed: dict[AttemptId, Attempt] = {}
        self.turned: list[AttemptId] = []
        self._of: dict[Owner, dict[AttemptId, Attempt]] = {}
        self._on: dict[str, dict[AttemptId, Attempt]] = {}

    def added(self, pilot: Attempt) -> None:
        self._of.setdefault(pilot.owner, {})[pilot.id] = pilot
        self._on.setdefault(pilot.cluster, {})[pilot.id] = pilot
        self._enter(pilot)

    def changed(self, pilot: Attempt, names: Collection[str]) -> None:
        if not pilot.let_go:
            if "state" in names:
                self.turned.append(pilot.id)
            self._enter(pilot)
            return
        _remove(self._of, pilot.owner, pilot.id)
        _remove(self._on, pilot.cluster, pilot.id)
        self.dirty.pop(pilot.id, None)
        self.timed.pop(pilot.id, None)

    def of(self, owner: Owner) -> list[Attempt]:
        """Return the pilots of the owner, in the order of their numbers."""
        return [pilot for _, pilot in sorted(self._of.get(owner, {}).items())]

    def on(self, cluster: str, kind: OwnerKind) -> list[Attempt]:
        """Return the pilots of this kind of owners on the cluster, in the order of their numbers."""
        found = sorted(self._on.get(cluster, {}).items())
        return [pilot for _, pilot in found if pilot.owner.kind is kind]

    def mark_dirty(self, pilot: AttemptId) -> None:
        """Let the next step examine the pilot."""
        self.dirty[pilot] = None
        self._due.wake(LAUNCHERS)

    def _enter(self, pilot: Attempt) -> None:
        self.mark_dirty(pilot.id)
        waits = pilot.allocated_at is not None and not (pilot.state.released or pilot.state.ended)
        if waits or pilot.unknown_since is not None:
            self.timed[pilot.id] = pilot
            self._due.wake(MISSING)
        else:
            self.timed.pop(pilot.id, None)


def _remove(index: dict[K, dict[AttemptId, Attempt]], key: K, pilot: AttemptId) -> None:
    found = index.get(key, {})
    found.pop(pilot, None)
    if not found:
        index.pop(key, None)
