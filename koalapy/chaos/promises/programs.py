"""Promises about programs, checked against their own log: each runs once, alone, and only when all have come."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.commands import ReleaseAttempt
from koalapy.model.identity import AttemptId, InstanceId, JobId, Tag, attempt_of
from koalapy.model.job import Job
from koalapy.model.units import Instant

Place = tuple[str, str]  # cluster, node


@dataclass(slots=True)
class _Stand:
    """A wrapper at its barrier, until `left_at`."""

    start: str
    deadline: Instant
    left_at: Instant | None = None


class Programs:
    """The checker for attempts of one store. It is called with what programs wrote, wrappers did and koalad committed.

    `logins`: when the KCMs of a cluster were started, oldest first.
    """

    def __init__(self, instance: InstanceId, logins: Callable[[str], Sequence[Instant]]) -> None:
        self._instance, self._logins = instance, logins
        self._starts: dict[AttemptId, dict[Place, str]] = {}  # which start of a batch job started it there
        self._running: dict[AttemptId, set[Place]] = {}
        self._of_component: dict[tuple[JobId, int], AttemptId] = {}  # whose programs run
        self._stands: dict[AttemptId, _Stand] = {}
        self._released: set[AttemptId] = set()
        self._over: dict[AttemptId, str] = {}

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
        why = self._over.get(attempt)
        promise(why is None, Promise.NOTHING_LEFT, attempt, "starts, but was said to be", why)
        other = self._of_component.setdefault((attempt.job, attempt.component), attempt)
        promise(other == attempt, Promise.ALONE, attempt, "starts while", other, "runs")
        self._running.setdefault(attempt, set()).add(place)

    def ended(self, tag: Tag, place: Place) -> None:
        attempt = self._ours(tag)
        if attempt is None:
            return
        self._running[attempt].discard(place)
        if not self._running[attempt]:
            del self._running[attempt]
            del self._of_component[attempt.job, attempt.component]

    def runs(self, attempt: AttemptId) -> bool:
        return attempt in self._running

    # ---- wrappers and KCMs

    def claimed(self, tag: Tag) -> None:
        """A wrapper is to run the attempt."""
        attempt = self._ours(tag)
        if attempt is not None:
            why = self._over.get(attempt)
            promise(why is None, Promise.NOTHING_LEFT, attempt, "is claimed by a wrapper, but was said to be", why)

    def came(self, tag: Tag, start: str, deadline: Instant) -> None:
        """A wrapper stands at its barrier, and leaves it by then."""
        attempt = self._ours(tag)
        if attempt is not None:
            self._stands[attempt] = _Stand(start, deadline)

    def went(self, now: Instant, tag: Tag, start: str) -> None:
        """It stands there no more: it was released, or stopped, or it died, or its time was up."""
        attempt = self._ours(tag)
        stand = self._stands.get(attempt) if attempt is not None else None
        if stand is not None and stand.start == start and stand.left_at is None:
            stand.left_at = now

    def over(self, tag: Tag, why: str) -> None:
        """A KCM says that nothing of the attempt is left and nothing comes: it is gone, or was refused."""
        attempt = self._ours(tag)
        if attempt is not None:
            promise(not self.runs(attempt), Promise.NOTHING_LEFT, attempt, "is said to be", why, "but its program runs")
            self._over.setdefault(attempt, why)

    # ---- koalad

    def committed(self, change: Change, decided_at: Instant) -> None:
        """Releases: all that a job needs stand at their barriers, and are released together.

        `decided_at`, in the world's time: a store that fails keeps koalad from committing what it had decided.
        """
        released = [entry.command for entry in change.sent if isinstance(entry.command, ReleaseAttempt)]
        jobs = {job.id: job for job in change.jobs}
        for identity in dict.fromkeys(command.attempt.job for command in released):
            attempts = [command.attempt for command in released if command.attempt.job == identity]
            self._whole(jobs[identity], attempts, decided_at)
            self._released.update(attempts)

    def _whole(self, job: Job, attempts: list[AttemptId], decided_at: Instant) -> None:
        indices = {attempt.component for attempt in attempts}
        for index, wanted in enumerate(job.request.components):
            promise(wanted.optional or index in indices, Promise.WHOLE, "job", job.id, "goes without component", index)
        for attempt in attempts:
            self._at_barrier(attempt, job.components[attempt.component].cluster or "", decided_at)

    def _at_barrier(self, attempt: AttemptId, cluster: str, decided_at: Instant) -> None:
        """One that was killed may be released as long as nobody could know: since its cluster was connected last.

        One whose time was up may never be: koalad's own time-out comes before any wrapper's.
        """
        stand = self._stands.get(attempt)
        promise(stand is not None, Promise.WHOLE, attempt, "is released, but never came")
        assert stand is not None
        left_at = stand.left_at
        if left_at is None or left_at >= decided_at:
            return
        promise(left_at < stand.deadline, Promise.WHOLE, attempt, "is released, but had left its barrier in vain")
        logins = self._logins(cluster)
        before = bisect_right(logins, decided_at)
        connected_at = logins[before - 1] if before else decided_at
        gone_since = "is released, but was at its barrier only before its cluster was connected"
        promise(left_at >= connected_at, Promise.WHOLE, attempt, gone_since)

    def _ours(self, tag: Tag) -> AttemptId | None:
        instance, attempt = attempt_of(tag)
        return attempt if instance == self._instance else None
