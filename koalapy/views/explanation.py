"""`koala explain`: why a job waits, claims or stops, or how it ended, for programs and in a sentence or two.

`explain` reads the engine between two batches of events; `summary` and `answer` describe its result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from koalapy.answers.jobs import ExplainAnswer, Held
from koalapy.answers.sweeps import JobStateName
from koalapy.broker.availability import Availability
from koalapy.broker.broker import find_placement
from koalapy.broker.fit import Misfit
from koalapy.broker.wait_deadlines import begins_at, closed_clusters, enters_queue_at, expires_at
from koalapy.coallocation.hold import is_awaited
from koalapy.coallocation.stop import barrier_time
from koalapy.core.wait_queue import in_order
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import History
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest
from koalapy.model.sent import SentJob
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import SECOND, Duration, Instant, format_duration, format_instant
from koalapy.model.work import Flow, Work
from koalapy.policies.placement import PlacementPolicy
from koalapy.scavenging.launchers import owner_of
from koalapy.views.checking import lacks_of
from koalapy.views.fields import optional_instant, reason
from koalapy.views.history import notes_of
from koalapy.views.leases import why_not_borrowed, why_sweep_borrows_no_more

_MOST_NAMED = 10  # jobs in a sentence
_UNSUITED = frozenset({"no_match", "undefined", "requirements_error"})
_WELL = frozenset({"busy", "too_large"})  # reasons of clusters that can be used


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for the state of a job or sweep. `clusters`: those of the grid; `troubles`: why some cannot be used.

    For a waiting job, `lacks` names what each cluster lacks for each component. `fits`: whether it would be placed now
    if it were alone in the queue. `ahead`: number of jobs before it; `first`: the first of them. `not_borrowed`: why
    each neighbouring site lends nothing for it now. `holders`: if one cluster is too busy for it, the attempts of other
    jobs that have processors there.

    For a claiming job, `gives_back_at` is the instant at which it gives up. `held`: its attempts that wait at barriers;
    `waited`: the processor-microseconds that all its attempts have waited there, those of earlier tries, too. `filled`:
    the attempt whose processors sweeps may use meanwhile.

    For a sweep, `no_more_nodes` has the reason of each cluster that gives it no more nodes now.
    `not_admitted`: why it was not admitted yet. `faults`: policies that failed for it.
    `launchers`: those that are not cleaned up.

    For one that is blocked, `waits_for` are those that must be done before it may begin, and are not final. For one
    that another site runs, `connected` is whether there is a session with it. For a job that has processors,
    `suspends` are the jobs that are suspended for it.
    """

    work: Work
    clusters: tuple[str, ...]
    troubles: Mapping[str, Reason]
    lacks: tuple[Misfit, ...] = ()
    fits: bool = False
    ahead: int = 0
    first: JobId | None = None
    gives_back_at: Instant | None = None
    held: tuple[Attempt, ...] = ()
    waited: int = 0
    filled: AttemptId | None = None
    no_more_nodes: Mapping[str, str] = field(default_factory=dict)
    not_admitted: str = ""
    faults: tuple[str, ...] = ()
    launchers: tuple[Attempt, ...] = ()
    not_borrowed: Mapping[str, str] = field(default_factory=dict)
    waits_for: tuple[Work, ...] = ()
    connected: bool = False
    suspends: tuple[JobId, ...] = ()
    holders: tuple[Attempt, ...] = ()


