"""The neighbours of a live site: they join and leave, are connected and lost, and report what they lend.

Sites report free processors to each other (SC'07, section 4.3), so that requests go where they may be served.
"""

from koalapy.core.core import Core
from koalapy.model.commands import ReportFree
from koalapy.model.errors import Reason
from koalapy.model.events import LeaseEndRequested, NeighbourConnected, NeighbourJoined, NeighbourLeft, NeighbourLost
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.sites import borrowing, counts, lending, receiving, revoking, sending
from koalapy.sites.borrowing import POLL_EVERY
from koalapy.sites.returning import give_back

REPORT_EVERY = Duration(10 * SECOND)  # at most: a busy grid changes at each poll
_REMOVED = Reason("neighbour_removed", "request", "The borrower is no neighbour any more.", "")
_LENDER_REMOVED = Reason("neighbour_removed", "request", "The lender is no neighbour any more.", "")
_LENDER_FORGOT = Reason("lender_forgot", "transient", "The lender has a new store, and knows nothing of it.", "")
_SENDER_REMOVED = Reason("sender_removed", "request", "The site that sent it is no neighbour any more.", "")
_SENDER_FORGOT = Reason(
    "sender_forgot", "transient", "The site that sent it has a new store, and knows nothing of it.", ""
)
_NEW_STORE = Reason("borrower_forgot", "transient", "The borrower has a new store, and knows nothing of it.", "")


def on_joined(core: Core, now: Instant, event: NeighbourJoined) -> None:
    """Keep a record of the neighbour, or change its relation."""
    known = core.neighbours.records.get(event.neighbour)
    if known is None:
        core.neighbours.put(Neighbour(name=event.neighbour, relation=event.relation))
    elif known.relation is not event.relation:
        core.neighbours.change(event.neighbour, relation=event.relation)


def on_left(core: Core, now: Instant, event: NeighbourLeft) -> None:
    """Forget the neighbour. What it had of this site ends; what this site had of it is lost with its cluster."""
    lending.end_all(core, now, event.neighbour, _REMOVED)
    borrowing.end_all(core, now, event.neighbour, _LENDER_REMOVED)
    receiving.cancel_all(core, now, event.neighbour, _SENDER_REMOVED)
    sending.on_site_left(core, now, event.neighbour, has_forgotten=False)
    for lease in core.leases.borrowed_of(event.neighbour):
        core.leases.drop(lease)
    core.neighbours.remove(event.neighbour)


def on_connected(core: Core, now: Instant, event: NeighbourConnected) -> None:
    """Note the session. A store that is new at the neighbour has sent nothing yet, and knows nothing of this site."""
    neighbours = core.neighbours
    neighbours.connected[event.neighbour] = None
    neighbours.apart_since.pop(event.neighbour, None)
    before = neighbours.records[event.neighbour].instance
    if before != event.instance:
        if before:
            lending.end_all(core, now, event.neighbour, _NEW_STORE)
            borrowing.end_all(core, now, event.neighbour, _LENDER_FORGOT)
            receiving.cancel_all(core, now, event.neighbour, _SENDER_FORGOT)
            sending.on_site_left(core, now, event.neighbour, has_forgotten=True)
        neighbours.change(
            event.neighbour, instance=event.instance, received=0, free=None, reported_at=None, sent_free=None
        )
    neighbours.report_at = now


def on_lost(core: Core, now: Instant, event: NeighbourLost) -> None:
    core.neighbours.connected.pop(event.neighbour, None)
    counts.session_lost(core, event.neighbour, event.reason)


def on_free_reported(core: Core, now: Instant, event: ReportFree) -> None:
    core.neighbours.change(event.neighbour, free=event.processors, reported_at=now)


def on_end_requested(core: Core, now: Instant, event: LeaseEndRequested) -> None:
    """Take a lent lease back, or return a borrowed one; one that was passed on is both. One that has ended stays so."""
    key = event.neighbour, event.lease
    borrowed = None if event.lent else core.leases.borrowed.get(key)
    lent = core.leases.lent.get(key) if borrowed is None else core.leases.lent_on(borrowed)
    if lent is not None:
        revoking.take_back(core, now, lent, event.reason, event.at_once)
    elif borrowed is not None:
        give_back(core, now, borrowed)


def step(core: Core, now: Instant) -> bool:
    """Follow the leases both ways, and ask for jobs that wait. Send jobs, and report what may be had here.

    It is due in each batch while there are neighbours.
    """
    neighbours = core.neighbours
    receiving.step(core, now)
    if not neighbours.records:
        return False
    for lease in core.leases.all():
        if lease.neighbour not in neighbours.connected:
            neighbours.apart_since.setdefault(lease.neighbour, now)
    lending.step(core, now)
    borrowing.step(core, now)
    sending.step(core, now)
    _report_free(core, now)
    waits = core.queue.order or neighbours.lacking_since
    asks = core.settings.borrow is not None and waits and neighbours.connected
    neighbours.look_at = Instant(now + POLL_EVERY) if core.leases.all() or asks else None
    return True


def _report_free(core: Core, now: Instant) -> None:
    """Report what they could get here now to the connected neighbours that have another number.

    It does so every ten seconds at most, and at once to a neighbour that has just been connected.
    """
    neighbours = core.neighbours
    if not neighbours.connected or (neighbours.report_at is not None and now < neighbours.report_at):
        return
    outdated = {}
    for name in neighbours.connected:
        most = lending.free_for(core, now, name)
        if neighbours.records[name].sent_free != most:
            outdated[name] = most
    for name, most in outdated.items():
        core.records.command(ReportFree(neighbour=name, processors=most))
        neighbours.change(name, sent_free=most)
    neighbours.report_at = Instant(now + REPORT_EVERY) if outdated else None


def wakeup(core: Core) -> Instant | None:
    """Return when `step` may have something to do again; None if only an event leads to that."""
    neighbours = core.neighbours
    received = receiving.wakeup(core)
    if not neighbours.records:
        return received
    report_at = neighbours.report_at if neighbours.connected else None
    moments = [neighbours.look_at, neighbours.match_at, report_at, received]
    return min([each for each in moments if each is not None], default=None)
