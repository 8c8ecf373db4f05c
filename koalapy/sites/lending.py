"""The lender: it holds processors for its neighbours by pilots on its own clusters, after what its own jobs want.

A request is rejected at once, or a pilot is claimed for it. The lease is offered when the pilot runs, and is over when
the pilot's batch job is: so nothing of the borrower runs after that. Whatever ends the pilot ends the lease.
"""

from dataclasses import replace

from koalapy.broker.fit import misfit
from koalapy.coallocation.stop import cancel_work
from koalapy.coallocation.user_requests import on_work_submitted
from koalapy.core.core import Core
from koalapy.information.kis import ClusterSummary
from koalapy.model.commands import (
    CancelRequest,
    EndLease,
    ExamineNodes,
    MeasureLease,
    OfferLease,
    RejectRequest,
    ReturnLease,
)
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.events import LeaseExamined, WorkSubmitted
from koalapy.model.hours import is_within, next_change
from koalapy.model.identity import JobId, origin_of_site
from koalapy.model.job import Job
from koalapy.model.lease import (
    LOST_AFTER,
    SHORTEST_LEASE,
    Lend,
    LentLease,
    RevokeFor,
    closed,
    closes,
    holds_lease,
    is_path_to_send,
    is_temporary,
    lease_request,
)
from koalapy.model.neighbour import Relation
from koalapy.model.pilot import is_bound
from koalapy.model.request import ComponentRequest, Isolate
from koalapy.model.states import JobState, LeaseState
from koalapy.model.units import DAY, MINUTE, SECOND, Duration, Instant, format_duration
from koalapy.sites import accounts, counts
from koalapy.sites.returning import give_back
from koalapy.sites.targets import free_there

BINDING = Duration(2 * MINUTE)  # within which a pilot must run, and its nodes be examined
EXPOSED = Duration(10 * MINUTE)  # for which a cluster lends nothing after its nodes could not isolate programs
_EXAMINE_AGAIN = Duration(2 * SECOND)  # if the nodes of a lease have not answered
_MEASURE_EVERY = Duration(5 * SECOND)  # what a lease has written
_LOOK_AHEAD = Duration(400 * DAY)  # for the next hours in which it lends
_MOST_WAITING = 1000  # jobs that are looked at; with more of its own, a site lends nothing
_RETURNED = Reason("lease_returned", "request", "The borrower has returned it.", "")
_LOST = Reason("lender_lost", "transient", "The site that it came from does not know it any more.", "")
_NO_ISOLATION = Reason("no_isolation", "cluster", "Its nodes cannot isolate programs, and it lends no others.", "")
NOT_LENT = Reason("not_lent", "request", "It lends nothing to this site.", "Ask its people.")


def serve(core: Core, now: Instant, lease: LentLease) -> Reason | None:
    """Claim a pilot for a request. Returns why there is none."""
    want, lend = lease.asked.want, core.settings.lend
    if lend is not None and (reason := why_closed(core, now, lend, want.walltime)) is not None:
        return reason
    component = ComponentRequest(
        processors=want.processors, executable="", walltime=want.walltime,
        processors_per_node=want.processors_per_node, memory_per_processor=want.memory,
    )  # fmt: skip
    placed = _placed(core, now, lease.neighbour, component)
    pilot = placed if isinstance(placed, Reason) else _claimed(core, now, lease.neighbour, placed)
    if isinstance(pilot, Reason):
        return pilot
    core.leases.change(lease, job=pilot, state=LeaseState.BINDING)
    return None


def is_nothing(processors: int, walltime: Duration) -> bool:
    """Return whether a request asks for no processors, or for no time."""
    return processors < 1 or walltime < SHORTEST_LEASE


def _placed(core: Core, now: Instant, neighbour: str, asked: ComponentRequest) -> ComponentRequest | Reason:
    """Return the component on the cluster that lends most, or why there is none."""
    there = lendable(core, now, neighbour)
    most = max(there.values(), default=0)
    lend = core.settings.lend
    if lend is not None and asked.processors > most and _is_exposed(core, now, lend):
        return _NO_ISOLATION
    if asked.processors > most:
        needed = f"{asked.processors} {'is' if asked.processors == 1 else 'are'} needed"
        message = f"It can lend {counted_as(most, 'processor')} now, and {needed}."
        return Reason("busy", "transient", message, "It is asked again.")
    summaries = {each.name: each for each in core.information.summaries(now)}
    for name in sorted(there, key=lambda each: (-there[each], each)):
        placed = replace(asked, cluster=name)
        if there[name] >= asked.processors and misfit(placed, summaries[name]) is None:
            return placed
    return Reason("shape", "transient", "Its idle nodes do not have that shape now.", "It is asked again.")


