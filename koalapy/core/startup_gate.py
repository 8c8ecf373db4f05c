"""The startup gate: no waiting job is placed before every cluster was reached, or found unreachable, once."""

from collections.abc import Iterable

from koalapy.model.job import Job
from koalapy.model.units import SECOND, Duration, Instant

LONGEST_LOGIN = Duration(90 * SECOND)


class StartupGate:
    """The clusters that have been neither reached nor found unreachable since koalad's start.

    Until there are none, no waiting job is placed. A cluster may still report that the store was restored from a
    backup, and that a job which waits in the store has run since. Without a waiting job at the start, the gate is open.
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
        """Wait for no further cluster: it is known that the store was restored."""
        self._missing.clear()

    def awaited(self, now: Instant) -> bool:
        """Return whether a cluster is still awaited. After LONGEST_LOGIN, every cluster left counts as unreachable."""
        if self._until is None:
            self._until = Instant(now + LONGEST_LOGIN)
        if now >= self._until:
            self._missing.clear()
        return bool(self._missing)

    def wakeup(self) -> Instant | None:
        return self._until if self._missing else None
