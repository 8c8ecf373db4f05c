"""The outbox in memory: the commands that are committed and not confirmed yet, by number, job and cluster."""

from collections.abc import Collection, Iterable

from koalapy.model.change import OutboxEntry
from koalapy.model.commands import (
    CancelAttempt,
    Command,
    ForgetAttempt,
    NeighbourCommand,
    ReleaseAttempt,
    ReportFree,
    SubmitAttempt,
    cluster_of,
    job_of_command,
)
from koalapy.model.identity import JobId


class Outbox:
    """The unconfirmed commands of one store, oldest first.

    It does not commit or send anything. It is changed after each commit to match the store.
    """

    def __init__(self, entries: Iterable[OutboxEntry] = (), next_number: int = 1) -> None:
        """Fill the outbox with the entries of a snapshot. `next_number`: greater than every number used before."""
        self._entries: dict[int, OutboxEntry] = {}
        self._of_jobs: dict[JobId, dict[int, OutboxEntry]] = {}
        self.put(sorted(entries, key=lambda entry: entry.number))
        self._next_number = max([next_number, *(number + 1 for number in self._entries)])

    def __contains__(self, number: int) -> bool:
        return number in self._entries

    # ---- change

    def number(self, commands: Iterable[Command]) -> tuple[OutboxEntry, ...]:
        """Give each command the next number, which is never used again. `put` adds the entries after their commit."""
        entries = tuple(OutboxEntry(number, each) for number, each in enumerate(commands, self._next_number))
        self._next_number += len(entries)
        return entries

    def skip_past(self, number: int) -> None:
        """Use greater numbers than this one from now on: a restored store used it after its backup."""
        self._next_number = max(self._next_number, number + 1)

    def put(self, entries: Iterable[OutboxEntry]) -> None:
        """Add committed entries. Their numbers are greater than those of all entries before them."""
        for entry in entries:
            self._entries[entry.number] = entry
            if (job := job_of_command(entry.command)) is not None:
                self._of_jobs.setdefault(job, {})[entry.number] = entry

    def drop(self, numbers: Iterable[int]) -> None:
        """Remove confirmed entries. A number that is not in the outbox changes nothing."""
        for number in numbers:
            entry = self._entries.pop(number, None)
            if entry is None:
                continue
            job = job_of_command(entry.command)
            if job is None:
                continue
            del self._of_jobs[job][number]
            if not self._of_jobs[job]:
                del self._of_jobs[job]

    # ---- search

    def of_job(self, job: JobId) -> tuple[OutboxEntry, ...]:
        """Return the entries of a job, sweep or lease, oldest first."""
        return tuple(self._of_jobs.get(job, {}).values())

    def superseded_by(self, entry: OutboxEntry) -> list[int]:
        """Return the numbers of the entries that a command supersedes.

        A cancel supersedes those for its attempt, except ForgetAttempt, and a report of free processors the former one.
        Other commands supersede nothing.
        """
        if isinstance(entry.command, ReportFree):
            to = self.to_neighbours([entry.command.neighbour])
            return [each.number for each in to if isinstance(each.command, ReportFree)]
        if not isinstance(entry.command, CancelAttempt):
            return []
        attempt = entry.command.attempt
        return [
            each.number
            for each in self.of_job(attempt.job)
            if isinstance(each.command, SubmitAttempt | ReleaseAttempt | CancelAttempt)
            and each.command.attempt == attempt
        ]

    def left_behind_by(self, removed: Iterable[JobId]) -> list[int]:
        """Return the numbers of the ForgetAttempts of removed jobs, whose clusters were given up."""
        return [each.number for job in removed for each in self.of_job(job) if isinstance(each.command, ForgetAttempt)]

    def to_clusters(self, clusters: Collection[str]) -> list[OutboxEntry]:
        """Return the entries for these clusters, oldest first. Without clusters it searches nothing."""
        if not clusters:
            return []
        return [entry for entry in self._entries.values() if cluster_of(entry.command) in clusters]

    def to_neighbours(self, neighbours: Collection[str]) -> list[OutboxEntry]:
        """Return the entries for these neighbours, oldest first. Without neighbours it searches nothing."""
        if not neighbours:
            return []
        return [
            entry
            for entry in self._entries.values()
            if isinstance(entry.command, NeighbourCommand) and entry.command.neighbour in neighbours
        ]

    def to_no_single_cluster(self) -> list[OutboxEntry]:
        """Return the entries whose commands go to a neighbour or to koalad's own host, oldest first."""
        return [entry for entry in self._entries.values() if cluster_of(entry.command) is None]
