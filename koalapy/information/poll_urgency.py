"""The poll urgency that is sent to each KCM: a cluster is polled more often while something waits for it."""

from collections.abc import Collection

from koalapy.information.kis import Information
from koalapy.model.commands import WatchCluster


class PollUrgency:
    """The urgency that was last sent to each connected cluster."""

    def __init__(self) -> None:
        self._sent: dict[str, bool] = {}
        self._sent_for: tuple[bool, Collection[str], frozenset[str]] | None = None

    def forget(self, cluster: str) -> None:
        """Forget what was sent to the cluster: its KCM may be a new one, or it has left."""
        self._sent.pop(cluster, None)
        self._sent_for = None

    def changes(self, information: Information, waiting: bool, claimed: Collection[str]) -> list[WatchCluster]:
        """Return the commands for clusters whose urgency has changed.

        `waiting`: jobs wait for any cluster; otherwise only clusters in `claimed` are urgent.
        """
        sent_for = waiting, () if waiting else tuple(claimed), information.reachable
        if sent_for == self._sent_for:
            return []
        self._sent_for = sent_for
        changed = []
        for name, known in information.clusters.items():
            urgent = waiting or name in claimed
            if known.connected and self._sent.get(name) != urgent:
                self._sent[name] = urgent
                changed.append(WatchCluster(cluster=name, urgent=urgent))
        return changed
