"""A site between two others: it passes a neighbour's request on, and answers with what the next site answers.

It has a lease of the one neighbour, and lends it to the other one; each record names the other. It charges and is
charged in its own books. What it borrows so is no cluster here.
"""

from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.commands import DelegateRequest, OfferLease, RevokeLease
from koalapy.model.errors import Reason
from koalapy.model.events import LeaseOffered
from koalapy.model.lease import Lease, LeaseState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.sites import counts, lending
from koalapy.sites.returning import give_back
from koalapy.sites.targets import borrowed_processors, next_target

_HOP = Duration(15 * SECOND)  # by which the next site has to answer earlier than this one
_SHORTEST_WAIT = Duration(30 * SECOND)  # for an answer; with less time, nobody is asked


def pass_on(core: Core, now: Instant, neighbour: str, lease: Lease) -> bool:
    """Ask the next neighbour for a neighbour's request (SC'07, section 4.3). False: there is none to ask.

    Each link takes one off its DTTL. Neither the sender nor the first site is asked, and none that has rejected it.
    """
    asked, lend, borrow = lease.asked, core.settings.lend, core.settings.borrow
    if asked is None or lend is None or not lend.pass_on or asked.dttl < 1:
        return False
    within, want = Duration(asked.answer_by - _HOP - now), asked.want
    if lending.why_closed(core, now, lend, want.walltime) is not None:
        return False
    most = None if borrow is None else borrow.processors
    if within < _SHORTEST_WAIT or want.processors > lending.left_to_lend(core):
        return False
    if most is not None and borrowed_processors(core) + want.processors > most:
        return False
    target, _ = next_target(core, want.processors, {neighbour, asked.origin.site, *asked.rejected_by})
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
    ours = Lease(
        number=number, lent=False, job=None, processors=want.processors, state=LeaseState.ASKED, asked_at=now,
        beyond=(neighbour, lease.number), asked=asked, user=lease.user, name=lease.name,
    )  # fmt: skip
    core.neighbours.put_lease(target, ours)
    core.neighbours.put_lease(neighbour, replace(lease, beyond=(target, number)))
    return True


def rejected(core: Core, now: Instant, neighbour: str, ours: Lease, reason: Reason) -> None:
    """Ask the next neighbour, or reject the request here too. `ours`: what was asked of the one that has rejected."""
    core.neighbours.drop_lease(neighbour, ours)
    name, lent = _lent(core, ours)
    if lent is None or lent.asked is None:
        return
    known = (*lent.asked.rejected_by, neighbour)
    again = replace(lent, beyond=None, asked=replace(lent.asked, rejected_by=known))
    core.neighbours.put_lease(name, again)
    if lent.state is LeaseState.ASKED and pass_on(core, now, name, again):
        return
    lending.refuse(core, now, name, again, lent.why or replace(reason, message=f"{neighbour}: {reason.message}"))


def offered(core: Core, now: Instant, neighbour: str, ours: Lease, lasts: Duration, event: LeaseOffered) -> None:
    """Take the lease, and offer it to the neighbour that asked for it. One that it does not want goes back."""
    ends_at, length = Instant(now + lasts), event.length
    bound = replace(ours, state=LeaseState.BOUND, bound_at=now, ends_at=ends_at, length=length)
    core.neighbours.put_lease(neighbour, bound)
    name, lent = _lent(core, ours)
    if lent is None or lent.state is not LeaseState.ASKED:
        give_back(core, now, neighbour, bound)
        return
    passed = replace(lent, state=LeaseState.BOUND, bound_at=now, ends_at=ends_at, length=length)
    core.neighbours.put_lease(name, passed)
    counts.granted_here(core, name)
    _offer(core, name, lent.number, lasts, event)


def offered_late(core: Core, ours: Lease, event: LeaseOffered) -> None:
    """Let the neighbour know of a lease that was bound before its cancellation came there: it will be charged for."""
    name, lent = _lent(core, ours)
    if lent is not None:
        _offer(core, name, lent.number, Duration(0), event)


def _offer(core: Core, neighbour: str, number: int, lasts: Duration, event: LeaseOffered) -> None:
    offer = OfferLease(
        neighbour=neighbour, lease=number, lasts=lasts, length=event.length + 1, isolation=event.isolation
    )  # fmt: skip
    core.records.command(offer)


def revoked(core: Core, now: Instant, neighbour: str, ours: Lease, within: Duration) -> None:
    """Give the neighbour that has the lease the notice of the site that it is of."""
    until = Instant(now + within)
    core.neighbours.put_lease(neighbour, replace(ours, revoked_until=until))
    name, lent = _lent(core, ours)
    if lent is not None and lent.state is LeaseState.BOUND:
        core.neighbours.put_lease(name, replace(lent, revoked_until=until))
        core.records.command(RevokeLease(neighbour=name, lease=lent.number, within=within))


def ended(core: Core, now: Instant, neighbour: str, ours: Lease, charge: int, reason: Reason) -> None:
    """Report the end of the lease, and its charge, to the neighbour that had it."""
    core.neighbours.drop_lease(neighbour, ours)
    name, lent = _lent(core, ours)
    if lent is not None:
        lending.note_over(core, now, name, lent, charge, lent.why or reason)


def no_answer(core: Core, now: Instant, neighbour: str, ours: Lease, reason: Reason) -> None:
    """Take a request back that was passed on, once the time for its answer is over, or nobody wants it any more."""
    name, lent = _lent(core, ours)
    wanted = lent is not None and lent.state is LeaseState.ASKED
    if wanted and lent is not None and lent.asked is not None and now < lent.asked.answer_by - _HOP:
        return
    give_back(core, now, neighbour, ours)
    if wanted and lent is not None:
        counts.refused(core, neighbour, reason)
        lending.refuse(core, now, name, lent, replace(reason, message=f"{neighbour}: {reason.message}"))


def _lent(core: Core, ours: Lease) -> tuple[str, Lease | None]:
    assert ours.beyond is not None
    name, number = ours.beyond
    return name, core.neighbours.lease(name, number, lent=True)
