"""Pruning under way. It is in no record, since the next request for the same job begins it anew."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from koalapy.model.commands import CollectOutput, Command, ForgetAttempt
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job


@dataclass(frozen=True, slots=True)
class PruneWanted:
    """A job that is being pruned: with its record, or its directories only, `without` those on these clusters."""

    job: Job
    records: bool
    without: tuple[str, ...]


@dataclass(slots=True)
class PruningState:
    """`directories`: those that are to go, and their clusters. `collecting`: jobs whose output is on its way home.

    `wanted`: jobs that wait until their directories are gone. `pruned`: the last jobs that went, in this order.
    """

    directories: dict[JobId, dict[AttemptId, str]] = field(default_factory=dict)
    collecting: dict[JobId, None] = field(default_factory=dict)
    wanted: dict[JobId, PruneWanted] = field(default_factory=dict)
    pruned: dict[JobId, None] = field(default_factory=dict)

    def note_commands(self, commands: Iterable[Command]) -> None:
        """Note the commands that a step is going to commit, or that were not confirmed when koalad started."""
        for each in commands:
            if isinstance(each, ForgetAttempt):
                self.directories.setdefault(each.attempt.job, {})[each.attempt] = each.cluster
            elif isinstance(each, CollectOutput):
                self.collecting[each.job] = None

    def under_way(self, jobs: Iterable[JobId]) -> list[JobId]:
        """Return those of the jobs that wait for a cluster to remove a directory."""
        return [job for job in jobs if job in self.wanted]
