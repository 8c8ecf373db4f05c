"""The borrower: for a job that does not fit, it asks one neighbour after the other for a lease.

A lease serves a job whole, or the part of it that does not fit here (`parts.py`). It is a cluster of the grid from its
offer until its lender has reported its end; then nothing runs on it for certain. While the lender is out of reach, what
runs there counts as unknown, as on any cluster.
"""

from dataclasses import replace
from functools import partial

from koalapy.broker.availability import Availability
from koalapy.coallocation import lenders, retries
from koalapy.coallocation.stop import stop_job
from koalapy.core.core import Core
from koalapy.model.commands import EndLease, OfferLease, RejectRequest, ReturnLease, RevokeLease
from koalapy.model.errors import Reason
from koalapy.model.events import ClusterLeft
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.job import Job
from koalapy.model.lease import Borrow, BorrowedLease, lease_of_cluster
from koalapy.model.states import JobState, LeaseState
from koalapy.model.sweep import Sweep
from koalapy.model.units import DAY, MINUTE, SECOND, Duration, Instant, format_duration
from koalapy.policies import call_policy
from koalapy.policies.delegation import WaitingRequest
from koalapy.scheduler.vacating import may_be_tried_again
from koalapy.sites import accounts, asking, counts, passing, sweep_leases
from koalapy.sites.asking import Ask
from koalapy.sites.delegating import (
    delegate,
    forget_refusals,
    note_policy,
    note_refused,
    refuse,
    target_of,
    without,
    work_of,
)
from koalapy.sites.requests import ANSWER_WITHIN
from koalapy.sites.returning import give_back, place_nothing

POLL_EVERY = Duration(2 * SECOND)  # at the jobs that wait
UNUSABLE = Duration(5 * MINUTE)  # after which a lease on which no job can be placed is returned
_SURELY_ENDED = Duration(10 * MINUTE)  # after its end, if the lender does not report it
_KEEPS_PLACE = "It keeps its position in the queue; nothing is counted."
TAKEN_BACK = ("lease_ended", "revoked", "closed")  # codes of ends that are the lender's will, and no job's failure
_MOST_JOBS = 100  # at the head of the queue, for which neighbours are asked
_MOST_GIVEN_UP = 100  # leases of a neighbour that have ended without its report
_BUSY = "busy"  # the code of a lender that has too few processors
_LONGEST = Duration(3650 * DAY)  # that a lease may last, whatever its lender states
_NO_ANSWER_IN_TIME = Reason("no_answer", "transient", "It did not answer in time.", "It is asked again.")
_NO_END = Reason("no_end", "transient", "Its lender has not reported its end.", "")
_NO_ANSWER = Reason("no_answer", "transient", f"It did not answer within {format_duration(ANSWER_WITHIN)}.", "")


# ---- answers of lenders


def on_rejected(core: Core, now: Instant, event: RejectRequest) -> None:
    """Note why, so that the next step asks another neighbour."""
    reported = _reported(core, event.neighbour)
    core.neighbours.change(event.neighbour, free=event.processors, reported_at=now)
    lease = core.leases.borrowed.get((event.neighbour, event.lease))
    if lease is None or lease.bound_at is not None:
        return
    if lease.state.asked:
        counts.refused(core, event.neighbour, event.reason)
        if event.reason.code == _BUSY and reported >= lease.processors:
            counts.misbehaved(core, event.neighbour, counts.FREE_WRONG)
    if lease.beyond is not None:
        passing.rejected(core, now, lease, event.reason)
        return
    core.leases.drop(lease)
    if lease.state.asked:
        note_refused(core, now, lease, event.reason)
    core.neighbours.ask_at = now


def _reported(core: Core, neighbour: str) -> int:
    """Return the processors that a neighbour has reported, less those that it has lent to this site since."""
    record = core.neighbours.records[neighbour]
    if record.free is None or record.reported_at is None:
        return 0
    bound = [each for each in core.leases.borrowed_of(neighbour) if each.bound_at is not None]
    return record.free - sum(each.processors for each in bound if (each.bound_at or 0) >= record.reported_at)


