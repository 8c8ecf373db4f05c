"""Promises about preemption: nobody makes room for a job that does not start; the others come back, or go on."""

from collections.abc import Collection, Mapping

from koalapy.chaos.promises.knowledge import Decided, KnownCluster, shared
from koalapy.chaos.promises.launchers import Launchers
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.change import Change
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import AttemptId, JobId, attempt_of, is_tag, tag_of
from koalapy.model.job import Job
from koalapy.model.settings import PreemptBy, Settings
from koalapy.model.states import AttemptState, JobState
from koalapy.scheduler.vacating import MOST_SUSPENSIONS


def _made_room(line: History) -> list[JobId]:
    """Return the jobs that were vacated, and those that were suspended."""
    return [JobId(each) for each in (*line.details["jobs"], *line.details.get("suspended", ()))]


Later = tuple[Collection[JobId], Collection[JobId]]


class Preemption:
    """The checker of preemption. `committed` is called after every commit; `before` are the jobs before it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._vacated: dict[JobId, Job] = {}  # as they were when they were vacated, until they are back
        self._attempts: dict[AttemptId, Attempt] = {}  # all of jobs
        self._jobs: dict[JobId, JobState] = {}  # all, as they were committed last
        self._suspended: dict[JobId, JobId] = {}  # those that are suspended, and for whom

    def committed(self, change: Change, before: Mapping[JobId, Job], decided: Decided, launchers: Launchers) -> None:
        """Check the vacated jobs of a change, and those that come back."""
        self._attempts |= {each.id: each for each in change.attempts if each.launcher is None}
        jobs = {job.id: job for job in change.jobs}
        claimed = [line.job for line in change.history if line.kind == HistoryKind.JOB_CLAIMED]
        preempting = [line for line in change.history if line.kind == HistoryKind.JOB_PREEMPTS]
        self._check_suspended(jobs)
        going = {each for line in preempting for each in _made_room(line)}
        for line in change.history:
            if line.kind == HistoryKind.JOB_PREEMPTS:
                promise(line.job in claimed, Promise.PREEMPTS, "jobs are vacated for", line.job, "which is not claimed")
                victims = [before[each] for each in _made_room(line)]
                self._check_rules(jobs[line.job], before.get(line.job), victims)
                suspended = [JobId(each) for each in line.details.get("suspended", ())]
                self._check_where(line.job, [before[each] for each in suspended])
                going -= {each.id for each in victims}
                later = {*claimed[claimed.index(line.job) + 1 :], line.job}
                self._check_need(
                    jobs[line.job], before.get(line.job), victims, suspended, (later, going), decided, launchers
                )
                self._vacated |= {each.id: each for each in victims if each.id not in suspended}
            elif line.kind == HistoryKind.WORK_REQUEUED and line.job in self._vacated:
                self._check_back(jobs[line.job], self._vacated.pop(line.job))
            elif line.kind in (HistoryKind.WORK_DONE, HistoryKind.WORK_CANCELLED, HistoryKind.WORK_FAILED):
                vacated = self._vacated.pop(line.job, None)
                promise(
                    vacated is None or line.kind != HistoryKind.WORK_FAILED,
                    Promise.COMES_BACK, "job", line.job, "was vacated and has failed",
                )  # fmt: skip

    def _check_rules(self, job: Job, before: Job | None, victims: list[Job]) -> None:
        rules = self._settings.preempt
        once = job.request.priority <= rules.highest and not (before and before.preempted)
        promise(once, Promise.PREEMPTS, "job", job.id, "preempts again, or may not at all")
        for each in victims:
            may_go = each.request.priority >= rules.lowest and each.state in (JobState.CLAIMING, JobState.RUNNING)
            promise(may_go and each.request.pilot is None, Promise.PREEMPTS, "job", each.id, "is vacated, and may not")

    def _check_where(self, job: JobId, suspended: list[Job]) -> None:
        """Check that these jobs are suspended only if the grid file allows it, and all their programs ran."""
        promise(
            not suspended or self._settings.preempt.how is PreemptBy.SUSPEND,
            Promise.PREEMPTS, "jobs are suspended for", job, "which is not allowed",
        )  # fmt: skip
        for each in suspended:
            ran = all(attempt.state is AttemptState.RUNNING for attempt in each.live)
            promise(ran and each.suspended_for is None, Promise.SUSPENDED, "job", each.id, "is suspended, and may not")

    def _check_suspended(self, changed: Mapping[JobId, Job]) -> None:
        """Check that each job that is suspended is so for a job that has a claim, or runs, and not too often."""
        self._jobs |= {each: job.state for each, job in changed.items()}
        for each, job in changed.items():
            self._suspended.pop(each, None)
            if job.suspended_for is not None and not job.state.final:
                self._suspended[each] = job.suspended_for
            few = job.suspensions <= MOST_SUSPENSIONS
            promise(few, Promise.SUSPENDED, "job", each, "is suspended for the time", job.suspensions)
        for each, other in self._suspended.items():
            active = other in self._jobs and self._jobs[other].active
            promise(active, Promise.SUSPENDED, "job", each, "is suspended for", other, "which has no processors")

    def _check_need(
        self,
        job: Job,
        before: Job | None,
        victims: list[Job],
        suspended: Collection[JobId],
        later: Later,
        decided: Decided,
        launchers: Launchers,
    ) -> None:
        """Check that the job fits without these jobs, and not if one of them stayed.

        `before`: the job as it waited. `suspended`: some of the victims. `later`: the jobs that are claimed and make
        room after this, in the same step.
        """
        usable = decided.usable
        needs: dict[str, int] = {}
        for attempt in job.live:
            taken = decided.processors.taken(attempt.cluster, attempt.request)
            needs[attempt.cluster] = needs.get(attempt.cluster, 0) + taken
        left: dict[str, int] = {}
        for name, needed in needs.items():
            promise(name in usable, Promise.PREEMPTS, "job", job.id, "preempts on", name, "unseen")
            left[name] = self._free(usable[name], before, suspended, later, decided, launchers) - needed
            lack = -left[name] - self._ended(name, usable[name], decided)
            promise(lack <= 0, Promise.PREEMPTS, "job", job.id, "lacks", lack, "processors on", name)
        for each in victims:
            given: dict[str, int] = {}
            for attempt in each.live:
                taken = decided.processors.taken(attempt.cluster, attempt.request)
                given[attempt.cluster] = given.get(attempt.cluster, 0) + taken
            needed_too = any(given[name] > left[name] for name in given.keys() & left.keys())
            promise(needed_too, Promise.PREEMPTS, "job", each.id, "is vacated for", job.id, "without need")

    def _ended(self, name: str, seen: KnownCluster, decided: Decided) -> int:
        """Return the processors of jobs' attempts that have ended since the batch system was queried."""
        assert seen.state is not None
        records = decided.engine.records
        ended = [self._attempts.get(attempt_of(tag)[1]) for tag in seen.state.allocated if is_tag(tag)]
        return sum(
            decided.processors.taken(name, each.request)
            for each in ended
            if each is not None and each.cluster == name and each.cleaned_up
            if tag_of(records.instance, each.id) in seen.state.allocated
        )

    @staticmethod
    def _free(
        seen: KnownCluster,
        job: Job | None,
        suspended: Collection[JobId],
        later: Later,
        decided: Decided,
        launchers: Launchers,
    ) -> int:
        """Return the processors that nobody else wants once all that is being cancelled there has left.

        `job`: as it waited. `suspended`: the jobs that are suspended for it. On a cluster that was not measured since
        the job waits, only what is idle now counts.
        """
        assert seen.state is not None
        claimed, going = later
        name, records, shown = seen.settings.name, decided.engine.records, frozenset(seen.state.allocated)
        fresh = job is not None and job.waiting_since is not None and seen.state.measured_at >= job.waiting_since
        free = seen.state.idle + launchers.shown(seen) - (seen.state.wanted_local if fresh else 0)
        for each in records.live(name):
            if each.owner.kind is OwnerKind.SWEEP or each.id.job in claimed:
                continue
            taken, is_shown = decided.processors.taken(name, each.request), tag_of(records.instance, each.id) in shown
            leaves = (each.cancelling and each.stuck is None and each.id.job not in going) or each.id.job in suspended
            if leaves and fresh:
                free += taken if is_shown else 0
            elif not is_shown:
                free -= taken
        return free + shared(seen, decided.engine, decided.processors, claimed)

    @staticmethod
    def _check_back(job: Job, vacated: Job) -> None:
        found = job.position, job.submission_failures, job.completion_failures
        wanted = vacated.position, vacated.submission_failures, vacated.completion_failures
        promise(
            found == wanted, Promise.COMES_BACK, "job", job.id, "comes back as", *found, "and was vacated as", *wanted
        )
