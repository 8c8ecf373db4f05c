"""The life of pilots: bound when its job's program runs, a cluster until its batch job is over, ended when it is idle.

A pilot ends in the commit that decides it, and nothing is placed there from then on.
"""

from collections import Counter
from dataclasses import replace

from koalapy.coallocation.stop import cancel_work
from koalapy.core.core import Core
from koalapy.core.remaining import Remaining, present_on, remaining_on
from koalapy.information.kis import Known
from koalapy.model.errors import Reason
from koalapy.model.events import ClusterJoined, PilotCloseRequested
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.pilot import Pilot, is_bound, job_of_pilot
from koalapy.model.states import JobState, PilotState
from koalapy.model.units import MINUTE, Duration, Instant, format_duration
from koalapy.pilots import filling
from koalapy.pilots.filling import place_nothing

UNUSABLE = Duration(5 * MINUTE)  # after which a pilot that jobs cannot be placed on ends, if its idle time is shorter
REFUSED = Duration(MINUTE)  # after which a pilot ends whose queue could be started on no node, in a few tries
_NO_ISOLATION = "no_isolation"  # in which no program may run, ever
_NO_NODES = "no_nodes"
_CLOSED = Reason("pilot_closed", "request", "It was closed by its user.", "")


def on_close_requested(core: Core, now: Instant, event: PilotCloseRequested) -> None:
    """End the pilot. Nothing happens if something is there, or waits for it, unless the event forces it."""
    pilot = core.pilots.records.get(event.pilot)
    if pilot is None or pilot.state is PilotState.CLOSING or pilot.fills is not None:
        return
    known = core.information.clusters.get(pilot.name)
    if event.force or not pilot.state.is_cluster or known is None or not remaining_on(core, pilot.name):
        _end(core, now, pilot, _CLOSED)


def on_joined(core: Core, now: Instant, event: ClusterJoined) -> None:
    """Let the cluster of a pilot leave again that has ended meanwhile."""
    number = job_of_pilot(event.settings.name)
    if number is not None and number not in core.pilots.records:
        core.let_leave(event.settings.name)


def step(core: Core, now: Instant) -> bool:
    """Bring each pilot to the state that its job and its cluster have led to. End those that are idle for too long.

    As many of the kept ones stay idle as the grid file's rules have `least`. It is due in each batch while there are
    pilots, or held components that sweeps may use.
    """
    pilots = core.pilots
    pilots.look_at = None
    spare = _spare(core)
    filling.open_fillers(core, now)
    for pilot in list(pilots.records.values()):
        if pilot.fills is not None:
            filling.follow(core, now, pilot)
            continue
        pilot = _follow_job(core, pilot)
        known = core.information.clusters.get(pilot.name)
        if pilot.state is PilotState.CLOSING:
            _follow_end(core, now, pilot, known)
        elif pilot.state.is_cluster and known is not None:
            _follow_use(core, now, pilot, known, spare)
        elif pilot.state.is_cluster and pilot.host_cluster in core.information.clusters:
            core.let_join(pilot)
    return bool(pilots.records) or filling.may_be_opened(core)


def _spare(core: Core) -> Counter[str]:
    """Return by cluster how many of the kept pilots may end though they could go on."""
    kept = [
        each.host_cluster for each in core.pilots.records.values() if each.options.automatic and not _is_closing(each)
    ]
    spare = Counter(kept)
    for cluster, rule in core.settings.pilots:
        spare[cluster] -= rule.least
    return spare


def _is_closing(pilot: Pilot) -> bool:
    return pilot.state is PilotState.CLOSING


def _follow_job(core: Core, pilot: Pilot) -> Pilot:
    """Note that the pilot's job runs, or that it is ending or over."""
    job = core.records.jobs.get(pilot.id)
    if pilot.state is PilotState.BINDING and job is not None and is_bound(job):
        pilot = core.pilots.put(replace(pilot, state=PilotState.BOUND))
    if not _is_closing(pilot) and _is_ending(pilot, job):
        pilot = core.pilots.put(_closing(pilot))
    return pilot


def _is_ending(pilot: Pilot, job: Job | None) -> bool:
    if job is None or job.state.final:
        return True
    if pilot.state.is_cluster:
        return not is_bound(job)
    return job.state.stopping and job.outcome is not None and job.outcome.ends


def _closing(pilot: Pilot) -> Pilot:
    return replace(pilot, state=PilotState.CLOSING, idle_since=None, unusable_since=None)


