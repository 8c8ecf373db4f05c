"""A job as koalapy keeps it: the request, its position in the wait queue, and the attempts of its components."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from koalapy.model.attempt import Attempt, attempt_row, attempt_value
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import caster, fast_frozen, replacer, row_class
from koalapy.model.header import Header
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId
from koalapy.model.request import Request
from koalapy.model.states import Ending
from koalapy.model.units import Duration, Instant

SUBMIT_LIMIT = "submit_limit"  # code of a refusal: there are as many batch jobs of the user as the cluster allows
NOT_PLACED = Reason("omitted", "transient", "It is optional and did not fit.", "")


@dataclass(frozen=True, slots=True)
class Choice:
    """A group of clusters on which a job could run: (cluster, processors) in the order of their ranks.

    `rank`: the group's, a finite number; None without one. `refused`: why the job did not start there.
    """

    clusters: tuple[tuple[str, int], ...]
    rank: float | None = None
    refused: Reason | None = None

    def __str__(self) -> str:
        return " + ".join(cluster for cluster, _ in self.clusters)


@dataclass(frozen=True, slots=True)
class Refusals:
    """The submissions of a job that a cluster has refused since it last accepted one, for reasons that may pass.

    `count`: their number. `pause`: how long the cluster was excluded for the job after the last one. `reason`: of that.
    """

    cluster: str
    count: int
    pause: Duration
    reason: Reason

    @property
    def of_a_limit(self) -> bool:
        """Return whether the job waits until one of our batch jobs there has ended."""
        return self.reason.code == SUBMIT_LIMIT


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A component that was given back because another one was still in a queue (see `koalapy.coallocation.hold`).

    `pause`: after which it is queued again, at `again_at`. It stays listed, for the next pause of this try. `at_once`:
    it is queued again as soon as another one has come; not after a deadlock, whose older job has the processors first.
    """

    component: int
    pause: Duration
    again_at: Instant
    at_once: bool = True


class KeptOutput(StrEnum):
    """Whether koalad has the output of a job's processes (see Request.keep_output)."""

    NONE = "none"  # it is not requested, or the job is not final
    PENDING = "pending"  # the job is final, and its output is being collected
    KEPT = "kept"
    LOST = "lost"  # a part of it could not be collected


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Header):
    """One job that runs on clusters of this site, or of its neighbours by leases.

    `attempts`: the present attempt of each component, None for one that has none; empty before a claim. `numbers`: how
    many attempts each component has had, also those beyond the present ones; empty before the first.
    `held_processor_us`: processor-microseconds that were allocated, but waited at a barrier. `excluded`: (cluster,
    instant) until which the cluster is excluded for this job. `collecting`: its attempts have ended, and staged-out
    files are on their way. `patient`: it went into batch queues and has no claim time-out. `lowered_at`: when it last
    asked for fewer processors than before. `choices`: the clusters or groups of clusters on which it can run, in order;
    `choice`: the place of the one that is tried. `written`: the request as its user wrote it, if `request` is what was
    placed of it: fewer processors, or a component for each cluster of that choice. `preempted`: running jobs were
    vacated or suspended for it, and it was not released since. `released_before`: an earlier try was released.
    `suspended_for`: the job that has its processors meanwhile. `suspensions`: how often it was suspended in this try.
    `revocations`: how often a lease on which it ran was taken back. `setup_words`: of the last failure of a `setup`,
    without directories and numbers. `refusals`: by the clusters that are refusing it. `barrier_wait`: how long its
    components wait at their barriers for those in queues, in this try; None if the barrier's time-out applies.
    `given_back`: its components that were given back in this try, by their number. `candidates`: further attempts of
    its components by their ids, in queues of other clusters, each until nothing of it is left.
    """

    attempts: tuple[Attempt | None, ...] = ()
    numbers: tuple[int, ...] = ()
    claimed_at: Instant | None = None
    submission_failures: int = 0
    completion_failures: int = 0
    overtaken: int = 0
    held_processor_us: int = 0
    excluded: tuple[tuple[str, Instant], ...] = ()
    collecting: bool = False
    patient: bool = False
    kept_output: KeptOutput = KeptOutput.NONE
    lowered_at: Instant | None = None
    choices: tuple[Choice, ...] = ()
    choice: int = 0
    written: Request | None = None
    preempted: bool = False
    released_before: bool = False
    revocations: int = 0
    suspended_for: JobId | None = None
    suspensions: int = 0
    setup_words: str = ""
    refusals: tuple[Refusals, ...] = ()
    barrier_wait: Duration | None = None
    given_back: tuple[GivenBack, ...] = ()
    candidates: tuple[Attempt, ...] = ()

    def attempt(self, component: int) -> Attempt | None:
        """Return the present attempt of a component; None before a claim, and for one that the placement omits."""
        return self.attempts[component] if component < len(self.attempts) else None

    def number_of(self, component: int) -> int:
        """Return the number of the component's newest attempt; 0 before the first."""
        return self.numbers[component] if component < len(self.numbers) else 0

    @property
    def present(self) -> Sequence[Attempt]:
        """The attempts of this try: all but those of optional components that it goes without."""
        found: list[Attempt] = []
        for each in self.attempts:
            if each is not None and (not each.request.optional or each.ending is not Ending.CANCELLED):
                found.append(each)
        return found

    @property
    def live(self) -> Sequence[Attempt]:
        """The attempts that are neither cleaned up nor detached, also candidates."""
        found: list[Attempt] = []
        for each in self.attempts:
            if each is not None and not each.state.cleaned_up and each.detached_at is None:
                found.append(each)
        for each in self.candidates:
            if not each.state.cleaned_up and each.detached_at is None:
                found.append(each)
        return found

    @property
    def all_attempts(self) -> Sequence[Attempt]:
        """The attempts of this try: the present one of each component, and all candidates."""
        return [each for each in (*self.attempts, *self.candidates) if each is not None]

    def candidates_of(self, component: int) -> list[Attempt]:
        """Return the candidates of a component that may still win: those that are not being cancelled."""
        found = (each for each in self.candidates if each.id.component == component)
        return [each for each in found if not each.cancelling and not each.state.ended]


