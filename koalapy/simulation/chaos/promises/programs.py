"""What programs may do: run once, alone, and only when everybody has come. Told by the programs themselves."""

from koalapy.model.change import Change
from koalapy.model.commands import ReleaseComponent
from koalapy.model.identity import AttemptId, InstanceId, JobId, Tag, attempt_of
from koalapy.model.job import Job
from koalapy.simulation.chaos.violation import Promise, promise

Place = tuple[str, str]  # cluster, node


class Programs:
    """Of one store's attempts; what programs wrote, wrappers did and koalad committed is told in this order."""

    def __init__(self, instance: InstanceId) -> None:
        self._instance = instance
        self._starts: dict[AttemptId, dict[Place, str]] = {}  # which start of a batch job started it there
        self._running: dict[AttemptId, set[Place]] = {}
        self._of_component: dict[tuple[JobId, int], AttemptId] = {}  # whose programs run
        self._came: set[AttemptId] = set()
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

    def came(self, tag: Tag) -> None:
        """A wrapper stands at its barrier."""
        attempt = self._ours(tag)
        if attempt is not None:
            self._came.add(attempt)

    def over(self, tag: Tag, why: str) -> None:
        """A KCM says that nothing of the attempt is left and nothing comes: it is gone, or was refused."""
        attempt = self._ours(tag)
        if attempt is not None:
            promise(not self.runs(attempt), Promise.NOTHING_LEFT, attempt, "is said to be", why, "but its program runs")
            self._over.setdefault(attempt, why)

    # ---- koalad

    def committed(self, change: Change) -> None:
        """Releases: all that a job needs have come, and are released together."""
        released = [entry.command for entry in change.sent if isinstance(entry.command, ReleaseComponent)]
        jobs = {job.id: job for job in change.jobs}
        for identity in dict.fromkeys(command.attempt.job for command in released):
            attempts = [command.attempt for command in released if command.attempt.job == identity]
            self._whole(jobs[identity], attempts)
            self._released.update(attempts)

    def _whole(self, job: Job, attempts: list[AttemptId]) -> None:
        indices = {attempt.component for attempt in attempts}
        for index, wanted in enumerate(job.request.components):
            promise(wanted.optional or index in indices, Promise.WHOLE, "job", job.id, "goes without component", index)
        for attempt in attempts:
            promise(attempt in self._came, Promise.WHOLE, attempt, "is released, but never came")

    def _ours(self, tag: Tag) -> AttemptId | None:
        instance, attempt = attempt_of(tag)
        return attempt if instance == self._instance else None