def explain(engine: Engine, now: Instant, work: Work, placement: PlacementPolicy) -> Explanation:
    """Explain the state of a job or sweep by the engine's records. Nothing is changed."""
    summaries = engine.summaries(now)
    clusters = tuple(summary.name for summary in summaries)
    troubles = {summary.name: summary.trouble for summary in summaries if summary.trouble}
    if work.state is JobState.BLOCKED:
        waits_for = [found for each in work.request.after if (found := engine.records.work(each)) is not None]
        return Explanation(work, clusters, troubles, waits_for=tuple(waits_for))
    if isinstance(work, Sweep):
        scavenger = engine.scavenger
        return Explanation(
            work,
            clusters,
            troubles,
            no_more_nodes=scavenger.why_no_more(now, work) if work.state is JobState.RUNNING else {},
            not_admitted=scavenger.waits_because(work.id),
            faults=scavenger.faults(work.id),
            launchers=tuple(engine.core.launchers.of(owner_of(work.id))),
            not_borrowed=why_sweep_borrows_no_more(engine, now, work) if work.state is JobState.RUNNING else {},
        )
    if isinstance(work, Flow):
        return Explanation(work, clusters, troubles)
    if isinstance(work, SentJob):
        return Explanation(work, clusters, troubles, connected=work.site in engine.core.neighbours.connected)
    job = work
    if job.state is JobState.CLAIMING:
        return Explanation(
            job,
            clusters,
            troubles,
            gives_back_at=engine.gives_back_at(job),
            held=tuple([each for each in job.present if each.state.at_barrier]),
            waited=job.held_processor_us + barrier_time(job, now),
            filled=filler.fills if (filler := engine.core.pilots.records.get(job.id)) is not None else None,
            suspends=_suspended_for(engine, job),
        )
    if job.state is not JobState.WAITING:
        return Explanation(job, clusters, troubles, suspends=_suspended_for(engine, job))
    without = closed_clusters(now, job, summaries)
    lacks = [lack for lack in engine.explain(now, job.id) if lack.cluster not in without]
    waiting = [each.id for each in in_order(engine.records.jobs.values())]
    return Explanation(
        job,
        clusters,
        troubles,
        lacks=tuple(_excluded_clusters(now, job) + lacks),
        fits=isinstance(
            find_placement(
                job.request, Availability(summaries).without(without), placement, engine.core.matching.at(now)
            ),
            tuple,
        ),
        ahead=waiting.index(job.id) if job.id in waiting else 0,
        first=waiting[0] if waiting else None,
        not_borrowed=why_not_borrowed(engine, now, job),
        holders=_holders(engine, [each.cluster for each in lacks if each.reason.code == "busy"]),
    )


def _holders(engine: Engine, busy: Sequence[str]) -> tuple[Attempt, ...]:
    """Return the attempts of jobs that have processors of the only busy cluster; none if several are busy."""
    if len(set(busy)) != 1:
        return ()
    there = [each for each in engine.records.live(busy[0]) if each.launcher is None]
    return tuple([each for each in there if each.allocated_at is not None and each.ended_at is None])


def _suspended_for(engine: Engine, job: Job) -> tuple[JobId, ...]:
    jobs = engine.records.jobs
    return tuple([each for each in engine.core.suspended.jobs if jobs[each].suspended_for == job.id])


def answer(found: Explanation, now: Instant, history: Iterable[History] = ()) -> ExplainAnswer:
    """Answer why a job or sweep is in its state, and what each cluster lacks for each of its components.

    `now`: the instant of the explanation. `history`: that of a final job; its notes name files that were not fetched.
    """
    work = found.work
    return {
        "schema": "koala.explain/1",
        "id": work.id,
        "state": cast(JobStateName, str(work.state)),
        "summary": summary(found),
        "notes": notes_of(history),
        "reason": reason(work.reason) if work.reason else None,
        "lacks": lacks_of(found.lacks),
        "not_borrowed": [{"site": site, "reason": why} for site, why in found.not_borrowed.items()],
        "no_more_nodes": [{"cluster": cluster, "reason": why} for cluster, why in found.no_more_nodes.items()],
        "held": [_held(each, now) for each in found.held],
        "gives_back_at": optional_instant(found.gives_back_at),
    }


def _held(attempt: Attempt, now: Instant) -> Held:
    since = attempt.at_barrier_at if attempt.at_barrier_at is not None else now
    return {
        "component": attempt.id.component,
        "cluster": attempt.cluster,
        "processors": attempt.processors,
        "since": format_instant(since),
        "processor_seconds": attempt.processors * max(0, now - since) / SECOND,
    }


