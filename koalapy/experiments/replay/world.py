"""The world of a replay: one configured engine, a virtual clock, and clusters of processors with a queue each.

At each instant, ends are handled first, so that new jobs find the processors that became free. Only programs take time:
commands of the engine are carried out and answered at once. Of several reports of a wrapper at one instant only the
last is sent, since it implies the others. A batch job that starts at once is reported from its barrier. A released
program is reported at its end.

Local jobs go into the same queues. What they change is measured while a job of koalapy waits, at most once in a poll
interval; and whenever the engine has another event.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from koalapy.engine import Engine
from koalapy.experiments.replay.background import Background
from koalapy.experiments.replay.cluster import LocalJob, ReplayBatchJob, ReplayCluster
from koalapy.experiments.replay.record import Ran, ReplayJob
from koalapy.model.change import Snapshot
from koalapy.model.commands import CancelAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.events import AttemptCleanedUp, AttemptSubmitted, Event, WorkSubmitted, WrapperReported
from koalapy.model.identity import AttemptId, JobId, instance_id
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.states import ReportedEnding, WrapperPhase
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.scheduler.schedule import Policies
from koalapy.world.agenda import BEGINNING, Agenda

_INSTANCE = instance_id(b"replay")
_NOW_AND_THEN = 500  # jobs
_OWNER = "replay"
_NEVER_OLD = Duration(10**17)  # the age of measurements: each holds until its cluster changes


class Replay:
    """The replay of every job of the trace by one engine. Jobs that have ended are not kept.

    `sizes`: every cluster's processors. `ended` is called once for each job: at its end, or if it will never start.
    `calls` counts those of the engine's `handle`, `happened` the events in them. `local_waits`: the waits of the local
    jobs that count, in microseconds; `local_waiting`: how many of them wait.
    """

    def __init__(
        self,
        settings: Settings,
        policies: Policies,
        sizes: Mapping[str, int],
        jobs: Iterable[ReplayJob],
        finished: Callable[[Ran], None],
        background: Background | None = None,
    ) -> None:
        self.calls = self.happened = self.ended = 0
        lasting = tuple(replace(each, max_age=_NEVER_OLD) for each in settings.clusters)
        settings = replace(settings, clusters=lasting)
        self.engine = Engine(settings, policies, Snapshot(instance=_INSTANCE))
        self._clusters = {each.name: ReplayCluster(each, sizes[each.name], _INSTANCE) for each in settings.clusters}
        self._agenda = Agenda(BEGINNING if background is None else background.begin)
        self._trace = iter(jobs)
        self._ended = finished
        self._submitted = 0
        self._jobs: dict[JobId, ReplayJob] = {}  # that have not ended
        self._batch: dict[AttemptId, ReplayBatchJob] = {}
        self._coming: ReplayJob | None = None  # the next job of the trace
        self._coming_at = BEGINNING
        self._ends: list[Event] = []
        self.local_waits = array("q")
        self.local_waiting = 0
        self._background = background
        self._poll = min([each.poll for each in settings.clusters], default=SECOND)
        self._poll_at: Instant | None = None
        self._touched: dict[ReplayCluster, None] = {}  # clusters whose local jobs have changed at this instant

    def run(self) -> Iterator[int]:
        """Yield the number of jobs that have ended, repeatedly and at the end."""
        reported = 0
        self._handle([cluster.connected() for cluster in self._clusters.values()])
        self._read_on()
        if self._background is not None:
            for name, cluster in self._clusters.items():
                self._expect(cluster, self._background.jobs[name])
        while self._go_on():
            if self.ended - reported >= _NOW_AND_THEN:
                reported = self.ended
                yield reported
        self._give_up()
        yield self.ended

    # ---- time

    def _go_on(self) -> bool:
        """Go on to the next instant with an event. Return False if there is none, or if no job is left."""
        agenda = self._agenda
        if self._background is not None and self._has_ended(self._background):
            return False
        due, alarm = agenda.next_at(), self.engine.next_wakeup()
        if self._coming is not None and (due is None or self._coming_at < due):
            due = self._coming_at
        if due is None:
            if alarm is None or alarm >= BEGINNING + _NEVER_OLD:
                return False
            due = alarm
        agenda.run(due if alarm is None or alarm > due else alarm)
        ends, self._ends = self._ends, []
        for cluster in self._touched:
            ends += self._start_jobs(cluster)
        self._touched = {}
        rings = (alarm is not None and alarm <= agenda.now) or self._is_poll_due()
        answers = self._handle(ends) if ends or rings else []
        while (job := self._coming) is not None and self._coming_at <= agenda.now:
            answers.append(self._submission(job))
            self._read_on()
        while answers:
            answers = self._handle(answers)
        return True

    def _read_on(self) -> None:
        """Read the next job of the trace, which is read as time passes."""
        job = self._coming = next(self._trace, None)
        if job is not None:
            self._coming_at = Instant(BEGINNING + job.submitted)

    # ---- local jobs

    def _has_ended(self, background: Background) -> bool:
        """Return whether all jobs have ended, and the local ones whose waits count have started, or time is up."""
        now, last = self._agenda.now, background.counted_until
        if self._coming is not None or now <= last:
            return False
        return not (self._jobs or self.local_waiting) or now > last + background.patience

    def _expect(self, cluster: ReplayCluster, jobs: Iterator[LocalJob]) -> None:
        """Let the next local job come."""
        job = next(jobs)

        def submit() -> None:
            cluster.submit_local(job)
            self._touched[cluster] = None
            self.local_waiting += self._counts(job)
            self._expect(cluster, jobs)

        self._agenda.at(job.submitted, submit)

    def _counts(self, job: LocalJob) -> bool:
        """Return whether the job's wait counts."""
        return self._background is not None and BEGINNING <= job.submitted <= self._background.counted_until

    def _start_local(self, cluster: ReplayCluster, job: LocalJob) -> None:
        if self._counts(job):
            self.local_waiting -= 1
            self.local_waits.append(self._agenda.now - job.submitted)

        def end() -> None:
            cluster.remove(job)
            self._touched[cluster] = None

        self._agenda.after(job.runtime, end)

    def _is_poll_due(self) -> bool:
        """Return whether the clusters are measured now, since one has changed a poll interval ago."""
        if not self.engine.core.queue.order:
            return False
        now, changed = self._agenda.now, any([each.changed for each in self._clusters.values()])  # noqa: C419 — faster
        if self._poll_at is not None and self._poll_at <= now:
            self._poll_at = None
            return changed
        if changed and self._poll_at is None:
            self._poll_at = Instant(now + self._poll)
            self._agenda.at(self._poll_at, lambda: None)  # so that the clock stops there
        return False

    # ---- the engine

    def _handle(self, events: list[Event]) -> list[Event]:
        """Hand events to the engine, and return the events that its commands cause at once."""
        now = self._agenda.now
        for cluster in self._clusters.values():
            if cluster.changed:
                events.append(cluster.measured(now))
        self.calls += 1
        self.happened += len(events)
        step = self.engine.handle(now, events)
        for job in step.ended:
            self._finish(job)
        answers: list[Event] = []
        for command in step.commands:
            if isinstance(command, SubmitAttempt):
                self._submit(command, answers)
            elif isinstance(command, ReleaseAttempt):
                self._start(command)
            elif isinstance(command, CancelAttempt):
                self._end(command, answers)
        return answers

    def _submission(self, job: ReplayJob) -> Event:
        self._submitted += 1
        self._jobs[JobId(self._submitted)] = job  # the engine numbers jobs in the same order
        return WorkSubmitted(request=_request(job.components, job.walltime, job.when_busy, job.priority), owner=_OWNER)

    def _submit(self, command: SubmitAttempt, answers: list[Event]) -> None:
        cluster = self._clusters[command.cluster]
        job = self._batch[command.attempt] = cluster.submit(command)
        started = self._start_jobs(cluster)
        if job.ends_by is None:
            answers.append(AttemptSubmitted(cluster=command.cluster, attempt=job.attempt, batch_id=job.tag))
        answers += started

    def _start_jobs(self, cluster: ReplayCluster) -> list[Event]:
        """Start what may start on the cluster, and return the reports of wrappers from their barriers."""
        now = self._agenda.now
        reports: list[Event] = []
        for job in cluster.start_jobs(now):
            if isinstance(job, LocalJob):
                self._start_local(cluster, job)
                continue
            reports.append(
                WrapperReported(
                    cluster=cluster.settings.name,
                    attempt=job.attempt,
                    batch_id=job.tag,
                    phase=WrapperPhase.AT_BARRIER,
                    nodes=(job.node,),
                    at_barrier_at=now,
                )
            )
        return reports

    def _start(self, command: ReleaseAttempt) -> None:
        job, trace = self._batch[command.attempt], self._jobs[command.attempt.job]
        job.started_at = self._agenda.now
        job.end = self._agenda.after(min(trace.runtime, trace.walltime), lambda: self._ends.append(self._report(job)))

    def _report(self, job: ReplayBatchJob) -> Event:
        """Return the report that the program has ended, or was ended at its walltime."""
        trace, job.end = self._jobs[job.attempt.job], None
        killed = trace.runtime > trace.walltime
        return WrapperReported(
            cluster=job.cluster.settings.name,
            attempt=job.attempt,
            batch_id=job.tag,
            phase=WrapperPhase.ENDED,
            released_at=job.started_at,
            started_at=job.started_at,
            ended_at=self._agenda.now,
            exit_status=None if killed else 0,
            ending=ReportedEnding.WALLTIME if killed else ReportedEnding.EXITED,
        )

    def _end(self, command: CancelAttempt, answers: list[Event]) -> None:
        job = self._batch.pop(command.attempt, None)
        if job is not None:
            self._agenda.cancel(job.end)
            job.cluster.remove(job)
            answers += self._start_jobs(job.cluster)
        answers.append(AttemptCleanedUp(cluster=command.cluster, attempt=command.attempt))

    # ---- ends

    def _finish(self, job: Job) -> None:
        self.ended += 1
        self._ended(_ran(self._jobs.pop(job.id), job))

    def _give_up(self) -> None:
        """End the jobs that still wait, since no further event will come."""
        for identity in list(self._jobs):
            job = self.engine.job(identity)
            assert job is not None
            self._finish(job)


def _ran(trace: ReplayJob, job: Job) -> Ran:
    started = job.started_at
    places = tuple([(each.cluster, each.processors) for each in job.present])
    return Ran(
        number=trace.number,
        submitted=trace.submitted,
        started=None if started is None else Duration(started - BEGINNING),
        ended=None if started is None or job.finished_at is None else Duration(job.finished_at - BEGINNING),
        processors=trace.processors,
        places=places if started is not None else (),
        requested=trace.walltime,
        user=trace.user,
        group=trace.group,
        queue=trace.queue,
        killed=started is not None and trace.runtime > trace.walltime,
        held=job.held_processor_us,
        reason=str(job.reason or ""),
    )


@lru_cache(maxsize=1 << 12)
def _request(
    components: tuple[tuple[int, str | None], ...], walltime: Duration, when_busy: WhenBusy, priority: int
) -> Request:
    return Request(
        name=_OWNER,
        components=tuple(
            ComponentRequest(processors=processors, cluster=cluster, executable="program", walltime=walltime)
            for processors, cluster in components
        ),
        when_busy=when_busy,
        priority=priority,
    )