def _claimed(core: Core, now: Instant, neighbour: str, component: ComponentRequest) -> JobId | Reason:
    lend, before = core.settings.lend, core.records.counters.next_job
    assert lend is not None  # or nothing would have been placed
    owner = origin_of_site(neighbour)
    on_work_submitted(core, now, WorkSubmitted(request=lease_request(component, lend), owner=owner))
    if core.records.counters.next_job == before:
        return Reason("no_ids", "cluster", "It has no ids for jobs left.", "")
    return JobId(before)


def on_given_back(core: Core, now: Instant, event: CancelRequest | ReturnLease) -> None:
    """End the pilot of a lease that its borrower does not want any more. One that has ended was reported as such."""
    lease = core.leases.lent.get((event.neighbour, event.lease))
    if lease is not None:
        end(core, now, lease, lease.why or _RETURNED)


def on_examined(core: Core, now: Instant, event: LeaseExamined) -> None:
    """Offer a lease whose nodes isolate programs; end another one, and lend nothing of that cluster for a while.

    One that is lent already ends if it may not go on.
    """
    lease = core.leases.lent.get((event.neighbour, event.lease))
    if lease is not None and lease.state.bound and event.reason is not None:
        end(core, now, lease, event.reason)
        return
    job = None if lease is None or lease.job is None else core.records.jobs.get(lease.job)
    if lease is None or job is None or not lease.state.binding or not is_bound(job):
        return
    if event.reason is None:
        _offer(core, now, lease, job)
        return
    core.neighbours.exposed_until[job.present[0].cluster] = Instant(now + EXPOSED)
    end(core, now, lease, event.reason)


def end(core: Core, now: Instant, lease: LentLease, reason: Reason) -> None:
    """Begin to end a lease, here or where it was passed on. A request that was not served yet is rejected at once."""
    if lease.is_undecided:
        refuse(core, now, lease, reason)
        return
    _let_go(core, now, lease, reason)
    if not lease.state.closing:
        core.leases.change(lease, state=LeaseState.CLOSING, why=reason)


def end_all(core: Core, now: Instant, neighbour: str, reason: Reason) -> None:
    """End all leases of a neighbour that knows nothing of them any more, and drop their records."""
    for each in core.leases.lent_to(neighbour):
        if each.bound_at is not None:
            accounts.close_lent(core, now, each, accounts.measured(now, each), reason)
        _let_go(core, now, each, reason)
        core.leases.drop(each)


def _let_go(core: Core, now: Instant, lease: LentLease, reason: Reason) -> None:
    """Cancel the pilot, or give the lease back to the site that it is of."""
    if (ours := core.leases.borrowed_for(lease)) is not None:
        give_back(core, now, ours)
    job = None if lease.job is None else core.records.jobs.get(lease.job)
    if job is not None and not job.state.final and job.state is not JobState.STOPPING:
        cancel_work(core, now, job, reason)


# ---- what is lent


def lendable(core: Core, now: Instant, neighbour: str) -> dict[str, int]:
    """Return the processors that the neighbour could get now, by cluster.

    That is what is idle less what waiting jobs of this site want, and within all limits.
    """
    lend = core.settings.lend
    if lend is None or neighbour not in lend.to or not is_open(core, now, lend):
        return {}
    left = left_to_lend(core)
    summaries = [each for each in core.information.summaries(now) if _lends(lend, each)]
    clusters = [each for each in summaries if now >= core.neighbours.exposed_until.get(each.name, now)]
    idle = {each.name: each.idle - _wanted_local(lend, each) for each in clusters}
    all_idle = sum(idle.values()) - _wanted(core, clusters)
    return {name: max(0, min(here, all_idle, left)) for name, here in idle.items()}


def is_open(core: Core, now: Instant, lend: Lend) -> bool:
    """Return whether the hours are those in which leases may last."""
    return is_within(lend.hours, now, core.settings.scavenging.offsets)


def why_closed(core: Core, now: Instant, lend: Lend, walltime: Duration) -> Reason | None:
    """Return why no lease of this walltime may be given at this hour; None if it would end in time."""
    offsets = core.settings.scavenging.offsets
    if not is_open(core, now, lend):
        return closed(next_change(lend.hours, now, offsets, Instant(now + _LOOK_AHEAD)))
    closes_at = next_change(lend.hours, now, offsets, Instant(now + walltime))
    return None if closes_at is None else closes(closes_at, walltime)


