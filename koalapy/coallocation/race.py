"""Races: a component that waits in a batch queue has candidates in queues of other clusters, and the first one wins.

A candidate is an attempt with a number of its own. The first one at its barrier becomes its component's present
attempt, and the others are cancelled with the same commit; none of them is ever released. A candidate that the batch
system refuses, or that ends, is dropped, and nothing is counted: the others keep their places. The field calls
candidates redundant requests, and a Slurm federation calls them sibling jobs.
"""

from collections.abc import Sequence

from koalapy.attempts.attempt_end import reason_details
from koalapy.attempts.cancel import cancel, detach
from koalapy.attempts.directories import host_cluster_of, remove_directory
from koalapy.attempts.submission import submit
from koalapy.broker.broker import queues_for
from koalapy.broker.wait_deadlines import closed_clusters, time_to_begin
from koalapy.coallocation import refusals
from koalapy.core.core import Core
from koalapy.information.commitments import processors_taken
from koalapy.information.kis import ClusterSummary
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.history import HistoryKind
from koalapy.model.identity import MAX_ATTEMPTS, AttemptId
from koalapy.model.job import Job
from koalapy.model.lease import is_temporary
from koalapy.model.request import Request, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.policies import call_policy
from koalapy.policies.candidates import Queue, candidates_error, shortest_queues

FIRST = Duration(SECOND)  # after its claim a job enters further queues: the first one may start it at once
BETWEEN = Duration(MINUTE)  # it does so at most so often
_DEFAULT_PART = 4  # candidates of all jobs may ask for one part in so many of a cluster


def most_queues(request: Request, attempt: Attempt, settings: Settings) -> int:
    """Return in how many queues the attempt's component may wait at once; 1 if it may have no candidates."""
    component = attempt.request
    if component.cluster is not None or component.until_end or is_temporary(attempt.cluster):
        return 1
    if request.interactive is not None or request.pilot is not None:
        return 1
    return settings.race.most if request.race is None else request.race


def step(core: Core, now: Instant, job: Job) -> None:
    """Drop the candidates of which nothing is left, and enter further queues if that is due."""
    for each in job.candidates:
        if each.stuck is not None and not each.let_go:
            detach(core, now, each)
    drop_candidates(core, job)
    due = next_moment(core, job)
    if due is not None and now >= due:
        _enter_queues(core, now, job)


def drop_candidates(core: Core, job: Job) -> None:
    """Drop the candidates for which the job does not wait any more."""
    for each in job.candidates:
        if each.let_go:
            if not each.is_pending_cancel:  # its directory is removed with its end
                remove_directory(core, each)
            core.records.drop_candidate(job, each)


def next_moment(core: Core, job: Job) -> Instant | None:
    """Return when the job may enter further queues; None if it needs no more of them."""
    if not job.patient or not job.state.claiming:
        return None
    return core.run_list.races.get(job.id, Instant((job.claimed_at or 0) + FIRST))


def take_lead(core: Core, now: Instant, job: Job, attempt: Attempt) -> None:
    """Cancel all other attempts of the component: this one, which is at its barrier or beyond, has won."""
    if attempt.candidate and not attempt.cancelling:
        core.records.lead(job, attempt)
    rivals = [] if attempt.candidate else job.candidates_of(attempt.id.component)
    if rivals:
        others = [each.cluster for each in rivals]
        core.records.note_attempt(now, attempt.id, attempt.cluster, HistoryKind.CANDIDATE_WON, others=others)
    for each in rivals:
        cancel(core, each)
    for each in job.live if len(job.present) > 1 else ():
        if each.cluster == attempt.cluster and _is_waiting(each) and not _fits_beside(core, job, each, each.cluster):
            _leave(core, job, each)


def _leave(core: Core, job: Job, attempt: Attempt) -> None:
    """Cancel an attempt that has no room beside another component of its job, if its own has another place."""
    others = [] if attempt.candidate else job.candidates_of(attempt.id.component)
    if others:
        core.records.lead(job, others[0])
    if attempt.candidate:
        cancel(core, attempt)