def summary(found: Explanation) -> str:
    """Summarise an explanation in a sentence or two."""
    work = found.work
    if (summarise := _OF_BOTH.get(work.state)) is not None:
        return summarise(found)
    match work:
        case Sweep():
            return _sweep_summary(found, work)
        case Flow():
            return _flow_summary(work)
        case SentJob():
            return _sent_summary(work, found.connected)
        case Job():
            expires = expires_at(work)
            bound = f" It fails if it has not started by {format_instant(expires)}." if expires is not None else ""
            return _OF_JOBS[work.state](found, work) + bound


def _excluded_clusters(now: Instant, job: Job) -> list[Misfit]:
    """Return the clusters that are excluded for this job for a while, because they failed it."""
    return [
        Misfit(cluster, index, _exclusion_reason(job, cluster, Duration(until - now)))
        for cluster, until in job.excluded
        if now < until
        for index, asked in enumerate(job.request.components)
        if asked.cluster in (None, cluster)
    ]


def _exclusion_reason(job: Job, cluster: str, left: Duration) -> Reason:
    last = next((each.reason for each in job.refusals if each.cluster == cluster), None)
    if last is None and job.reason is not None and job.reason.message.startswith(f"{cluster}: "):
        last = job.reason
    why = f": {last.message.removeprefix(f'{cluster}: ')}" if last else "."
    message = f"it is excluded for this job for another {format_duration(Duration(left - left % SECOND))}{why}"
    advice = f"{last.advice if last else ''} The job goes elsewhere meanwhile, or waits.".lstrip()
    return Reason("excluded", "cluster", message, advice)


# ---- in sentences


def _sweep_summary(found: Explanation, sweep: Sweep) -> str:
    if sweep.state is JobState.WAITING:
        return f"It waits to be admitted: {found.not_admitted}" if found.not_admitted else "It waits to be admitted."
    if sweep.state is JobState.STOPPING:
        return _stopping_sweep_summary(found, sweep)
    if sweep.collecting:
        return "All its parameters are done, and its output files are being fetched; `koala show` has their progress."
    parameters = counted_as(sweep.count, "parameter")
    progress = f"It has {sweep.remaining} of its {parameters} left; `koala runners` shows where they run."
    return " ".join((progress, *found.faults))


def _stopping_sweep_summary(found: Explanation, sweep: Sweep) -> str:
    stops = _GIVES_BACK.get(sweep.outcome or Outcome.DONE, "It is stopping")
    if not found.launchers:
        return f"{stops}."
    silent: dict[str | None, str] = {}
    for each in found.launchers:
        silent[each.cluster] = silent.get(each.cluster) or _why_silent(each, found)
    where = ", ".join(f"{cluster}{why}" for cluster, why in silent.items())
    return _with_force_advice(f"{stops}, and waits for the end of its Launchers on {where}.", found, found.launchers)


_GIVES_BACK = {
    Outcome.HOLD: "It gives its nodes back, to be held",
    Outcome.GIVE_BACK: "It gives its nodes back before it goes on",
}


def _flow_summary(flow: Flow) -> str:
    ended = flow.failed + flow.cancelled
    more = f", and {ended} have failed or were cancelled" if ended else ""
    stops = " It is stopping: the rest is cancelled." if flow.state is JobState.STOPPING else ""
    why = f" {flow.reason.message}" if flow.reason else ""
    return f"{flow.done} of its {counted_as(flow.count, 'job')} are done{more}.{stops}{why}"


