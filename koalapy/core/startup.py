"""Knowledge of a new koalad: the clusters that it still waits for, and the attempts that clusters remember."""

from collections.abc import Iterable, Sequence

from koalapy.model.identity import AttemptId, JobId
from koalapy.model.states import JobState
from koalapy.model.sweep import Work
from koalapy.model.units import SECOND, Duration, Instant

LONGEST_LOGIN = Duration(90 * SECOND)


class StartupGate:
    """The clusters that have been neither reached nor found unreachable since koalad's start.

    Until there are none, no waiting job is placed. A cluster may still report that the store was restored from a
    backup, and that a job which waits in the store has run since. Without a waiting job at the start, the gate is open.
    It closes if a job comes whose ad is to be compared with those of all clusters.
    """

    def __init__(self, clusters: Iterable[str], work: Iterable[Work]) -> None:
        self._closed = any(each.state.queued or each.state is JobState.BLOCKED for each in work)
        self._missing = dict.fromkeys(clusters)
        self._until: Instant | None = None

    @property
    def missing(self) -> list[str]:
        return list(self._missing) if self._closed else []

    def reached(self, cluster: str) -> None:
        self._missing.pop(cluster, None)

    def inherit(self, before: "StartupGate") -> None:
        """Wait for the clusters for which this koalad still waits, and not for them anew."""
        self._missing, self._until, self._closed = before._missing, before._until, before._closed

    def open(self) -> None:
        """Wait for no further cluster: it is known that the store was restored."""
        self._missing.clear()

    def awaited(self, now: Instant, chooses: bool) -> bool:
        """Return whether a cluster is still awaited. After LONGEST_LOGIN, every cluster left counts as unreachable.

        `chooses`: whether a job waits whose ad is compared with those of clusters.
        """
        if not self._missing:
            return False
        self._closed = self._closed or chooses
        if self._until is None:
            self._until = Instant(now + LONGEST_LOGIN)
        if now >= self._until:
            self._missing.clear()
        return bool(self.missing)

    def wakeup(self) -> Instant | None:
        return self._until if self.missing else None


class RecalledAttempts:
    """The newest attempt of each component that the clusters remember, of a store that may be restored from a backup.

    `clusters`: all clusters of the grid. `unknown`: those that have not yet reported which attempts they remember.
    """

    def __init__(self, clusters: Iterable[str]) -> None:
        self.clusters = tuple(clusters)
        self._unknown = dict.fromkeys(self.clusters)
        self._newest: dict[tuple[JobId, int], tuple[int, str]] = {}  # of each component: number and cluster

    @property
    def unknown(self) -> list[str]:
        return list(self._unknown)

    def join(self, cluster: str) -> None:
        """Await the report of a cluster that has become a part of the grid."""
        self.clusters = (*self.clusters, cluster)
        self._unknown[cluster] = None

    def leave(self, cluster: str) -> None:
        """Forget a cluster that is no part of the grid any more, with the attempts that it remembers."""
        self.clusters = tuple(each for each in self.clusters if each != cluster)
        self._unknown.pop(cluster, None)
        self._newest = {key: newest for key, newest in self._newest.items() if newest[1] != cluster}

    def add(self, cluster: str, recalled: Sequence[AttemptId]) -> None:
        """Note all attempts that a cluster remembers."""
        self._unknown.pop(cluster, None)
        for job, component, number in recalled:
            known, _ = self._newest.get((job, component), (0, ""))
            if number > known:
                self._newest[job, component] = number, cluster

    def newest(self, job: JobId, component: int) -> tuple[int, str]:
        """Return the number and cluster of a component's newest attempt; (0, "") if no cluster remembers one."""
        return self._newest.get((job, component), (0, ""))
