"""Reports of clusters about attempts and parameters that are not theirs."""

from collections.abc import Mapping
from dataclasses import dataclass

from koalapy.model.counts import counted_as
from koalapy.model.identity import JobId


@dataclass(frozen=True, slots=True)
class Foreign:
    """Foreign reports of one cluster: their number since koalad's start, and the last one."""

    count: int
    last: str


class ForeignStatements:
    """The foreign reports of each cluster, counted."""

    def __init__(self) -> None:
        self._foreign: dict[str, Foreign] = {}

    @property
    def foreign(self) -> Mapping[str, Foreign]:
        """The foreign reports by cluster; a cluster without any is not in it."""
        return self._foreign

    def note(self, cluster: str, what: str) -> None:
        """Count a foreign report of the cluster, and keep its text `what` as the last one."""
        before = self._foreign.get(cluster)
        self._foreign[cluster] = Foreign(before.count + 1 if before is not None else 1, what)

    def forget_cluster(self, cluster: str) -> None:
        self._foreign.pop(cluster, None)

    def note_parameters(self, cluster: str, sweep: JobId, count: int) -> None:
        """Count one report with results of `count` parameters that the cluster was never given."""
        self.note(cluster, f"results of {counted_as(count, 'parameter')} of sweep {sweep}")
