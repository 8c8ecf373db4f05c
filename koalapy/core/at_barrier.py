"""The attempts that are known to be at their barriers."""

from koalapy.model.attempt import Attempt
from koalapy.model.identity import AttemptId
from koalapy.model.job import Job


class AtBarrier:
    """An index of the attempts whose wrappers have reported from their barriers in the present session.

    A report of an earlier session does not count, since the wrapper may have left its barrier meanwhile. The index is
    not stored: after a restart all sessions are new. Attempts that are cleaned up or detached are removed.
    """

    def __init__(self) -> None:
        self._clusters: dict[AttemptId, str] = {}

    def __contains__(self, attempt: AttemptId) -> bool:
        return attempt in self._clusters

    def add(self, attempt: AttemptId, cluster: str) -> None:
        self._clusters[attempt] = cluster

    def on(self, cluster: str) -> list[AttemptId]:
        """Return the attempts at their barriers on this cluster."""
        return [each for each, where in self._clusters.items() if where == cluster]

    def end_session(self, cluster: str) -> None:
        """Remove the attempts of the cluster: their wrappers have to report again."""
        for attempt in [each for each, where in self._clusters.items() if where == cluster]:
            del self._clusters[attempt]

    def began(self, job: Job | None, attempt: Attempt) -> None:
        """Do nothing: a new attempt is not at its barrier."""

    def let_go(self, attempt: Attempt) -> None:
        self._clusters.pop(attempt.id, None)