def _fits_beside(core: Core, job: Job, attempt: Attempt, cluster: str) -> bool:
    """Return whether the cluster is large enough for the attempt's component and the others that are bound to it.

    A component is bound to its cluster if it has come there, was given back there, or waits nowhere else.
    """
    known = core.information.clusters.get(cluster)
    if known is None or known.state is None:
        return True
    there = [each for each in job.present if each.cluster == cluster and each.id.component != attempt.id.component]
    bound = [each for each in there if not _is_waiting(each) or not job.candidates_of(each.id.component)]
    return sum(processors_taken(each.request, known.settings) for each in (attempt, *bound)) <= known.state.total


def goes_on(core: Core, now: Instant, job: Job, attempt: Attempt, reason: Reason, refused: bool = False) -> bool:
    """Return whether the component goes on without this attempt, which has failed for this reason.

    It does so while another attempt of it waits, unless the request itself is at fault. `refused`: the batch system did
    not accept the submission.
    """
    component = attempt.id.component
    if attempt.candidate:
        lead = job.attempt(component)
        if not job.state.claiming or lead is None or not _is_waiting(lead):
            return True
    else:
        others = job.candidates_of(component) if job.state.claiming else []
        if not others or (reason.whose == "request" and not reason.command):
            return False
        core.records.lead(job, others[0])
    if refused and refusals.may_pass(reason):
        refusals.note(core, now, job, attempt, reason)
    elif reason.whose != "transient":
        refusals.exclude(core, now, job, attempt, refusals.LONGEST_PAUSE)
    if refused and refusals.of_the_cluster(reason):
        core.information.refused(now, attempt.cluster, job.id, reason)
    cancel(core, attempt)
    core.records.note_attempt(now, attempt.id, attempt.cluster, HistoryKind.CANDIDATE_LOST, **reason_details(reason))
    core.run_list.races[job.id] = Instant(now + BETWEEN)
    return True


def recall(core: Core, now: Instant, job: Job) -> None:
    """Make older attempts that other clusters remember candidates, of a job in a store that was restored.

    The backup does not know which of them has won.
    """
    if job.id >= core.records.counters.doubtful_below or job.request.when_busy is not WhenBusy.QUEUE:
        return
    for lead in job.present:
        for number, cluster in core.recalled.older(job.id, lead.id.component, lead.id.number):
            if cluster != lead.cluster:
                _add(core, now, job, lead, number, cluster)


def may_have_won_elsewhere(core: Core, job: Job) -> bool:
    """Return whether another candidate of the job may have been released, which a restored store does not know."""
    if not job.patient or job.id >= core.records.counters.doubtful_below:
        return False
    newest = [(each, core.recalled.newest(job.id, each.id.component)) for each in job.present]
    return bool(core.recalled.unknown) or any(number > job.number_of(each.id.component) for each, (number, _) in newest)


def _is_waiting(attempt: Attempt) -> bool:
    return attempt.allocated_at is None and not attempt.state.ended and not attempt.cancelling


def _enter_queues(core: Core, now: Instant, job: Job) -> None:
    lacking = False
    for lead in job.present:
        rivals = job.candidates_of(lead.id.component)
        if not all(_is_waiting(each) for each in (lead, *rivals)):
            continue  # one of them starts already
        most = most_queues(job.request, lead, core.settings) - 1 - len(rivals)
        taken = {each.cluster for each in job.live if each.id.component == lead.id.component}
        possible = [each for each in _raced_on(core) if each not in taken]
        if most < 1 or not possible:
            continue
        found = _queues(core, now, job, lead, possible)
        for cluster in _choose(core, now, job, found, most)[: MAX_ATTEMPTS - 1 - job.number_of(lead.id.component)]:
            attempt = _add(core, now, job, lead, job.number_of(lead.id.component) + 1, cluster)
            core.records.note_attempt(now, attempt.id, cluster, HistoryKind.CANDIDATE_QUEUED)
            most -= 1
            possible.remove(cluster)
        lacking = lacking or (most > 0 and bool(possible))
    core.run_list.races[job.id] = Instant(now + BETWEEN) if lacking else None
    core.run_list.mark_dirty(job.id)


