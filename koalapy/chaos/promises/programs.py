"""Promises about programs, checked against their own log: each runs once, alone, and only after its release."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.commands import ReleaseAttempt
from koalapy.model.identity import AttemptId, InstanceId, JobId, Tag, attempt_of
from koalapy.model.job import Job
from koalapy.model.pilot import pilot_cluster
from koalapy.model.units import Instant

Place = tuple[str, str]  # cluster, node


@dataclass(slots=True)
class _AtBarrier:
    """A wrapper at its barrier, until `left_at`."""

    start: str
    deadline: Instant
    left_at: Instant | None = None


class Programs:
    """The checker for attempts of one store, called for events of programs, wrappers and KCMs, and for commits.

    `logins` returns the starts of a cluster's KCMs, oldest first. `given_up`: attempts that may run beside later ones,
    since a person gave their cluster up.
    """

    def __init__(
        self, instance: InstanceId, logins: Callable[[str], Sequence[Instant]], given_up: Collection[AttemptId]
    ) -> None:
        self._instance, self._logins, self._given_up = instance, logins, given_up
        self._starts: dict[AttemptId, dict[Place, str]] = {}  # the start of a batch job that started it there
        self._running: dict[AttemptId, set[Place]] = {}
        self._of_component: dict[tuple[JobId, int], AttemptId] = {}  # the attempt whose programs run
        self._waits: dict[AttemptId, _AtBarrier] = {}
        self._released: set[AttemptId] = set()
        self._cannot_start: dict[AttemptId, str] = {}

    def started(self, tag: Tag, start: str, place: Place) -> None:
        """`start` names the start of a batch job that the program runs in."""
        attempt = self._ours(tag)
        if attempt is None:
            return
        starts = self._starts.setdefault(attempt, {})
        promise(place not in starts, Promise.ONCE, attempt, "starts again on", *place)
        promise(set(starts.values()) <= {start}, Promise.ONCE, attempt, "starts a second time, in", start)
        starts[place] = start
        promise(attempt in self._released, Promise.WHOLE, attempt, "was never released")
        inside = pilot_cluster(attempt.job)
        beside = [each for each, there in self._running.items() if any(cluster == inside for cluster, _ in there)]
        promise(not beside, Promise.FILLED, attempt, "starts while on its processors run", *beside)
        why = self._cannot_start.get(attempt)
        promise(why is None, Promise.OUTLIVED, attempt, "starts, but was reported as", why)
        if attempt not in self._given_up:
            other = self._of_component.get((attempt.job, attempt.component))
            alone = other is None or other == attempt or other in self._given_up
            promise(alone, Promise.ALONE, attempt, "starts while", other, "runs")
            self._of_component[attempt.job, attempt.component] = attempt
        self._running.setdefault(attempt, set()).add(place)

    def ended(self, tag: Tag, place: Place) -> None:
        attempt = self._ours(tag)
        if attempt is None:
            return
        self._running[attempt].discard(place)
        if not self._running[attempt]:
            del self._running[attempt]
            if self._of_component.get((attempt.job, attempt.component)) == attempt:
                del self._of_component[attempt.job, attempt.component]

    def runs(self, attempt: AttemptId) -> bool:
        return attempt in self._running

    # ---- wrappers and KCMs

    def took_start_lock(self, tag: Tag) -> None:
        """A wrapper has taken the attempt's start lock."""
        attempt = self._ours(tag)
        if attempt is not None:
            why = self._cannot_start.get(attempt)
            promise(
                why is None,
                Promise.OUTLIVED,
                attempt,
                "gives its start lock to a wrapper, but was reported as",
                why,
            )

    def reached_barrier(self, tag: Tag, start: str, deadline: Instant) -> None:
        """A wrapper is at its barrier, and leaves it by `deadline`."""
        attempt = self._ours(tag)
        if attempt is not None:
            self._waits[attempt] = _AtBarrier(start, deadline)

    def left_barrier(self, now: Instant, tag: Tag, start: str) -> None:
        """A wrapper is no longer at its barrier: it was released or stopped, it died, or its deadline passed."""
        attempt = self._ours(tag)
        wait = self._waits.get(attempt) if attempt is not None else None
        if wait is not None and wait.start == start and wait.left_at is None:
            wait.left_at = now

    def cannot_start(self, tag: Tag, why: str) -> None:
        """A KCM reports that the attempt is cleaned up or was refused, so that its program can never start."""
        attempt = self._ours(tag)
        if attempt is not None:
            promise(not self.runs(attempt), Promise.OUTLIVED, attempt, "is reported as", why, "but its program runs")
            self._cannot_start.setdefault(attempt, why)

    # ---- koalad

    def committed(self, change: Change, decided_at: Instant) -> None:
        """Check releases: all needed components are at their barriers, and are released together.

        `decided_at` is in the world's time; a failing store may delay the commit of a decision.
        """
        released = [entry.command for entry in change.sent if isinstance(entry.command, ReleaseAttempt)]
        jobs, pilots = {job.id: job for job in change.jobs}, {each.id: each for each in change.attempts}
        for identity in dict.fromkeys(command.attempt.job for command in released):
            attempts = [command.attempt for command in released if command.attempt.job == identity]
            if identity in jobs:
                self._whole(jobs[identity], attempts, decided_at)
            else:  # a pilot is released alone
                (released_pilot,) = attempts
                self._at_barrier(released_pilot, pilots[released_pilot].cluster, decided_at)
            self._released.update(attempts)

    def _whole(self, job: Job, attempts: list[AttemptId], decided_at: Instant) -> None:
        indices = {attempt.component for attempt in attempts}
        for index, wanted in enumerate(job.request.components):
            promise(
                wanted.optional or index in indices,
                Promise.WHOLE,
                "job",
                job.id,
                "is released without component",
                index,
            )
        for attempt in attempts:
            present = job.attempt(attempt.component)
            self._at_barrier(attempt, "" if present is None else present.cluster, decided_at)

    def _at_barrier(self, attempt: AttemptId, cluster: str, decided_at: Instant) -> None:
        """Check one attempt of a release.

        A killed one may be released if it died after the last connection of its cluster, since nobody could know. One
        that left at its deadline may never be released: koalad's own time-out comes before any wrapper's.
        """
        wait = self._waits.get(attempt)
        promise(wait is not None, Promise.WHOLE, attempt, "is released, but never reached its barrier")
        assert wait is not None
        left_at = wait.left_at
        if left_at is None or left_at >= decided_at:
            return
        promise(
            left_at < wait.deadline, Promise.WHOLE, attempt, "is released, but had left its barrier at its deadline"
        )
        logins = self._logins(cluster)
        before = bisect_right(logins, decided_at)
        connected_at = logins[before - 1] if before else decided_at
        too_early = "is released, but was at its barrier only before its cluster was connected"
        promise(left_at >= connected_at, Promise.WHOLE, attempt, too_early)

    def _ours(self, tag: Tag) -> AttemptId | None:
        instance, attempt = attempt_of(tag)
        return attempt if instance == self._instance else None
