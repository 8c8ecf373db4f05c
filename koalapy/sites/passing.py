"""A site between two others: it passes a neighbour's request on, and answers with what the next site answers.

It has a lease of the one neighbour, and lends it to the other one; each record names the other. It charges and is
charged in its own books. What it borrows so is no cluster here.
"""

from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.commands import DelegateRequest, OfferLease, RevokeLease
from koalapy.model.errors import Reason
from koalapy.model.lease import BorrowedLease, LentLease
from koalapy.model.states import LeaseState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.sites import counts, lending
from koalapy.sites.returning import give_back
from koalapy.sites.targets import borrowed_processors, next_target

_HOP = Duration(15 * SECOND)  # by which the next site has to answer earlier than this one
_SHORTEST_WAIT = Duration(30 * SECOND)  # for an answer; with less time, nobody is asked


def pass_on(core: Core, now: Instant, lease: LentLease) -> bool:
    """Ask the next neighbour for a neighbour's request (SC'07, section 4.3). False: there is none to ask.

    Each link takes one off its DTTL. Neither the sender nor the first site is asked, and none that has rejected it.
    """
    asked, lend, borrow = lease.asked, core.settings.lend, core.settings.borrow
    if lend is None or not lend.pass_on or asked.dttl < 1:
        return False
    within, want = Duration(asked.answer_by - _HOP - now), asked.want
    if lending.why_closed(core, now, lend, want.walltime) is not None:
        return False
    most = None if borrow is None else borrow.processors
    if within < _SHORTEST_WAIT or want.processors > lending.left_to_lend(core):
        return False
    if most is not None and borrowed_processors(core) + want.processors > most:
        return False
    target, _ = next_target(core, want.processors, {lease.neighbour, asked.origin.site, *asked.rejected_by})
    if target is None:
        return False
    number = core.neighbours.records[target].next_lease
    core.records.command(
        DelegateRequest(
            neighbour=target, lease=number, processors=want.processors, walltime=want.walltime, origin=asked.origin,
            dttl=asked.dttl - 1, within=within, processors_per_node=want.processors_per_node, memory=want.memory,
            user=lease.user, name=lease.name, launchers=want.launchers, unisolated=want.unisolated,
            executables=want.executables,
        )
    )  # fmt: skip
    core.neighbours.change(target, next_lease=number + 1)
    core.neighbours.asked += 1
    counts.asked(core, target)
    ours = BorrowedLease(
        neighbour=target, number=number, processors=want.processors, state=LeaseState.ASKED, asked_at=now,
        beyond=(lease.neighbour, lease.number), origin=asked.origin, user=lease.user, name=lease.name,
    )  # fmt: skip
    core.leases.add(ours)
    core.leases.change(lease, beyond=(target, number))
    return True


def rejected(core: Core, now: Instant, ours: BorrowedLease, reason: Reason) -> None:
    """Ask the next neighbour, or reject the request here too. `ours`: what was asked of the one that has rejected."""
    core.leases.drop(ours)
    lent = core.leases.lent_on(ours)
    if lent is None:
        return
    known = (*lent.asked.rejected_by, ours.neighbour)
    again = core.leases.change(lent, beyond=None, asked=replace(lent.asked, rejected_by=known))
    if not lent.state.asked or not pass_on(core, now, again):
        lending.refuse(core, now, again, lent.why or _of(ours, reason))


def offered(core: Core, now: Instant, ours: BorrowedLease, lasts: Duration, event: OfferLease) -> None:
    """Take the lease, and offer it to the neighbour that asked for it. One that it does not want goes back."""
    changes = {"bound_at": now, "ends_at": Instant(now + lasts), "length": event.length}
    bound = core.leases.change(ours, state=LeaseState.BOUND, **changes)
    lent = core.leases.lent_on(ours)
    if lent is None or not lent.state.asked:
        give_back(core, now, bound)
        return
    core.leases.change(lent, state=LeaseState.BOUND, **changes)
    counts.granted_here(core, lent.neighbour)
    _offer(core, lent, lasts, event)


def offered_late(core: Core, ours: BorrowedLease, event: OfferLease) -> None:
    """Let the neighbour know of a lease that was bound before its cancellation came there: it will be charged for."""
    if (lent := core.leases.lent_on(ours)) is not None:
        _offer(core, lent, Duration(0), event)


def _offer(core: Core, lent: LentLease, lasts: Duration, event: OfferLease) -> None:
    offer = OfferLease(
        neighbour=lent.neighbour, lease=lent.number, lasts=lasts, length=event.length + 1, isolation=event.isolation
    )  # fmt: skip
    core.records.command(offer)


def revoked(core: Core, now: Instant, ours: BorrowedLease, within: Duration) -> None:
    """Give the neighbour that has the lease the notice of the site that it is of."""
    until = Instant(now + within)
    core.leases.change(ours, revoked_until=until)
    lent = core.leases.lent_on(ours)
    if lent is not None and lent.state.bound:
        core.leases.change(lent, revoked_until=until)
        core.records.command(RevokeLease(neighbour=lent.neighbour, lease=lent.number, within=within))


def ended(core: Core, now: Instant, ours: BorrowedLease, charge: int, reason: Reason) -> None:
    """Report the end of the lease, and its charge, to the neighbour that had it."""
    core.leases.drop(core.leases.change(ours, state=LeaseState.ENDED))
    if (lent := core.leases.lent_on(ours)) is not None:
        lending.note_end(core, now, lent, charge, lent.why or reason)


def no_answer(core: Core, now: Instant, ours: BorrowedLease, reason: Reason) -> None:
    """Take a request back that was passed on, once the time for its answer is over, or nobody wants it any more."""
    lent = core.leases.lent_on(ours)
    is_wanted = lent is not None and lent.state.asked
    if lent is not None and is_wanted and now < lent.asked.answer_by - _HOP:
        return
    give_back(core, now, ours)
    if lent is not None and is_wanted:
        counts.refused(core, ours.neighbour, reason)
        lending.refuse(core, now, lent, _of(ours, reason))


def _of(ours: BorrowedLease, reason: Reason) -> Reason:
    """Return a neighbour's reason as this site reports it."""
    return replace(reason, message=f"{ours.neighbour}: {reason.message}")
