"""What we have promised on each cluster, kept up to date with every attempt that begins or is gone."""

from collections.abc import Iterable

from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.identity import AttemptId, InstanceId, Tag, tag_of
from koalapy.model.index import moves
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest


class Promises:
    """An index over the jobs: an attempt counts from its claim until nothing of it is left."""

    def __init__(self, instance: InstanceId, clusters: Iterable[ClusterSettings]) -> None:
        self._instance = instance
        self._books = {settings.name: _Book(settings) for settings in clusters}
        self.moved: dict[str, None] = {}  # clusters whose numbers may be others than when this was last cleared

    def on(self, cluster: str) -> tuple[int, int]:
        """Processors promised there that its batch system does not show as taken, and those seen to wait."""
        book = self._books[cluster]
        return book.promised, book.backlog

    def shown(self, cluster: str, state: ClusterState | None) -> None:
        """The batch system's newest measurement; None: it is forgotten."""
        self._books[cluster].show(state)
        self.moved[cluster] = None

    def changed(self, before: Job | None, after: Job | None) -> None:
        for attempt, component, lives in moves(before, after):
            book = self._books.get(component.cluster or "")
            if book is None:
                continue  # a cluster that the grid file no longer has
            if lives:
                book.enter(attempt, tag_of(self._instance, attempt), processors_taken(component.request, book.settings))
            else:
                book.strike(attempt)
            self.moved[book.settings.name] = None


class _Book:
    """One cluster's live attempts, and what its batch system showed when it was last asked."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.promised = self.backlog = 0
        self._entries: dict[AttemptId, tuple[Tag, int]] = {}
        self._allocated: frozenset[Tag] = frozenset()
        self._pending: frozenset[Tag] = frozenset()

    def enter(self, attempt: AttemptId, tag: Tag, taken: int) -> None:
        self._entries[attempt] = tag, taken
        self._add(tag, taken)

    def strike(self, attempt: AttemptId) -> None:
        tag, taken = self._entries.pop(attempt)
        self._add(tag, -taken)

    def show(self, state: ClusterState | None) -> None:
        self._allocated = frozenset(state.allocated) if state else frozenset()
        self._pending = frozenset(state.pending) if state else frozenset()
        self.promised = self.backlog = 0
        for tag, taken in self._entries.values():
            self._add(tag, taken)

    def _add(self, tag: Tag, taken: int) -> None:
        if tag not in self._allocated:
            self.promised += taken
        if tag in self._pending:
            self.backlog += taken


def processors_taken(component: ComponentRequest, cluster: ClusterSettings) -> int:
    """Processors that the component takes there: whole nodes where allocation is exclusive."""
    size = cluster.processors_per_node
    if not size or not (component.exclusive or cluster.exclusive):
        return component.processors
    per_node = min(component.processors_per_node or size, size)
    return -(-component.processors // per_node) * size