def _raced_on(core: Core) -> list[str]:
    """Return the clusters whose queues candidates may enter."""
    of = core.settings.race.of
    clusters = core.information.clusters.values()
    names = [each.settings.name for each in clusters if each.settings.race and not each.settings.draining]
    return [each for each in names if not is_temporary(each) and (of is None or each in of)]


def _queues(core: Core, now: Instant, job: Job, lead: Attempt, possible: Sequence[str]) -> list[Queue]:
    """Return the queues that take the component now: in its job's network, for long enough, and politely."""
    clusters = core.information.clusters
    summaries = core.information.summaries(now)
    network = None
    if job.request.communication and len(job.present) > 1 and lead.cluster in clusters:
        network = clusters[lead.cluster].settings.network
    closed = closed_clusters(now, job, summaries)
    there = [each for each in summaries if each.name in possible and each.name not in closed]
    if network is not None:
        there = [each for each in there if each.settings.network == network]
    return [
        Queue(
            cluster=each.name,
            waiting=each.state.waiting_local if each.state is not None else 0,
            backlog=each.backlog,
            processors=each.total,
        )
        for each in queues_for(lead.request, there, core.matching.at(now))
        if _lasts(core, now, job, lead, each.name)
        and _is_polite(core, lead, each)
        and _fits_beside(core, job, lead, each.name)
    ]


def _wait(now: Instant, job: Job) -> Duration:
    """Return how long the component may wait at its barrier: for the others, and for the job's `begin`."""
    return Duration((job.barrier_wait or 0) + time_to_begin(now, job))


def _lasts(core: Core, now: Instant, job: Job, lead: Attempt, cluster: str) -> bool:
    """Return whether the cluster's queue takes the walltime with the time that the component waits for others."""
    limit, needed = core.information.walltime_limit(cluster), lead.request.queue_walltime
    return limit is None or needed is None or needed + _wait(now, job) <= limit


def _is_polite(core: Core, lead: Attempt, summary: ClusterSummary) -> bool:
    """Return whether candidates of all jobs ask for few processors of the cluster; one of them always may."""
    there = core.records.candidates_on(summary.name)
    asked = sum(processors_taken(each.request, summary.settings) for each in there)
    bound = core.settings.race.processors
    limit = summary.total // _DEFAULT_PART if bound is None else bound
    return not there or asked + processors_taken(lead.request, summary.settings) <= limit


def _choose(core: Core, now: Instant, job: Job, queues: Sequence[Queue], most: int) -> Sequence[str]:
    """Return what the policy chooses; an error of it is noted once, and the shortest queues are entered then."""
    shortest = shortest_queues(queues, most)
    found, wrong = call_policy(
        lambda: core.candidates(tuple(queues), most), lambda answer: candidates_error(answer, queues, most), shortest
    )
    if wrong:
        message = f"The candidates policy failed: {wrong}. The shortest queues are entered."
        if (job.id, message) not in core.sessions.noted_errors:
            core.sessions.noted_errors[job.id, message] = None
            core.records.note(now, job.id, HistoryKind.POLICY_FAILED, message=message)
    return found


def _add(core: Core, now: Instant, job: Job, lead: Attempt, number: int, cluster: str) -> Attempt:
    attempt = Attempt(
        id=AttemptId(job.id, lead.id.component, number),
        cluster=cluster,
        request=lead.request,
        host_cluster=host_cluster_of(core, cluster),
        candidate=True,
    )
    core.records.race(job, attempt)
    submit(core, attempt, job.request, wait=_wait(now, job))
    return attempt