def left_to_lend(core: Core) -> int:
    """Return how many more processors may be lent, here or passed on."""
    lend = core.settings.lend
    lent = [each for each in core.leases.lent.values() if not each.is_undecided]
    return 0 if lend is None else lend.processors - sum(each.processors for each in lent)


def lent_to(core: Core, neighbour: str) -> int:
    """Return the processors that a neighbour has of this site, or is about to get."""
    return sum(each.processors for each in core.leases.lent_to(neighbour) if not each.is_undecided)


def free_for(core: Core, now: Instant, neighbour: str) -> int:
    """Return the most processors that one site can give to the neighbour through this one.

    A child can have those of all other neighbours, others only those of the children (see `reports.py`).
    """
    lend, neighbours = core.settings.lend, core.neighbours
    own = max(lendable(core, now, neighbour).values(), default=0)
    if lend is None or neighbour not in lend.to or not lend.pass_on or not is_open(core, now, lend):
        return own
    up = neighbours.records[neighbour].relation is Relation.CHILD
    through = [
        free_there(core, each) or 0
        for each in neighbours.connected
        if each != neighbour and (up or neighbours.records[each].relation is Relation.CHILD)
    ]
    return max(own, 0, min(max(through, default=0), left_to_lend(core)))


def _lends(lend: Lend, cluster: ClusterSummary) -> bool:
    settings = cluster.settings
    named = not lend.clusters or cluster.name in lend.clusters
    return named and not is_temporary(cluster.name) and not settings.draining and cluster.trouble is None


def _is_exposed(core: Core, now: Instant, lend: Lend) -> bool:
    """Return whether a cluster lends nothing now because its nodes cannot isolate programs."""
    until = core.neighbours.exposed_until
    return any(_lends(lend, each) and now < until.get(each.name, now) for each in core.information.summaries(now))


def _wanted(core: Core, clusters: list[ClusterSummary]) -> int:
    """Return the processors of waiting jobs of this site that these clusters could run."""
    queue, largest = core.queue, max((each.largest for each in clusters), default=0)
    if len(queue) > _MOST_WAITING:
        return sum(each.total for each in clusters)
    waiting = [queue.at(position).job.request for position in queue.order]
    return sum(
        request.processors
        for request in waiting
        if not holds_lease(request) and all(each.processors <= largest for each in request.components)
    )


def _wanted_local(lend: Lend, cluster: ClusterSummary) -> int:
    """Return the processors that are not lent since local jobs wait for them: a lease would be taken back for those."""
    return cluster.state.wanted_local if lend.revoke_for is RevokeFor.LOCAL and cluster.state is not None else 0


# ---- the step


def step(core: Core, now: Instant) -> None:
    """Offer the leases whose pilots run, end those that cannot go on, and report those that have ended."""
    for lease in list(core.leases.lent.values()):
        if lease.job is None:
            _follow_passed(core, now, lease)
            continue
        job = core.records.jobs.get(lease.job)
        if _is_kept(now, lease):
            counts.misbehaved(core, lease.neighbour, counts.NOT_RETURNED)
        if job is None or job.state.final:
            _note_pilot_end(core, now, lease, job)
        elif lease.state.binding and is_bound(job) and not must_be_examined(job):
            _offer(core, now, lease, job)
        elif (why := _why_ended(core, now, lease)) is not None:
            end(core, now, lease, why)
        elif now >= core.leases.examine_at.get(lease.id, now):
            _examine(core, now, lease, job)


def _examine(core: Core, now: Instant, lease: LentLease, job: Job) -> None:
    """Let the nodes of a lease be examined before its offer, and later what it has written be measured."""
    disk = None if core.settings.lend is None else core.settings.lend.disk
    if lease.state.binding and is_bound(job):
        core.records.hint(ExamineNodes(lease.neighbour, lease.number))
        core.leases.examine_at[lease.id] = Instant(now + _EXAMINE_AGAIN)
    elif lease.state.bound and disk is not None:
        core.records.hint(MeasureLease(lease.neighbour, lease.number, disk))
        core.leases.examine_at[lease.id] = Instant(now + _MEASURE_EVERY)


