"""What is pruned of jobs that are over: the directories of their attempts first, then what the store has of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from koalapy.information.kis import Information
from koalapy.model.change import OutboxEntry
from koalapy.model.commands import CollectOutput, Command, ForgetComponent
from koalapy.model.events import AttemptForgotten, PruneRequested
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import OUTPUT_PRUNED, Job
from koalapy.model.records import Records
from koalapy.model.units import Instant

_REMEMBERED = 10_000  # ids of pruned jobs: far more than are asked for together
NOT_OVER, PENDING_CANCEL, COLLECTING, OF_A_SWEEP, PRUNED = (
    "not over for long enough", "a pending cancel", "output on its way", "a sweep that is not over", "pruned already"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a request would do: jobs that can go now, those that wait for a cluster, and those that stay, with why."""

    ready: tuple[Job, ...]
    waiting: tuple[tuple[str, Job], ...]  # for the cluster that has its directories
    kept: tuple[tuple[str, Job], ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    job: Job
    records: bool
    without: tuple[str, ...]


class Pruning:
    """`outbox`: what was not confirmed when koalad started.

    What is under way is in no record. After a restart the commands are confirmed as any others, and the next request
    for the same job finishes it: to remove a directory again changes nothing.
    """

    def __init__(self, records: Records, information: Information, outbox: Iterable[OutboxEntry]) -> None:
        self._records, self._information = records, information
        self._directories: dict[JobId, dict[AttemptId, str]] = {}  # that are to go, and their clusters
        self._collecting: dict[JobId, None] = {}
        self._wanted: dict[JobId, _Wanted] = {}
        self._pruned: dict[JobId, None] = {}
        self.note_commands(entry.command for entry in outbox)

    def inherit(self, before: "Pruning") -> None:
        """Remember what the engine before this one has pruned."""
        self._pruned = before._pruned

    # ---- what it is told

    def note_commands(self, commands: Iterable[Command]) -> None:
        """Note what a step is going to commit."""
        for each in commands:
            if isinstance(each, ForgetComponent):
                self._directories.setdefault(each.attempt.job, {})[each.attempt] = each.cluster
            elif isinstance(each, CollectOutput):
                self._collecting[each.job] = None

    def collected(self, job: JobId) -> None:
        """Nothing of it is on its way home any more."""
        self._collecting.pop(job, None)

    def request(self, now: Instant, event: PruneRequested) -> None:
        """Begin with those that can go now, and pass over the others."""
        for job in self.judge(event).ready:
            self._wanted[job.id] = wanted = _Wanted(job, event.records, event.without)
            under_way = self._directories.get(job.id, {})
            for cluster, attempt in _directories_of(job):
                if attempt not in under_way and cluster not in event.without:
                    self._records.command(ForgetComponent(cluster=cluster, attempt=attempt))
                    self._directories.setdefault(job.id, {})[attempt] = cluster
            self._finish(now, wanted)

    def forgotten(self, now: Instant, event: AttemptForgotten) -> None:
        """A job whose directory a KCM refuses to remove keeps its record."""
        job = event.attempt.job
        attempts = self._directories.get(job, {})
        attempts.pop(event.attempt, None)
        if not attempts:
            self._directories.pop(job, None)
        if event.refused is not None:
            self._wanted.pop(job, None)
        if (wanted := self._wanted.get(job)) is not None:
            self._finish(now, wanted)

    def _finish(self, now: Instant, wanted: _Wanted) -> None:
        """Go on once no directory is left, but for those that stay."""
        job = wanted.job
        left = [cluster for cluster in self._directories.get(job.id, {}).values() if cluster not in wanted.without]
        if left:
            return
        del self._wanted[job.id]
        if not wanted.records:
            self._records.note(now, job.id, OUTPUT_PRUNED, left_on=[*wanted.without])
            return
        self._records.remove(job)
        self._directories.pop(job.id, None)
        self._pruned[job.id] = None
        if len(self._pruned) > _REMEMBERED:
            del self._pruned[next(iter(self._pruned))]

    # ---- what it is asked

    def under_way(self, jobs: Iterable[JobId]) -> list[JobId]:
        """Those of them that wait for a cluster to remove a directory."""
        return [job for job in jobs if job in self._wanted]

    def judge(self, event: PruneRequested) -> Judgement:
        """What the request would do now; nothing is changed."""
        owing = {attempt.job for attempt in self._records.debts}
        ready: list[Job] = []
        waiting: list[tuple[str, Job]] = []
        kept: list[tuple[str, Job]] = []
        for job in {job.id: job for job in event.jobs}.values():
            why = self._why_kept(job, event.before, owing)
            if why:
                kept.append((why, job))
            elif job.id not in self._wanted:
                cluster = next(self._out_of_reach(job, event.without), None)
                if cluster is None:
                    ready.append(job)
                else:
                    waiting.append((cluster, job))
        return Judgement(tuple(ready), tuple(waiting), tuple(kept))

    def _why_kept(self, job: Job, before: Instant, owing: set[JobId]) -> str:
        if job.id in self._pruned:
            return PRUNED
        over = job.state.final and job.id not in self._records.jobs and not job.live
        if not over or job.finished_at is None or job.finished_at > before:
            return NOT_OVER
        if job.id in owing:
            return PENDING_CANCEL
        if job.id in self._collecting:
            return COLLECTING
        if job.glide is not None and job.glide.sweep in self._records.jobs:
            return OF_A_SWEEP
        return ""

    def _out_of_reach(self, job: Job, without: tuple[str, ...]) -> Iterator[str]:
        """Clusters that have directories of any try, and are not connected, or have left the grid file."""
        last = (cluster for cluster, _ in _directories_of(job))
        for cluster in (*last, *self._directories.get(job.id, {}).values()):
            if cluster not in without and cluster not in self._information.reachable:
                yield cluster


def _directories_of(job: Job) -> Iterator[tuple[str, AttemptId]]:
    """Those of its last attempts: the directories of earlier ones are forgotten when it is tried again."""
    for component in job.components:
        if component.cluster is not None and component.attempt:
            yield component.cluster, job.attempt_of(component)
