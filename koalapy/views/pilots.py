"""The pilots of a grid: what `koala pilots` shows of them, and which of them join, leave or end now."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from koalapy.answers import pilots as answers
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.job import Job, job_value
from koalapy.model.lease import holds_lease
from koalapy.model.pilot import PilotRule, PilotState, is_bound, job_of_pilot, pilot_cluster, pilot_state
from koalapy.model.request import PilotTerms
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import MINUTE, SECOND, Duration, Instant, format_duration, format_instant
from koalapy.policies.pilots import Kept
from koalapy.views.clusters import LeftOn, left_on
from koalapy.views.fields import optional_instant

UNUSABLE = Duration(5 * MINUTE)  # after which a pilot that jobs cannot be placed on ends, if its idle time is shorter

REFUSED = Duration(MINUTE)  # after which a pilot ends whose queue could be started on no node, in a few tries

_NO_ISOLATION = "no_isolation"  # in which no program may run, ever
_NO_NODES = "no_nodes"


@dataclass(frozen=True, slots=True)
class PilotView:
    """One pilot. `left`: what koalapy has on it, or waits for there. `trouble`: why no job can be placed there now.

    For one that is no cluster yet, `trouble` is why not.
    """

    job: Job
    left: LeftOn
    draining: bool
    trouble: Reason | None = None

    @property
    def name(self) -> str:
        return pilot_cluster(self.job.id)

    @property
    def state(self) -> PilotState:
        return pilot_state(self.job)

    @property
    def terms(self) -> PilotTerms:
        assert self.job.request.pilot is not None
        return self.job.request.pilot

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that holds the processors; None before the claim."""
        return next(iter(self.job.present), None)

    @property
    def ends_at(self) -> Instant | None:
        """The instant at which its walltime ends; None before its program runs."""
        attempt = self.attempt
        began = None if attempt is None else attempt.started_at or attempt.released_at
        return None if attempt is None or began is None else Instant(began + attempt.request.walltime)


def answer(view: PilotView) -> answers.Pilot:
    """Describe a pilot."""
    component, attempt = view.job.request.components[0], view.attempt
    per_node = component.processors_per_node
    return {
        "name": view.name,
        "job": view.job.id,
        "state": "draining" if view.draining and view.state == "bound" else view.state.value,
        "on": component.cluster or "",
        "processors": component.processors,
        "nodes": None if per_node is None else component.processors // per_node,
        "hosts": [] if attempt is None else [node.name for node in attempt.nodes],
        "walltime_s": component.walltime / SECOND,
        "idle_s": view.terms.idle / SECOND,
        "shared": view.terms.shared,
        "isolate": view.terms.isolate.value,
        "opened_at": format_instant(view.job.submitted_at),
        "ends_at": optional_instant(view.ends_at),
        "ended_at": optional_instant(view.job.finished_at),
        "jobs": [*view.left.living, *view.left.naming],
        "reason": None if (reason := view.job.reason or view.trouble) is None else str(reason),
    }


def pilots(engine: Engine) -> list[PilotView]:
    """Return the pilots whose jobs are not final, by job, but those that hold leases of other sites."""
    clusters = engine.core.information.clusters
    found = []
    rows = [row for row in engine.records.jobs.values() if row.request.pilot and not holds_lease(row.request)]
    for row in sorted(rows, key=lambda row: row.id):
        name = pilot_cluster(row.id)
        known = clusters.get(name)
        draining, trouble = (known.settings.draining, known.trouble) if known is not None else (False, None)
        if pilot_state(row) is PilotState.BINDING:
            trouble = _why_not_bound(engine, row)
        found.append(PilotView(job_value(row), left_on(engine, name), draining, trouble))
    return found


def _why_not_bound(engine: Engine, job: Job) -> Reason:
    """Return why a pilot is no cluster yet: its own cluster is out of reach, or has not started its batch job."""
    on = job.request.components[0].cluster or ""
    known = engine.core.information.clusters.get(on)
    advice = f"`koala explain {job.id}` shows more."
    if known is not None and known.trouble is not None:
        return replace(known.trouble, message=f"{on} cannot be used: {known.trouble.message}")
    attempt = next(iter(job.present), None)
    if job.state is JobState.HELD:
        return Reason("held", "request", "It is held.", f"`koala release {job.id}` releases it.")
    if attempt is None:
        return Reason("not_claimed", "cluster", f"It waits for {on}.", advice)
    if attempt.state in (AttemptState.SUBMITTING, AttemptState.QUEUED):
        why = f" ({attempt.pending_reason})" if attempt.pending_reason else ""
        return Reason("in_queue", "cluster", f"Its batch job waits in the queue of {on}{why}.", advice)
    return Reason("starting", "transient", f"Its batch job has started on {on}, and prepares itself.", advice)


