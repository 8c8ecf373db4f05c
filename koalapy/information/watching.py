"""Clusters whose numbers something waits for are asked more often; each is told so when that changes."""

from collections.abc import Collection, Iterator

from koalapy.information.kis import Information
from koalapy.model.commands import WatchCluster


class Watching:
    """What every KCM was told last."""

    def __init__(self) -> None:
        self._told: dict[str, bool] = {}
        self._told_for: object = None

    def connected(self, cluster: str) -> None:
        """Its KCM may be a new one, which was told nothing."""
        self._told.pop(cluster, None)
        self._told_for = None

    def words(self, information: Information, waiting: bool, claimed: Collection[str]) -> Iterator[WatchCluster]:
        """`waiting`: jobs wait for any cluster; else only those on which something is `claimed` are urgent."""
        told_for = waiting, () if waiting else tuple(claimed), information.reachable
        if told_for == self._told_for:
            return
        self._told_for = told_for
        for name, known in information.clusters.items():
            urgent = waiting or name in claimed
            if known.connected and self._told.get(name) != urgent:
                self._told[name] = urgent
                yield WatchCluster(cluster=name, urgent=urgent)