def _sent_summary(job: SentJob, connected: bool) -> str:
    """Return how a job is that another site runs, and whether there is a session with that site."""
    site = job.site
    down = "" if connected else f" There is no connection with {site} now; `koala sites` shows why."
    if job.sent is None:
        waits = "and is about to be sent" if connected else "and is sent once there is a connection"
        return f"It is to be run by the site {site}, {waits}.{down}"
    if job.state is JobState.CLAIMING:
        return f"It was sent to the site {site}, which has not answered yet.{down}"
    there = f"its job {job.sent.job}, which is {job.sent.state}"
    progress = f" with {job.sent.done} of {job.sent.count} done" if job.sent.count > 1 else ""
    if job.state is JobState.STOPPING:
        force = f" `koala cancel --force {job.id}` does not wait for it." if not connected else ""
        return f"It is stopping, and waits for the site {site} to end {there}.{down}{force}"
    more = f" What began there goes on.{down}" if not connected else ""
    return f"It is run by the site {site} as {there}{progress}.{more}"


def _why_not_begun(found: Explanation) -> str:
    begins = begins_at(found.work)
    claims = enters_queue_at(found.work)
    not_before = f"It begins no sooner than {format_instant(begins)}." if begins is not None else ""
    if claims is not None and claims != begins:
        not_before += f" It is claimed from {format_instant(claims)} on."
    if not found.waits_for:
        return not_before
    jobs = [f"job {each.id} ({each.request.name}, {each.state})" for each in found.waits_for[:_MOST_NAMED]]
    more = len(found.waits_for) - len(jobs)
    named = ", ".join(jobs) + (f" and {more} others" if more else "")
    return f"It waits until {named} {'is' if len(found.waits_for) == 1 else 'are'} done. {not_before}".rstrip()


def _waiting(found: Explanation, job: Job) -> str:
    why = _why_waiting(found, job)
    text = f"{why}{_excluded(found, why)}{_preempted(job)}"
    if not found.ahead:
        return text
    before = f"Job {found.first} comes" if found.ahead == 1 else f"{found.ahead} jobs come"
    first = "" if found.ahead == 1 else f"; job {found.first} is the first"
    return f"{text} {before} before it in the queue{first}."


def _preempted(job: Job) -> str:
    """Return what preemption did to a waiting job, as a further sentence; '' if it did nothing."""
    if job.reason is not None and job.reason.code == "vacated":
        return f" It was vacated: {job.reason.message}"
    return " Jobs were vacated for it before, and are not again until it has started." if job.preempted else ""


def _excluded(found: Explanation, why: str) -> str:
    """Return which clusters are excluded for a waiting job, as further sentences; '' for none that `why` lacks."""
    excluded = {each.cluster: each.reason.message for each in found.lacks if each.reason.code == "excluded"}
    if found.fits:
        return ""
    unnamed = [(cluster, message) for cluster, message in excluded.items() if message not in why]
    texts = [f" {cluster} {message.removeprefix('it ').rstrip('.')}." for cluster, message in unnamed[:_MOST_NAMED]]
    more = f" So are {len(unnamed) - _MOST_NAMED} others." if len(unnamed) > _MOST_NAMED else ""
    return "".join(texts) + more


def _why_waiting(found: Explanation, job: Job) -> str:
    asked = list(enumerate(job.request.components))
    blocked = [index for index, each in asked if not each.optional and _blocked(index, each, found)]
    blocked.sort(key=lambda index: not all(_unusable(lack) for lack in _lacks(index, found)))
    if blocked:
        return _why_blocked(blocked[0], job.request.components[blocked[0]], found)
    if not found.fits:
        return "It waits: each of its components would fit somewhere now, but not all of them at once."
    return "It waits for its turn." if found.ahead else "It waits, and is about to be placed."


def _why_blocked(index: int, component: ComponentRequest, found: Explanation) -> str:
    lacks = _lacks(index, found)
    named = component.cluster
    if named is not None and not lacks:
        return f"It waits for {named}, which is not in the grid file any more. Put it back, or cancel the job."
    if len(lacks) == 1:
        why = lacks[0].reason if _unusable(lacks[0]) else lacks[0].reason.message
        return f"It waits for {lacks[0].cluster}: {why}{_held_there(found)}"
    what = f"component {index}, of {counted_as(component.processors, 'processor')},"
    if found.fits:
        return "It waits, and is about to be placed."
    if all(lack.reason.code in _UNSUITED for lack in lacks):
        return f"It waits: no cluster meets the requirements of component {index} now."
    if component.spread:
        return f"It waits: no group of clusters has {counted_as(component.processors, 'idle processor')} for it now."
    if all(_unusable(lack) for lack in lacks):
        return f"It waits: no cluster can be used for {what} now."
    idle = counted_as(component.processors, "idle processor")
    return f"It waits: no cluster has {idle} for component {index} now."


