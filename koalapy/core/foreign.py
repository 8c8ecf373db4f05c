"""Reports of clusters about attempts and parameters that are not theirs."""

from collections.abc import Mapping
from dataclasses import dataclass

from koalapy.model.identity import JobId


@dataclass(frozen=True, slots=True)
class Foreign:
    """Reports of one cluster about what is not its own: their number since koalad's start, and the last one."""

    count: int
    last: str


class ForeignStatements:
    """A count for each cluster that has spoken of what is not its own."""

    def __init__(self) -> None:
        self._foreign: dict[str, Foreign] = {}

    @property
    def foreign(self) -> Mapping[str, Foreign]:
        """By cluster; those that spoke for themselves only are not in it."""
        return self._foreign

    def note(self, cluster: str, what: str) -> None:
        """Count a statement of the cluster, and remember it as the last one."""
        before = self._foreign.get(cluster)
        self._foreign[cluster] = Foreign(before.count + 1 if before is not None else 1, what)

    def note_parameters(self, cluster: str, sweep: JobId, count: int) -> None:
        """Count results of `count` parameters that were never out on the cluster."""
        self.note(cluster, f"results of {count} parameters of sweep {sweep}")
