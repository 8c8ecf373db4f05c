"""Fillers: sweeps of a job's user on the processors of a component that is held at its barrier.

A filler is a pilot with these processors. It is opened while the component waits for others in queues, and serves
Launchers only. It closes as soon as the last of the others has started, or the component is given back. The job is
released once nothing of a Launcher is left there: no program of a sweep runs beside the component. If a Launcher cannot
be ended in time, the component is given back, since its batch job ends with all that is in it.
"""

from dataclasses import replace

from koalapy.coallocation import barrier, clusters, hold
from koalapy.core.core import Core
from koalapy.core.remaining import present_on
from koalapy.model.attempt import Attempt
from koalapy.model.events import ClusterChanged
from koalapy.model.history import HistoryKind
from koalapy.model.job import Job
from koalapy.model.lease import is_temporary
from koalapy.model.pilot import Pilot
from koalapy.model.request import Fill, PilotOptions
from koalapy.model.states import JobState, PilotState
from koalapy.model.units import SECOND, Duration, Instant

PATIENCE = Duration(30 * SECOND)  # at most, from the close of a filler until its component is given back
LEAST = Duration(10 * SECOND)  # of a wait that is worth a filler


def may_be_opened(core: Core) -> bool:
    """Return whether there are jobs that hold a part of their claim, and sweeps."""
    return bool(core.run_list.split and core.records.sweeps)


def open_fillers(core: Core, now: Instant) -> None:
    """Open a filler for each job that has a held component and no filler, if its user has an active sweep.

    It has the processors of the largest held component.
    """
    if not may_be_opened(core):
        return
    for number in core.run_list.split:
        job = core.records.jobs[number]
        if number in core.pilots.records or not _is_useful(core, job):
            continue
        until = hold.held_until(job, core.settings)
        held = [each for each in job.present if _may_fill(core, each)]
        if until is None or until - now < LEAST or not held:
            continue
        largest = max(held, key=lambda each: each.processors)
        options = PilotOptions()
        core.pilots.put(
            Pilot(id=job.id, host_cluster=largest.cluster, options=options, state=PilotState.BOUND, fills=largest.id)
        )
        core.records.note_attempt(now, largest.id, largest.cluster, HistoryKind.COMPONENT_FILLED)


def _is_useful(core: Core, job: Job) -> bool:
    """Return whether the job may be filled, and its user has a sweep that could use its processors."""
    fill = core.settings.fill if job.request.fill is None else job.request.fill
    return fill is Fill.SWEEPS and any(
        each.owner == job.owner and each.state is JobState.RUNNING and each.remaining and not each.collecting
        for each in core.records.sweeps.values()
    )


def _may_fill(core: Core, attempt: Attempt) -> bool:
    known = core.information.clusters.get(attempt.cluster)
    return (
        attempt.state.at_barrier
        and attempt.id in core.at_barrier
        and known is not None
        and not is_temporary(attempt.cluster)
        and not known.settings.scavenge.off
    )


def follow(core: Core, now: Instant, pilot: Pilot) -> None:
    """Let the filler join the grid, or close it; release its job, or give its component back, and let it leave."""
    assert pilot.fills is not None
    job, holder = core.records.jobs.get(pilot.id), core.records.attempt(pilot.fills)
    known = core.information.clusters.get(pilot.name)
    is_held = job is not None and job.state.claiming and holder is not None and holder.state.at_barrier
    if pilot.state is not PilotState.CLOSING:
        if job is not None and is_held and hold.is_awaited(job) and _is_useful(core, job):
            if known is None and pilot.host_cluster in core.information.clusters:
                core.let_join(pilot)
            return
        pilot = core.pilots.put(replace(pilot, state=PilotState.CLOSING, closing_since=now))
    place_nothing(core, now, pilot)
    is_there = present_on(core, pilot.name).is_there
    if job is not None and holder is not None and is_held and is_there:
        patience = min(PATIENCE, core.settings.barrier_timeout // 2)  # so that the barrier's time-out counts nothing
        gives_back = Instant((pilot.closing_since or now) + patience)
        if now >= gives_back:
            hold.give_back(core, now, job, [holder])
        else:
            core.pilots.look_at = min(filter(None, (core.pilots.look_at, gives_back)))
    elif job is not None and is_held:
        barrier.release_if_whole(core, now, job)
    if is_there and _may_run(core, pilot):
        return
    core.let_leave(pilot.name)
    if known is None:
        core.pilots.put(replace(pilot, state=PilotState.ENDED))


def _may_run(core: Core, pilot: Pilot) -> bool:
    """Return whether the batch job with the filler's processors may still be there, with what is in it."""
    assert pilot.fills is not None
    holder = core.records.attempt(pilot.fills)
    return (holder is not None and not holder.cleaned_up) or pilot.fills in core.records.pending_cancels


def place_nothing(core: Core, now: Instant, pilot: Pilot) -> None:
    """Place nothing on the pilot any more, if it is a cluster. Sweeps give its nodes back."""
    known = core.information.clusters.get(pilot.name)
    if known is not None and not known.settings.draining:
        clusters.on_changed(core, now, ClusterChanged(settings=replace(known.settings, draining=True)))