def on_offered(core: Core, now: Instant, event: OfferLease) -> None:
    """Take the lease, which becomes a cluster. One that was cancelled meanwhile is on its way back already."""
    lease = core.leases.borrowed.get((event.neighbour, event.lease))
    if lease is None:
        core.records.command(ReturnLease(neighbour=event.neighbour, lease=event.lease))
        return
    length = max(1, event.length)
    if not lease.state.asked:
        if not _is_offered(lease):  # its cancellation is on the way: it may be charged for until then
            core.leases.change(lease, length=length)
            if lease.beyond is not None:
                passing.offered_late(core, lease, replace(event, length=length))
        return
    counts.granted(core, event.neighbour)
    lasts = min(event.lasts, _LONGEST)
    if lasts < event.lasts:
        counts.misbehaved(core, event.neighbour, counts.TOO_LONG)
    if lease.beyond is not None:
        passing.offered(core, now, lease, lasts, replace(event, length=length))
        return
    core.leases.change(
        lease, state=LeaseState.BOUND, bound_at=now, ends_at=Instant(now + lasts), length=length,
        isolation=event.isolation,
    )  # fmt: skip
    lenders.keep_out(core, now, lease.neighbour, lease.cluster)
    if (work := work_of(core, lease)) is not None:
        core.records.note(now, work.id, HistoryKind.LEASE_BOUND, cluster=lease.cluster, processors=lease.processors)


def on_ended(core: Core, now: Instant, event: EndLease) -> None:
    """Note the charge, also of a lease that was given up. The cluster of the lease leaves the grid now, if any.

    An end that this site cannot know of is counted as misbehaviour, and costs nothing.
    """
    lease = core.leases.borrowed.get((event.neighbour, event.lease))
    if lease is None or lease.state.ended:
        _close_given_up(core, now, event)
        return
    if not _is_offered(lease):
        counts.misbehaved(core, event.neighbour, counts.BAD_END)
    charge = _admitted_charge(core, now, event, lease)
    if _is_early(now, lease):
        counts.misbehaved(core, event.neighbour, counts.ENDED_EARLY)
    accounts.close_borrowed(core, now, lease, charge, event.reason)
    if lease.beyond is not None:
        passing.ended(core, now, lease, charge, event.reason)
        return
    if event.reason.code in TAKEN_BACK and lease.state.bound and lease.revoked_until is None:
        _vacate(core, now, lease)
    core.leases.change(lease, state=LeaseState.ENDED)
    free = core.neighbours.records[event.neighbour].free
    if lease.sweeps and free is not None:  # a job may need it, before the next report comes and a sweep asks again
        core.neighbours.change(event.neighbour, free=free + lease.processors)
    if (work := work_of(core, lease)) is not None:
        core.records.note(now, work.id, HistoryKind.LEASE_ENDED, cluster=lease.cluster, message=event.reason.message)


def on_cluster_left(core: Core, now: Instant, event: ClusterLeft) -> None:
    """Drop the record of a lease that has ended, with its cluster."""
    found = lease_of_cluster(event.name)
    core.neighbours.idle_since.pop(event.name, None)
    lease = None if found is None else core.leases.borrowed.get(found)
    if lease is not None and lease.state.ended:
        core.leases.drop(lease)


def on_revoked(core: Core, now: Instant, event: RevokeLease) -> None:
    """Vacate the jobs on a lease that its lender takes back: they keep their positions, and nothing is counted.

    Each asks other neighbours first. Sweeps give up their nodes there, and running parameters go back into the pools.
    The lease is returned as soon as nothing is left on it.
    """
    lease, within = core.leases.borrowed.get((event.neighbour, event.lease)), min(event.within, _LONGEST)
    if lease is None or not lease.state.bound or lease.revoked_until is not None:
        return
    if lease.beyond is not None:
        passing.revoked(core, now, lease, within)
        return
    core.leases.change(lease, revoked_until=Instant(now + within))
    place_nothing(core, now, lease)
    _vacate(core, now, lease)


