"""The lender takes leases back for the jobs of its own people: the youngest first, and no more than those jobs need.

The borrower is given a grace, in which its jobs go back to their places in its queue. A lease ends at its end at the
latest, and before if the borrower has returned it.
"""

from collections.abc import Iterator, Sequence

from koalapy.core.core import Core
from koalapy.information.kis import ClusterSummary
from koalapy.model.commands import RevokeLease
from koalapy.model.errors import Reason
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.lease import REVOKE_GRACE, Lend, LentLease, RevokeFor, holds_lease
from koalapy.model.units import Duration, Instant
from koalapy.scheduler import vacating
from koalapy.scheduler.schedule import Policies
from koalapy.sites import lending

_MOST_JOBS = 20  # at the head of the queue, for which leases are taken back
_OUT_OF_HOURS = Reason("closed", "transient", "Its lender does not lend at this hour.", "")
_REVOKED = Reason("revoked", "transient", "Its lender's own jobs need the processors.", "")


def step(core: Core, now: Instant, policies: Policies) -> None:
    """Take back the leases that this site's own waiting jobs need, and those that local jobs need."""
    lend = core.settings.lend
    if lend is None:
        return
    if lend.hours and not lending.is_open(core, now, lend):
        _revoke_all(core, now, lend)
    if lend.revoke_for is RevokeFor.NOBODY:
        return
    held = list(_held(core))
    if all(_is_going(lease) for lease, _ in held):
        return
    if lend.revoke_for is RevokeFor.LOCAL:
        for cluster in core.information.summaries(now):
            there = [each for each in held if _cluster_of(each[1]) == cluster.name]
            if there and (short := _processors_short(core, cluster)) > 0:
                _revoke_for_local(core, now, lend, there, short)
    if core.queue.order and _is_news(core, now, held):
        _revoke_for_own(core, now, lend, policies)


def _is_news(core: Core, now: Instant, held: Sequence[tuple[LentLease, Job]]) -> bool:
    """Return whether something has changed since the last look at what waiting jobs need.

    A measurement of a cluster with leases counts in any case, so that a look is at most a poll late.
    """
    known = core.information.clusters
    states = [known[each].state for each in sorted({_cluster_of(job) for _, job in held}) if each in known]
    look = (
        core.information.refresh(now),
        tuple(core.queue.order[:_MOST_JOBS]),
        tuple([(job.id, lease.state, _is_going(lease)) for lease, job in held]),
        tuple([None if state is None else state.measured_at for state in states]),
    )
    before, core.neighbours.looked_at = core.neighbours.looked_at, look
    return look != before


def _cluster_of(job: Job) -> str:
    return job.request.components[0].cluster or ""


def _held(core: Core) -> Iterator[tuple[LentLease, Job]]:
    """Yield the leases of this site's own processors that are not being ended, each with the job of its pilot."""
    for lease in core.leases.lent.values():
        job = None if lease.job is None else core.records.jobs.get(lease.job)
        if job is not None and job.state.active and not job.state.stopping and not lease.state.closing:
            yield lease, job


def _is_going(lease: LentLease) -> bool:
    return lease.revoked_until is not None


def _revoke_all(core: Core, now: Instant, lend: Lend) -> None:
    """Revoke the leases that have outlasted the hours of lending: these were changed, or the leases began late."""
    for lease in list(core.leases.lent.values()):
        if lease.state.granted and not _is_going(lease):
            job = None if lease.job is None else core.records.jobs.get(lease.job)
            if job is not None:
                core.records.note(
                    now, job.id, HistoryKind.LEASE_OUT_OF_HOURS, site=lease.neighbour, processors=lease.processors
                )
            _give_notice(core, now, lend.grace, lease, _OUT_OF_HOURS)


def _revoke_for_own(core: Core, now: Instant, lend: Lend, policies: Policies) -> None:
    """Revoke what the first waiting job needs that would start without some of the leases."""
    for position in core.queue.order[:_MOST_JOBS]:
        waiting = core.queue.at(position)
        if holds_lease(waiting.job.request):
            continue
        held = sorted(_held(core), key=lambda each: (not _is_going(each[0]), -each[1].id))
        needed = vacating.jobs_in_the_way(core, now, waiting, policies, [job for _, job in held])
        if needed is None:
            continue
        for lease, job in held:
            if job.id in needed and not _is_going(lease):
                _revoke(core, now, lend, lease, waiting.job.id)
        return


def _revoke_for_local(core: Core, now: Instant, lend: Lend, there: Sequence[tuple[LentLease, Job]], short: int) -> None:
    """Revoke leases of one cluster until `short` processors more are idle there."""
    short -= sum(lease.processors for lease, _ in there if _is_going(lease))
    for lease, _ in sorted(there, key=lambda each: -each[1].id):
        if short > 0 and not _is_going(lease):
            _revoke(core, now, lend, lease, None)
            short -= lease.processors


def _processors_short(core: Core, cluster: ClusterSummary) -> int:
    """Return the processors that local jobs want on a cluster beyond those that are idle, or soon are.

    Those of sweeps count as idle: a sweep gives them up before a lease is taken back.
    """
    state = cluster.state
    if state is None or not state.wanted_local:
        return 0
    there = core.records.live(cluster.name)
    leaving = sum(each.processors for each in there if each.cancelling and each.launcher is None)
    ended = core.information.commitments.ended_on(cluster.name)
    return max(0, state.wanted_local - (state.idle - cluster.committed + ended + leaving))


def _revoke(core: Core, now: Instant, lend: Lend, lease: LentLease, job: JobId | None) -> None:
    """Revoke a lease for one of this site's jobs, or for local jobs."""
    pilot = lease.job
    assert pilot is not None, "one that is passed on is not taken back for jobs"
    whom = {} if job is None else {"needed_by": job}
    core.records.note(now, pilot, HistoryKind.LEASE_REVOKED, site=lease.neighbour, processors=lease.processors, **whom)
    if job is not None:
        core.records.note(now, job, HistoryKind.LEASE_NEEDED, site=lease.neighbour, processors=lease.processors)
    _give_notice(core, now, lend.grace, lease, _REVOKED)


def take_back(core: Core, now: Instant, lease: LentLease, why: Reason, at_once: bool) -> None:
    """Take a lease back for a person. The borrower has the grace for its jobs, or if `at_once` no time."""
    lend = core.settings.lend
    grace = Duration(0) if at_once else REVOKE_GRACE if lend is None else lend.grace
    if not lease.state.bound:
        lending.end(core, now, lease, why)
    elif grace < 1 or not _is_going(lease):
        _give_notice(core, now, grace, lease, why)


def _give_notice(core: Core, now: Instant, grace: Duration, lease: LentLease, why: Reason) -> None:
    """Let the borrower know that a lease ends once its grace is over. One that is not bound yet ends at once."""
    grace = grace if lease.state.bound else Duration(0)
    if lease.state.bound:
        core.records.command(RevokeLease(neighbour=lease.neighbour, lease=lease.number, within=grace))
    revoked = core.leases.change(lease, revoked_until=Instant(now + grace), why=why)
    if not grace:
        lending.end(core, now, revoked, why)
