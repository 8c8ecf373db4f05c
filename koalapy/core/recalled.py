"""Attempts that the clusters remember, of jobs of a store that may have been restored from a backup."""

from collections.abc import Iterable, Sequence

from koalapy.model.identity import AttemptId, JobId


class RecalledAttempts:
    """The newest attempt of each component that the clusters have reported.

    `clusters`: all clusters of the grid. `unknown`: those that have not yet reported which attempts they remember.
    """

    def __init__(self, clusters: Iterable[str]) -> None:
        self.clusters = tuple(clusters)
        self._unknown = dict.fromkeys(self.clusters)
        self._newest: dict[tuple[JobId, int], tuple[int, str]] = {}  # of each component: number and cluster

    @property
    def unknown(self) -> list[str]:
        return list(self._unknown)

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
