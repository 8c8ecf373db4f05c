"""The attempts that are known to be at their barriers."""

from koalapy.model.attempt import Attempt
from koalapy.model.identity import AttemptId
from koalapy.model.job import Job


class AtBarrier:
    """The attempts whose wrapper has said that it is at its barrier, in the present session with their cluster.

    One that said so in an earlier session may have left since. It is not stored: after a restart all sessions are new.
    An index over the attempts, which forgets those that are cleaned up.
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
        """Its attempts have to say so again."""
        for attempt in [each for each, where in self._clusters.items() if where == cluster]:
            del self._clusters[attempt]

    def began(self, job: Job, attempt: Attempt) -> None:
        """It is not at its barrier yet."""

    def let_go(self, attempt: Attempt) -> None:
        self._clusters.pop(attempt.id, None)
