"""After a start no waiting job is placed until every cluster was reached, or found unreachable, once."""

from collections.abc import Iterable

from koalapy.model.job import Job
from koalapy.model.units import SECOND, Duration, Instant

LONGEST_LOGIN = Duration(90 * SECOND)


class StartupGate:
    """After a start, whether every cluster has been reached, or was seen to be out of reach, once.

    Until then no waiting job goes anywhere: a cluster may still tell that the store is a backup's, and that a job which
    waits in it has run since. A koalad that began with no waiting job does not wait.
    """

    def __init__(self, clusters: Iterable[str], jobs: Iterable[Job]) -> None:
        self._missing = dict.fromkeys(clusters) if any(job.state.queued for job in jobs) else {}
        self._until: Instant | None = None

    @property
    def missing(self) -> list[str]:
        return list(self._missing)

    def reached(self, cluster: str) -> None:
        self._missing.pop(cluster, None)

    def open(self) -> None:
        """Wait for no cluster any more: it is known that the store was restored."""
        self._missing.clear()

    def awaited(self, now: Instant) -> bool:
        """Not for ever: a cluster of which nothing is heard for so long is out of reach, too."""
        if self._until is None:
            self._until = Instant(now + LONGEST_LOGIN)
        if now >= self._until:
            self._missing.clear()
        return bool(self._missing)

    def wakeup(self) -> Instant | None:
        return self._until if self._missing else None
