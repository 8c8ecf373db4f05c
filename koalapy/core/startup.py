"""Knowledge of a new koalad: the clusters that it still waits for, and the attempts that clusters remember."""

from collections.abc import Iterable, Sequence

from koalapy.model.identity import AttemptId, JobId
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.model.work import Work

LONGEST_LOGIN = Duration(90 * SECOND)


class StartupGate:
    """The clusters that have been neither reached nor found unreachable since koalad's start.

    Until there are none, no waiting job is placed that may have run on one of them. A cluster may still report that the
    store was restored from a backup, and that the job has run there since. A job whose components all name clusters
    that were reached cannot: every cluster reports the submits that it received itself. Without a waiting job at the
    start, the gate is open. It closes if a job comes whose ad is to be compared with those of all clusters.
    """

    def __init__(self, clusters: Iterable[str], work: Iterable[Work]) -> None:
        self._closed = any(each.state.queued or each.state is JobState.BLOCKED for each in work)
        self._missing = dict.fromkeys(clusters)
        self._until: Instant | None = None

    @property
    def missing(self) -> list[str]:
        return list(self._missing) if self._closed else []

    def awaits(self) -> bool:
        """Return whether there is a cluster that has been neither reached nor found unreachable."""
        return bool(self._missing)

    def reached(self, cluster: str) -> None:
        self._missing.pop(cluster, None)

    def inherit(self, before: "StartupGate") -> None:
        """Wait for the clusters for which this koalad still waits, and not for them anew."""
        self._missing, self._until, self._closed = before._missing, before._until, before._closed

    def open(self) -> None:
        """Wait for no further cluster: it is known that the store was restored."""
        self._missing.clear()

    def give_up_late(self, now: Instant, chooses: bool) -> bool:
        """Return whether the clusters that are left count as unreachable from now on: LONGEST_LOGIN has passed.

        `chooses`: whether a job waits whose ad is compared with those of clusters.
        """
        if not self._missing:
            return False
        self._closed = self._closed or chooses
        if self._until is None:
            self._until = Instant(now + LONGEST_LOGIN)
        if now < self._until:
            return False
        self._missing.clear()
        return True

    def holds(self, request: Request) -> bool:
        """Return whether a job waits for an awaited cluster. `request`: as its user wrote it."""
        if not self._missing or not self._closed:
            return False
        return any(each.cluster is None or each.cluster in self._missing for each in request.components)

    def wakeup(self) -> Instant | None:
        return self._until if self.missing else None


NOBODY_AWAITED = StartupGate((), ())


class RecalledAttempts:
    """The newest attempt of each component that the clusters remember, of a store that may be restored from a backup.

    `clusters`: all clusters of the grid. `unknown`: those that have not yet reported which attempts they remember.
    """

    def __init__(self, clusters: Iterable[str]) -> None:
        self.clusters = tuple(clusters)
        self._unknown = dict.fromkeys(self.clusters)
        self._newest: dict[tuple[JobId, int], dict[str, int]] = {}  # of each component: numbers by cluster

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
        for numbers in self._newest.values():
            numbers.pop(cluster, None)

    def add(self, cluster: str, recalled: Sequence[AttemptId]) -> None:
        """Note all attempts that a cluster remembers."""
        self._unknown.pop(cluster, None)
        for job, component, number in recalled:
            numbers = self._newest.setdefault((job, component), {})
            numbers[cluster] = max(number, numbers.get(cluster, 0))

    def newest(self, job: JobId, component: int) -> tuple[int, str]:
        """Return the number and cluster of a component's newest attempt; (0, "") if no cluster remembers one."""
        return max(((number, cluster) for cluster, number in self._of(job, component)), default=(0, ""))

    def older(self, job: JobId, component: int, number: int) -> list[tuple[int, str]]:
        """Return number and cluster of the newest attempt on each cluster, of those before this number."""
        return sorted((each, cluster) for cluster, each in self._of(job, component) if each < number)

    def _of(self, job: JobId, component: int) -> Iterable[tuple[str, int]]:
        return self._newest.get((job, component), {}).items()