def _held_there(found: Explanation) -> str:
    """Return which jobs have the processors that a waiting job lacks, and until when, as a further sentence."""
    jobs = list(dict.fromkeys(each.id.job for each in found.holders))
    if not jobs:
        return ""
    ends = [(each.started_at + each.request.walltime, each.id.job) for each in found.holders if each.started_at]
    processors = counted_as(sum(each.processors for each in found.holders), "processor")
    if len(jobs) == 1:
        until = f" until {format_instant(Instant(max(ends)[0]))} at the latest" if ends else ""
        return f" Job {jobs[0]} has {processors} there{until}."
    first = f", job {min(ends)[1]} until {format_instant(Instant(min(ends)[0]))} at the latest" if ends else ""
    return f" {len(jobs)} jobs of this grid have {processors} there{first}."


def _claiming(found: Explanation, job: Job) -> str:
    late = [each for each in job.present if each.at_barrier_at is None or each.state.ended]
    text = "It waits for " + (", ".join(_late(each, found) for each in late) or "its release") + "."
    if (begins := begins_at(job)) is not None:
        text += f" It begins no sooner than {format_instant(begins)}."
    text += "".join([_holds(each) for each in found.held[:_MOST_NAMED]])
    if (more := len(found.held) - _MOST_NAMED) > 0:
        text += f" So {'does' if more == 1 else 'do'} {counted_as(more, 'other')}."
    if found.filled is not None:
        text += f" Sweeps may use the processors of component {found.filled.component} until the others have started."
    if found.waited >= SECOND:
        text += f" Its waits at barriers have cost {counted_as(found.waited // SECOND, 'processor second')} so far."
    if found.gives_back_at is not None:
        text += f" Unless it is released before, it gives back its processors at {format_instant(found.gives_back_at)}."
        if is_awaited(job) and job.barrier_wait is not None:
            text += " Its components in queues keep their places, and nothing is counted."
    for each in job.given_back:
        attempt = job.attempt(each.component)
        if attempt is not None and attempt.state.ended:
            text += f" Component {each.component} is queued again at {format_instant(each.again_at)}."
    return text + _suspending(found)


def _holds(attempt: Attempt) -> str:
    """Return what a component at its barrier holds, and since when, as a further sentence."""
    since = "" if attempt.at_barrier_at is None else f" since {format_instant(attempt.at_barrier_at)}"
    processors = counted_as(attempt.processors, "processor")
    return f" Component {attempt.id.component} holds {processors} at its barrier on {attempt.cluster}{since}."


def _running(found: Explanation, job: Job) -> str:
    lost = [each for each in job.present if each.state is AttemptState.UNKNOWN or each.is_silent]
    if not lost and job.suspended_for is not None:
        return f"It is suspended for job {job.suspended_for}, and goes on as soon as that job has ended."
    if not lost and any(each.state is AttemptState.SUSPENDED for each in job.present):
        return "It is suspended, and goes on as soon as its processors are idle."
    if not lost:
        return f"It is running.{_suspending(found)}"
    text = "It is running, as far as is known; there is no sign of life of " + _with_reasons(lost, found) + "."
    if any(_runs_in_batch(each, found) for each in lost):
        text += f" If its node is dead, `koala cancel --force {found.work.id}` ends it."
    return text


def _suspending(found: Explanation) -> str:
    """Return which jobs are suspended for this one, as a further sentence; '' for none."""
    if not found.suspends:
        return ""
    named = ", ".join(str(each) for each in found.suspends[:_MOST_NAMED])
    if len(found.suspends) == 1:
        return f" Job {named} is suspended for it."
    more = len(found.suspends) - _MOST_NAMED
    return f" Jobs {named}{f' and {more} others' if more > 0 else ''} are suspended for it."