def _follow_end(core: Core, now: Instant, pilot: Pilot, known: Known | None) -> None:
    """Let the cluster leave once the batch job is over: then no process of an attempt there can live."""
    place_nothing(core, now, pilot)
    if _may_hold(core, pilot.id):
        return
    core.let_leave(pilot.name)
    if known is None:
        core.pilots.put(replace(pilot, state=PilotState.FAILED if pilot.failed else PilotState.ENDED))


def _may_hold(core: Core, pilot: JobId) -> bool:
    """Return whether a batch job of the pilot may still be there, or its job still begin one."""
    job = core.records.jobs.get(pilot)
    held = job is not None and (
        not job.state.final or any(each is not None and not each.cleaned_up for each in job.attempts)
    )
    return held or any(each.id.job == pilot for each in core.records.pending_cancels.values())


# ---- its use


def _follow_use(core: Core, now: Instant, pilot: Pilot, known: Known, spare: Counter[str]) -> None:
    """Note since when nothing is on a pilot that is a cluster, and end it after its time."""
    drained = PilotState.DRAINING if known.settings.draining else PilotState.BOUND
    there = present_on(core, pilot.name)
    if is_used(core, pilot, known, there):
        used = pilot.used or bool(there.living)
        core.pilots.put(replace(pilot, state=drained, idle_since=None, unusable_since=None, used=used))
        return
    pilot = core.pilots.put(_since(replace(pilot, state=drained), now, known.trouble))
    why, at = _why_ended(pilot, now, known.trouble)
    if not why:
        core.pilots.look_at = min(filter(None, (core.pilots.look_at, at)))
        return
    if pilot.options.automatic and pilot.state is PilotState.BOUND and pilot.idle_since is not None:
        spare[pilot.host_cluster] -= 1
        if spare[pilot.host_cluster] < 0 and any(cluster == pilot.host_cluster for cluster, _ in core.settings.pilots):
            return
    _end(core, now, pilot, Reason("pilot_ended", "request", why, ""))


def is_used(core: Core, pilot: Pilot, known: Known, there: Remaining) -> bool:
    """Return whether something is on a pilot that is a cluster, or work that names it waits and could run there.

    While it is drained or cannot be used, no work that waits keeps it. A job that is held, or has run there and goes on
    elsewhere, never does.
    """
    if there.is_there or known.settings.draining or known.trouble is not None:
        return there.is_there
    naming = map(core.records.work, core.pilots.naming.get(pilot.id, ()))
    return any(each is not None and each.state not in (JobState.HELD, JobState.RUNNING) for each in naming)


def _since(pilot: Pilot, now: Instant, trouble: Reason | None) -> Pilot:
    """Return the record with the instant since when nothing is there. Once usable, it stays idle whatever troubles."""
    if pilot.idle_since is not None or (pilot.unusable_since is not None and trouble is not None):
        return pilot
    if trouble is None:
        return replace(pilot, idle_since=now, unusable_since=None)
    return replace(pilot, unusable_since=now)


def _why_ended(pilot: Pilot, now: Instant, trouble: Reason | None) -> tuple[str, Instant]:
    """Return why a pilot on which there is nothing ends now, "" if it does not; and when that will change."""
    if pilot.state is PilotState.DRAINING:
        return "It was drained.", now
    if trouble is not None and trouble.code == _NO_ISOLATION:
        return trouble.message, now
    if pilot.idle_since is not None:
        why, at = f"Nothing ran on it for {format_duration(pilot.options.idle)}.", pilot.idle_since + pilot.options.idle
    else:
        assert pilot.unusable_since is not None
        assert trouble is not None
        patience = REFUSED if trouble.code == _NO_NODES else max(pilot.options.idle, UNUSABLE)
        why, at = f"It could not be used: {trouble.message}", pilot.unusable_since + patience
    return why if now >= at else "", Instant(at)


def _end(core: Core, now: Instant, pilot: Pilot, reason: Reason) -> None:
    """Begin to end a pilot with whatever is there."""
    core.pilots.put(_closing(pilot))
    place_nothing(core, now, pilot)
    job = core.records.jobs.get(pilot.id)
    if job is not None and not job.state.final:
        cancel_work(core, now, job, reason)


def wakeup(core: Core) -> Instant | None:
    """Return when the steps of pilots may have something to do again; None if only an event leads to that."""
    return min(filter(None, (core.pilots.look_at, core.pilots.keep_at)), default=None)