@fast_frozen
@dataclass(frozen=True, slots=True)
class Counters:
    """The engine's counters: the next job's id, the next position in the wait queue, the next Launchers' numbers.

    Pilots have numbers far above the ids of the jobs that users submit, whose numbers thereby have no gaps. Jobs of ids
    below `doubtful_below` are in a store that was restored from a backup, and may have gone on since.
    """

    next_job: int = 1
    next_position: int = 1
    doubtful_below: int = 0
    next_launcher: int = FIRST_LAUNCHER


JobRow = row_class(Job)
_job_row, _job_value = caster(Job, JobRow), caster(JobRow, Job)
_replace_job = replacer(Job)
replace_counters = replacer(Counters)


def job_row(job: Job) -> Job:
    """Return rows of a job and its attempts."""
    row = _job_row(job)
    if row.attempts:
        object.__setattr__(row, "attempts", rows_of_attempts(row.attempts))
    if row.candidates:
        object.__setattr__(row, "candidates", tuple([attempt_row(each) for each in row.candidates]))
    return row


def rows_of_attempts(attempts: Iterable[Attempt | None]) -> tuple[Attempt | None, ...]:
    return tuple([each if each is None else attempt_row(each) for each in attempts])


def job_value(row: Job, values: Mapping[AttemptId, Attempt] = MappingProxyType({})) -> Job:
    """Return a job that never changes, of a row and the rows of its attempts. `values`: those that were made before."""
    job = _job_value(row)
    if job.attempts:
        attempts = [each if each is None else values.get(each.id) or attempt_value(each) for each in job.attempts]
        object.__setattr__(job, "attempts", tuple(attempts))
    if job.candidates:
        candidates = tuple([values.get(each.id) or attempt_value(each) for each in job.candidates])
        object.__setattr__(job, "candidates", candidates)
    return job


def without_attempts(job: Job) -> Job:
    """Return the job's own fields, which are kept apart from its attempts."""
    return _replace_job(job, {"attempts": (), "candidates": ()}) if job.attempts else job


def with_attempts(job: Job, attempts: Iterable[Attempt]) -> Job:
    """Return the job with those of its attempts that are not superseded."""
    there = sorted([each for each in attempts if not each.superseded], key=lambda each: each.id)
    present = {each.id.component: each for each in there if not each.candidate}
    if not present:
        return job
    by_component = tuple([present.get(index) for index in range(len(job.request.components))])
    candidates = tuple([each for each in there if each.candidate])
    return _replace_job(job, {"attempts": by_component, "candidates": candidates})