def _vacate(core: Core, now: Instant, lease: BorrowedLease) -> None:
    """Send the jobs on a lease back to their positions. One from which many were taken back has failed this time."""
    cluster = lease.cluster
    message = f"The site {lease.neighbour} needs its processors."
    there = {each.id.job: None for each in core.records.live(cluster)}
    for job in [core.records.jobs[each] for each in there if each in core.records.jobs]:
        if job.state in (JobState.CLAIMING, JobState.RUNNING) and not job.collecting and may_be_tried_again(job):
            core.records.note(now, job.id, HistoryKind.JOB_REVOKED, cluster=cluster, site=lease.neighbour)
            core.records.change(job, revocations=job.revocations + 1)
            counted = job.revocations > core.settings.max_revocations
            reason = Reason("revoked", "transient", message, "" if counted else _KEEPS_PLACE)
            stop_job(core, now, job, retries.outcome_of(job, reason) if counted else Outcome.VACATED, reason)
            refuse(core, now, lease.neighbour, job, lease.round, reason)


# ---- the end


def end_all(core: Core, now: Instant, neighbour: str, reason: Reason) -> None:
    """Note that a neighbour knows nothing of its leases any more: their clusters leave the grid."""
    for each in core.leases.borrowed_of(neighbour):
        if not each.state.ended:
            _note_lost(core, now, each, reason)


def _note_lost(core: Core, now: Instant, lease: BorrowedLease, reason: Reason) -> None:
    """Note that a lease has ended, and close its account, since nobody reports its charge."""
    if lease.bound_at is not None:
        accounts.close_borrowed(core, now, lease, None, reason)
    core.leases.change(lease, state=LeaseState.ENDED)


def _is_early(now: Instant, lease: BorrowedLease) -> bool:
    """Return whether a lease that this side did not return has ended before its time, without notice."""
    kept = lease.state.bound and lease.revoked_until is None
    return kept and lease.ends_at is not None and now < lease.ends_at - MINUTE


def _close_given_up(core: Core, now: Instant, event: EndLease) -> None:
    """Note the charge for a lease that was given up before its end was reported, once."""
    record = core.neighbours.records[event.neighbour]
    lease = next((each for each in record.given_up if each.number == event.lease), None)
    if lease is None:
        counts.misbehaved(core, event.neighbour, counts.BAD_END)
        return
    others = tuple([each for each in record.given_up if each is not lease])
    core.neighbours.change(event.neighbour, given_up=others)
    charge = _admitted_charge(core, now, event, lease)
    accounts.close_borrowed(core, now, lease, charge, event.reason)


def _admitted_charge(core: Core, now: Instant, event: EndLease, lease: BorrowedLease) -> int:
    """Return the charge for a lease: nothing if it was never offered, and no more than the time that has passed."""
    most = lease.processors * (now - lease.asked_at + MINUTE) if _is_offered(lease) else 0
    if event.charge > most:
        counts.misbehaved(core, event.neighbour, counts.OVERCHARGED)
    return min(event.charge, most)


def _is_offered(lease: BorrowedLease) -> bool:
    return lease.length > 0


# ---- the step


def step(core: Core, now: Instant) -> None:
    """Ask for jobs that wait, take back what is not wanted any more, and return what is idle."""
    for lease in list(core.leases.borrowed.values()):
        _follow(core, now, lease)
    borrow, at = core.settings.borrow, core.neighbours.ask_at
    waits = core.queue.order or core.neighbours.sweep_demands
    if borrow is not None and waits and core.neighbours.connected and (at is None or now >= at):
        core.neighbours.ask_at = Instant(now + POLL_EVERY)
        forget_refusals(core)
        if _ask(core, now, borrow):
            sweep_leases.ask_for_sweeps(core, now, borrow)