def _stopping(found: Explanation, job: Job) -> str:
    left = list(job.live)
    if not left:
        return "It is stopping: its output is being collected."
    text = "It is stopping, and waits for the end of " + _with_reasons(left, found) + "."
    return _with_force_advice(text, found, left)


def _with_force_advice(text: str, found: Explanation, left: Sequence[Attempt]) -> str:
    """Append the advice for a batch system that does not end some of the batch jobs."""
    stuck = next((each.stuck for each in left if each.stuck), None)
    if stuck is None:
        return text
    return f"{text} {stuck.advice} `koala cancel --force {found.work.id}` does not wait for it."


def _failed(found: Explanation) -> str:
    return f"It failed: {found.work.reason}" if found.work.reason else "It failed."


def _cancelled(found: Explanation) -> str:
    return str(found.work.reason or "It was cancelled.")


_OF_BOTH: dict[JobState, Callable[[Explanation], str]] = {
    JobState.BLOCKED: _why_not_begun,
    JobState.HELD: lambda found: f"It is held; `koala release {found.work.id}` releases it.",
    JobState.DONE: lambda found: "It is done.",
    JobState.FAILED: _failed,
    JobState.CANCELLED: _cancelled,
}
_OF_JOBS: dict[JobState, Callable[[Explanation, Job], str]] = {
    JobState.WAITING: _waiting,
    JobState.CLAIMING: _claiming,
    JobState.RUNNING: _running,
    JobState.STOPPING: _stopping,
}


def _unusable(lack: Misfit) -> bool:
    return lack.reason.code not in _WELL


def _lacks(index: int, found: Explanation) -> list[Misfit]:
    return [lack for lack in found.lacks if lack.component == index]


def _blocked(index: int, component: ComponentRequest, found: Explanation) -> bool:
    """Return whether none of its possible clusters would take the component now, even if it were alone."""
    possible = [name for name in found.clusters if component.cluster in (None, name)]
    return {lack.cluster for lack in _lacks(index, found)} >= set(possible)


def _late(attempt: Attempt, found: Explanation) -> str:
    why = attempt.pending_reason
    if trouble := found.troubles.get(attempt.cluster):
        why = trouble.message.rstrip(".")
    state = "given back" if attempt.ending is Ending.CANCELLED else attempt.ending or attempt.state
    where = f"component {attempt.id.component} on {attempt.cluster}, which is {state}"
    return where + (f" ({why})" if why else "")


def _with_reasons(attempts: Sequence[Attempt], found: Explanation) -> str:
    """List attempts by their components, each with the reason why its cluster is silent or does not end it."""
    return ", ".join(f"component {each.id.component} on {each.cluster}{_why_silent(each, found)}" for each in attempts)


def _why_silent(attempt: Attempt, found: Explanation) -> str:
    trouble = found.troubles.get(attempt.cluster) or attempt.stuck
    reasons = [trouble.message.rstrip(".")] if trouble else []
    if attempt.is_silent and attempt.silent_since is not None:
        reasons.append(f"its wrapper has been silent since {format_instant(attempt.silent_since)}")
        if not trouble:
            reasons.append("its batch system lists it as running" if _runs_in_batch(attempt, found) else _gone(attempt))
    return f" ({'; '.join(reasons)})" if reasons else ""


def _gone(attempt: Attempt) -> str:
    if attempt.unknown_since is None:
        return "its batch system does not list it"
    return f"its batch system has not listed it since {format_instant(attempt.unknown_since)}"


def _runs_in_batch(attempt: Attempt, found: Explanation) -> bool:
    """Return whether the batch system lists the batch job of an attempt with a silent wrapper as running."""
    in_reach = attempt.cluster not in found.troubles
    return attempt.is_silent and in_reach and attempt.state is not AttemptState.UNKNOWN