class Idle(NamedTuple):
    """A pilot on which there is nothing, since an instant. `usable`: whether jobs could be placed there since then."""

    since: Instant
    usable: bool


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The next steps of all pilots. Each may be repeated, and is found again after a restart.

    `join`: jobs whose processors become a cluster. `leave`: clusters of which nothing can run any more. `end`: jobs to
    cancel, since nothing is on their clusters, each with the reason. `idle`: what the next call needs.
    """

    join: tuple[JobId, ...] = ()
    leave: tuple[str, ...] = ()
    end: Mapping[JobId, str] = field(default_factory=dict)
    idle: Mapping[JobId, Idle] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """The pilots that koalapy keeps on one cluster. `waits_since`: see PilotKeeper.step."""

    kept: Mapping[JobId, Kept]
    waits_since: Instant | None


def wishes(engine: Engine, rules: Mapping[str, PilotRule]) -> dict[str, Wish]:
    """Return what is there, and what waits, for the rule of each cluster."""
    views = [each for each in pilots(engine) if each.terms.kept]
    waiting = [row for row in engine.records.jobs.values() if row.state.queued and row.request.pilot is None]
    return {
        cluster: Wish(
            {
                each.job.id: Kept(is_bound(each.job), bool(each.left.living))
                for each in views
                if each.job.request.components[0].cluster == cluster
            },
            min(
                (row.waiting_since for row in waiting if row.waiting_since and _could_run(engine, rule, row)),
                default=None,
            ),
        )
        for cluster, rule in rules.items()
    }


def _could_run(engine: Engine, rule: PilotRule, job: Job) -> bool:
    """Return whether a pilot of this rule could run the components of a waiting job that name no cluster."""
    margin = engine.settings.barrier_timeout + MINUTE
    free = [each for each in job.request.components if each.cluster is None]
    return bool(free) and all(
        each.processors <= rule.size
        and each.walltime + margin <= rule.walltime
        and not (each.gpus or each.exclusive or each.queue or each.constraint)
        for each in free
    )


def upkeep(
    engine: Engine,
    now: Instant,
    joined: Collection[str],
    idle: Mapping[JobId, Idle],
    rules: Mapping[str, PilotRule] = MappingProxyType({}),
) -> Upkeep:
    """Return what is to be done about pilots. `joined`: the grid's clusters. `idle`: of the answer before.

    As many of those that koalapy keeps stay idle as a rule has `least`. A cluster leaves only after its job's batch job
    is over: then no process of an attempt there can live. One that never becomes usable is ended too, later.
    """
    views = pilots(engine)
    spare = {cluster: _kept_on(views, cluster) - rule.least for cluster, rule in rules.items()}
    bound = [each for each in views if is_bound(each.job)]
    known = engine.core.information.clusters
    here = [each for each in bound if each.name in joined and each.name in known]
    empty = [each for each in here if not is_used(engine, each.name, each.draining)]
    next_idle: dict[JobId, Idle] = {}
    end: dict[JobId, str] = {}
    for each in empty:
        trouble = known[each.name].trouble
        before = idle.get(each.job.id)
        same = before is not None and (before.usable or trouble is not None)
        state = next_idle[each.job.id] = before if before is not None and same else Idle(now, trouble is None)
        lacking = trouble is not None and trouble.code == _NO_ISOLATION
        why = _why_ended(each, now - state.since, None if state.usable and not lacking else trouble)
        on = each.job.request.components[0].cluster
        if why and each.terms.kept and on in spare and not each.draining and state.usable:
            spare[on] -= 1
            if spare[on] < 0:
                continue
        if why:
            end[each.job.id] = why
    return Upkeep(
        join=tuple(each.job.id for each in bound if each.name not in joined),
        leave=tuple(name for name in joined if (job := job_of_pilot(name)) is not None and not _holds(engine, job)),
        end=end,
        idle=next_idle,
    )


def is_used(engine: Engine, name: str, draining: bool) -> bool:
    """Return whether something is on a pilot that is a cluster, or a job that names it waits and could run there.

    While it is drained or cannot be used, no job that waits keeps it. One that is held, or has run there and goes on
    elsewhere, never does.
    """
    left = left_on(engine, name)
    if left.is_there or draining or engine.core.information.clusters[name].trouble is not None:
        return left.is_there
    naming = [engine.records.work(each) for each in left.naming]
    return any(each is not None and each.state not in (JobState.HELD, JobState.RUNNING) for each in naming)


def _kept_on(views: Iterable[PilotView], cluster: str) -> int:
    return sum(each.terms.kept and each.job.request.components[0].cluster == cluster for each in views)


def _why_ended(view: PilotView, idle: int, trouble: Reason | None) -> str:
    """Return why a pilot on which there is nothing for so many microseconds ends now; "" if it does not."""
    if view.draining:
        return "It was drained."
    if trouble is not None and trouble.code == _NO_ISOLATION:
        return trouble.message
    if trouble is not None:
        patience = REFUSED if trouble.code == _NO_NODES else max(view.terms.idle, UNUSABLE)
        return f"It could not be used: {trouble.message}" if idle >= patience else ""
    return f"Nothing ran on it for {format_duration(view.terms.idle)}." if idle >= view.terms.idle else ""


def clusters_held(jobs: Iterable[Job], attempts: Iterable[Attempt]) -> list[JobId]:
    """Return the pilots of a store that must be clusters from koalad's start on.

    They run, or attempts on them are known. `attempts`: all that are not cleaned up.
    """
    own = [job for job in jobs if job.request.pilot is not None and not holds_lease(job.request)]
    bound = [job.id for job in own if is_bound(job)]
    used = [job for each in attempts if (job := job_of_pilot(each.cluster)) is not None]
    return sorted({*bound, *used})


def _holds(engine: Engine, pilot: JobId) -> bool:
    """Return whether a batch job of the pilot may still be there."""
    records = engine.records
    job = records.jobs.get(pilot)
    held = job is not None and any(each is not None and not each.cleaned_up for each in job.attempts)
    return held or any(each.id.job == pilot for each in records.pending_cancels.values())