def _follow(core: Core, now: Instant, lease: BorrowedLease) -> None:
    neighbour, state = lease.neighbour, lease.state
    if lease.beyond is None and (state.closing or lease.revoked_until is not None):
        place_nothing(core, now, lease)  # its cluster may have joined anew, after a restart
    if state.ended:
        if lease.cluster not in core.information.clusters:
            core.leases.drop(lease)
    elif state.asked and lease.beyond is not None:
        passing.no_answer(core, now, lease, _NO_ANSWER_IN_TIME)
    elif state.asked:
        late = now >= lease.asked_at + ANSWER_WITHIN
        if late:
            counts.refused(core, neighbour, _NO_ANSWER)
            note_refused(core, now, lease, _NO_ANSWER)
        if late or not _is_wanted(core, lease):
            give_back(core, now, lease)
    elif lease.ends_at is not None and now >= lease.ends_at + _SURELY_ENDED:
        _note_lost(core, now, lease, _NO_END)
        given_up = core.neighbours.records[neighbour].given_up[1 - _MOST_GIVEN_UP :]
        core.neighbours.change(neighbour, given_up=(*given_up, lease))
    elif state.bound and lease.beyond is None and _is_to_return(core, now, lease):
        give_back(core, now, lease)


def _is_to_return(core: Core, now: Instant, lease: BorrowedLease) -> bool:
    known = core.information.clusters.get(lease.cluster)
    if lease.revoked_until is not None or (known is not None and known.settings.draining):
        return not core.records.live(lease.cluster)
    return _is_idle(core, now, lease.cluster)


def _is_idle(core: Core, now: Instant, cluster: str) -> bool:
    """Return whether nothing has run on the lease for so long that it is returned."""
    known, borrow = core.information.clusters.get(cluster), core.settings.borrow or Borrow()
    if known is not None and core.records.live(cluster):
        core.neighbours.idle_since.pop(cluster, None)
        return False
    since = core.neighbours.idle_since.setdefault(cluster, now)
    usable = known is not None and known.trouble is None
    return now >= since + (borrow.idle if usable else max(borrow.idle, UNUSABLE))


def _ask(core: Core, now: Instant, borrow: Borrow) -> bool:
    """Ask for jobs. Return whether sweeps may be asked for too: no job is in need of what they would get."""
    own = Availability(core.information.summaries(now))
    are_sweeps_next = True
    for job in _in_order(core, now):
        pending, may_be_asked = asking.pending(core, now, job, borrow)
        if pending is not None:
            own = asking.less_kept(core, job, pending, own)
        excluded = without(core, now, job.id, borrow)
        if not may_be_asked or len(excluded) == len(core.neighbours.connected):
            continue
        found = asking.asks(core, now, job, borrow, own)
        ask, target = (None, None) if isinstance(found, Reason) else _first(core, now, job, found, excluded)
        if ask is not None and target is not None:
            delegate(core, now, job, ask, target, borrow)
            own, are_sweeps_next = own if ask.part is None else ask.part.available, False
        elif isinstance(found, Reason) and found.code == asking.TOO_EARLY:
            are_sweeps_next = False
        elif sweep_leases.is_served_in_place_of_sweeps(core, job, found, excluded, borrow):
            sweep_leases.make_way(core, now)
            are_sweeps_next = False
    return are_sweeps_next


def _first(core: Core, now: Instant, job: Job, asks: list[Ask], excluded: set[str]) -> tuple[Ask | None, str | None]:
    """Return the first request that a neighbour may serve, and that neighbour."""
    for ask in asks:
        target = target_of(core, now, job.id, ask, excluded)
        if target is not None:
            return ask, target
    return None, None


def _in_order(core: Core, now: Instant) -> list[Job]:
    """Return the waiting jobs for which neighbours may be asked, in the order of the policy."""
    jobs = [core.queue.at(position).job for position in core.queue.order[:_MOST_JOBS]]
    shown = [WaitingRequest(each.request.smallest().processors, at) for at, each in enumerate(jobs)]
    policy = core.neighbours.policies.delegation
    ordered, wrong = call_policy(partial(sorted, shown, key=policy), lambda found: "", shown)
    if wrong and jobs:
        note_policy(core, now, jobs[0].id, f"The delegation policy failed: {wrong}.")
    return [jobs[each.arrival] for each in ordered]


def _is_wanted(core: Core, lease: BorrowedLease) -> bool:
    """Return whether the work waits, for which the lease was requested."""
    work = work_of(core, lease)
    return work is not None and (work.state.queued or (isinstance(work, Sweep) and work.state is JobState.RUNNING))