def _is_kept(now: Instant, lease: LentLease) -> bool:
    """Return whether the borrower has not returned a lease within the notice that it was given."""
    until = lease.revoked_until
    return lease.state.bound and until is not None and now >= until


def must_be_examined(job: Job) -> bool:
    """Return whether the nodes of this lease's pilot must be able to isolate programs."""
    return job.request.pilot is not None and job.request.pilot.isolate is not Isolate.NONE


def _offer(core: Core, now: Instant, lease: LentLease, job: Job) -> None:
    attempt = job.present[0]
    began = attempt.started_at or attempt.released_at or now
    ends_at = Instant(began + attempt.request.walltime)
    if (lend := core.settings.lend) is not None:
        ends_at = next_change(lend.hours, now, core.settings.scavenging.offsets, ends_at) or ends_at
    core.leases.change(lease, state=LeaseState.BOUND, bound_at=now, ends_at=ends_at)
    counts.granted_here(core, lease.neighbour)
    lasts = Duration(max(0, ends_at - now))
    pilot = job.request.pilot
    isolated = pilot is not None and pilot.isolate is not Isolate.NONE
    shown = tuple([each for each in pilot.visible if is_path_to_send(each)]) if pilot is not None and isolated else None
    core.records.command(OfferLease(neighbour=lease.neighbour, lease=lease.number, lasts=lasts, isolation=shown))


def _follow_passed(core: Core, now: Instant, lease: LentLease) -> None:
    """End a lease that was passed on if it cannot go on. Report its end if the other site does not know it any more."""
    if lease.beyond is None:
        return
    ours = core.leases.borrowed_for(lease)
    if ours is None or ours.state.ended:
        until = now if lease.ends_at is None else min(now, lease.ends_at)
        since = until if lease.bound_at is None else lease.bound_at
        note_end(core, now, lease, lease.processors * max(0, until - since), lease.why or _LOST)
    elif (why := _why_ended(core, now, lease)) is not None:
        end(core, now, lease, why)


def _why_ended(core: Core, now: Instant, lease: LentLease) -> Reason | None:
    lend = core.settings.lend
    if lease.state.closing:
        return None
    if lease.why is not None and lease.revoked_until is not None and now >= lease.revoked_until:
        return lease.why
    if lease.state.binding and now >= _bound_by(lease):
        message = f"Its batch job did not start within {format_duration(BINDING)}, or its nodes did not answer."
        return Reason("binding_timeout", "transient", message, "It is asked again.")
    apart = core.neighbours.apart_since.get(lease.neighbour)
    lost_after = LOST_AFTER if lend is None else lend.lost_after
    if apart is not None and now >= apart + lost_after:
        message = f"The borrower was out of reach for {format_duration(lost_after)}."
        return Reason("borrower_lost", "transient", message, "")
    return None


def _bound_by(lease: LentLease) -> Instant:
    return min(Instant(lease.asked_at + BINDING), lease.asked.answer_by)


def _note_pilot_end(core: Core, now: Instant, lease: LentLease, job: Job | None) -> None:
    reason = Reason("lease_ended", "cluster", "Its time has ended.", "")
    if job is not None and job.reason is not None:
        reason = job.reason
    note_end(core, now, lease, accounts.measured(now, lease), reason)


def note_end(core: Core, now: Instant, lease: LentLease, charge: int, reason: Reason) -> None:
    """Report the end of a lease to its borrower, who is charged; one that was never bound was a rejected request."""
    if lease.bound_at is None and not charge:
        shown = _NO_ISOLATION if reason.code == _NO_ISOLATION.code else reason  # no node's name
        refuse(core, now, lease, shown)
        return
    core.leases.drop(lease)
    accounts.close_lent(core, now, lease, charge, reason)
    core.records.command(EndLease(neighbour=lease.neighbour, lease=lease.number, charge=charge, reason=reason))


def refuse(core: Core, now: Instant, lease: LentLease, reason: Reason) -> None:
    """Reject a request that has a record."""
    core.leases.drop(lease)
    reject(core, now, lease.neighbour, lease.number, reason)


def reject(core: Core, now: Instant, neighbour: str, number: int, reason: Reason) -> None:
    """Reject a request, with the processors that could be had now."""
    most = free_for(core, now, neighbour)
    if reason.code != _RETURNED.code:
        counts.refused_here(core, neighbour, reason)
    core.records.command(RejectRequest(neighbour=neighbour, lease=number, reason=reason, processors=most))
    core.neighbours.change(neighbour, sent_free=most)
