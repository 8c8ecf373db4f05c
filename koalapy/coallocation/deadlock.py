"""Detection of deadlocks: cycles of claiming jobs, each holding processors that the next one waits for."""

from collections.abc import Collection, Iterable, Mapping

from koalapy.core.core import Core
from koalapy.information.commitments import processors_taken
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId, tag_of
from koalapy.model.job import Job
from koalapy.model.states import JobState

GIVEN_BACK = Reason(
    "circular_wait",
    "transient",
    "It was in a deadlock with an older job: each held what the other needed. The younger one gives back.",
    "It is tried again; nothing is counted.",
)


def job_to_give_back(core: Core, among: Collection[JobId] | None = None) -> Job | None:
    """Return the youngest job of a deadlock; None if there is no deadlock.

    `among`: all jobs that may hold and wait at once; None if they are not known. Only such a job can be in a cycle.
    """
    if among is not None and len(among) < 2:
        return None
    looked_at = core.records.jobs.values() if among is None else [core.records.jobs[job] for job in sorted(among)]
    claiming = [job for job in looked_at if job.state is JobState.CLAIMING]
    waits = {job.id: set(_waits_on(core, job)) for job in claiming}
    if sum(map(bool, waits.values())) < 2:
        return None
    holds = {job.id: {each.cluster for each in holders_of(job)} for job in claiming}
    follows = {
        job.id: [other.id for other in claiming if other.id != job.id and waits[job.id] & holds[other.id]]
        for job in claiming
        if holds[job.id]
    }
    cycle = _cycle(follows)
    return core.records.jobs[max(cycle)] if cycle else None


def holders_of(job: Job) -> list[Attempt]:
    """Return the attempts of the job that hold processors, and are not being given back."""
    return [each for each in job.present if each.allocated_at is not None and not each.state.ended and not each.let_go]


def _waits_on(core: Core, job: Job) -> Iterable[str]:
    """Yield the clusters whose newest measurement shows that the job waits there for more processors than are idle.

    A component with candidates waits only if all of them do.
    """
    waiting = [each for each in job.present if each.allocated_at is None and not each.state.ended and not each.let_go]
    for attempt in waiting:
        together = [attempt, *job.candidates_of(attempt.id.component)]
        if all(_seen_to_wait(core, each) for each in together):
            yield from [each.cluster for each in together]


def _seen_to_wait(core: Core, attempt: Attempt) -> bool:
    """Return whether the attempt is pending and does not fit on the idle processors.

    A batch job that fits may be pending too, for a moment after it was submitted.
    """
    known = core.information.clusters.get(attempt.cluster)
    state = None if known is None else known.state
    if known is None or state is None or attempt.queued_at is None or state.measured_at <= attempt.queued_at:
        return False
    needed = processors_taken(attempt.request, known.settings)
    return tag_of(core.records.instance, attempt.id) in state.pending and state.idle < needed


def _cycle(follows: Mapping[JobId, list[JobId]]) -> list[JobId]:
    """Return one cycle of the graph; empty if there is none."""
    done: set[JobId] = set()
    path: list[JobId] = []

    def visit(job: JobId) -> list[JobId]:
        if job in path:
            return path[path.index(job) :]
        if job in done or job not in follows:
            return []
        path.append(job)
        found = next((cycle for cycle in map(visit, follows[job]) if cycle), [])
        path.pop()
        done.add(job)
        return list(found)

    return next((cycle for cycle in map(visit, sorted(follows)) if cycle), [])
