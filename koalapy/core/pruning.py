"""The pruning that is under way. It is not stored, since the next request for the same job begins it anew."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from koalapy.model.attempt import Attempt
from koalapy.model.commands import CollectOutput, Command, ForgetAttempt
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.work import Work


@dataclass(frozen=True, slots=True)
class PruneWanted:
    """A job, a sweep or its pilot, that is being pruned.

    `records`: whether its record is removed too. `without`: clusters whose directories stay.
    """

    pruned: Work | Attempt
    records: bool
    without: tuple[str, ...]


@dataclass(slots=True)
class PruningState:
    """The state of the pruning that is under way.

    `directories`: by job, the attempts whose directories are being removed, and their clusters. `collecting`: jobs
    whose output is being collected, and the clusters that have it; none for a sweep, whose output may be on any.
    `wanted`: jobs that wait until their directories are removed. `pruned`: the jobs that were pruned last, the oldest
    first.
    """

    directories: dict[JobId, dict[AttemptId, str]] = field(default_factory=dict)
    collecting: dict[JobId, tuple[str, ...]] = field(default_factory=dict)
    wanted: dict[JobId, PruneWanted] = field(default_factory=dict)
    pruned: dict[JobId, None] = field(default_factory=dict)

    def note_commands(self, commands: Iterable[Command]) -> None:
        """Note those of the commands that belong here (see `Core.note_commands`)."""
        for each in commands:
            if isinstance(each, ForgetAttempt):
                self.directories.setdefault(each.attempt.job, {})[each.attempt] = each.cluster
            elif isinstance(each, CollectOutput):
                self.collecting[each.job] = tuple(dict.fromkeys(cluster for cluster, _ in each.sources))

    def under_way(self, jobs: Iterable[JobId]) -> list[JobId]:
        """Return those of the jobs that wait for a cluster to remove a directory."""
        return [job for job in jobs if job in self.wanted]
