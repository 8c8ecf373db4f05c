"""The requests of neighbours: each is served here, passed on to another neighbour, or rejected (SC'07, section 4.3)."""

from collections import deque
from functools import partial

from koalapy.core.core import Core
from koalapy.model.commands import DelegateRequest
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.isolated import why_not_isolated
from koalapy.model.lease import MOST_EXECUTABLES, Asked, LentLease, Origin, SeenRequest, Wanted, too_long
from koalapy.model.request import Isolate
from koalapy.model.states import LeaseState
from koalapy.model.units import HOUR, MINUTE, Duration, Instant
from koalapy.policies import call_policy, dispatching
from koalapy.policies.dispatching import NeighboursRequest
from koalapy.sites import counts, lending, passing

ANSWER_WITHIN = Duration(4 * MINUTE)  # longer than a lender may take to bind
_REMEMBERED_FOR = HOUR
_MOST_REMEMBERED = 10_000
_MISBEHAVIOUR = ("too_often", "bad_request")
_LONGEST_NAME = 255  # of a user or job, as the neighbour reports it
_MOST_UNDECIDED = 100  # of one neighbour
_SEEN = Reason("seen", "transient", "It has had this request already, by another way.", "")
_STRANGER = Reason("stranger", "request", "It lends nothing to sites that it does not know.", "Ask its people.")
_TOO_MANY = Reason("too_many", "transient", "It has too many requests of this site.", "It is asked again.")
_ISOLATED = Reason("isolated", "request", "It isolates programs, and this one cannot run isolated.", "")
_NO_LAUNCHERS = Reason(
    "no_launchers", "request", "It isolates programs, and a Launcher of a sweep cannot be isolated.", ""
)
_NO_TIME = Reason("no_time", "transient", "There was no time left to answer.", "It is asked again.")


def on_delegated(core: Core, now: Instant, event: DelegateRequest) -> None:
    """Keep the request for the next cycle, or reject it. One that is known was repeated."""
    neighbours, rules = core.neighbours, core.settings.delegation
    if (event.neighbour, event.lease) in core.leases.lent:
        return
    counts.asked_here(core, event.neighbour)
    reason = _objection(core, now, event)
    if reason is not None:
        if reason.code in _MISBEHAVIOUR:
            counts.misbehaved(core, event.neighbour, reason.code)
        lending.reject(core, now, event.neighbour, event.lease, reason)
        return
    want = Wanted(
        processors=event.processors, walltime=event.walltime, processors_per_node=event.processors_per_node,
        memory=event.memory, launchers=event.launchers, unisolated=event.unisolated, executables=event.executables,
    )  # fmt: skip
    within = min(event.within, ANSWER_WITHIN)
    asked = Asked(
        origin=event.origin, want=want, dttl=min(event.dttl, rules.dttl), answer_by=Instant(now + within)
    )  # fmt: skip
    lease = LentLease(
        neighbour=event.neighbour, number=event.lease, processors=event.processors, state=LeaseState.ASKED,
        asked_at=now, asked=asked, user=event.user[:_LONGEST_NAME], name=event.name[:_LONGEST_NAME],
    )  # fmt: skip
    core.leases.add(lease)
    if neighbours.match_at is None:
        neighbours.match_at = Instant(now + rules.interval)


def step(core: Core, now: Instant) -> bool:
    """Serve the requests that wait, if their cycle is due: in the order of the policy, each once.

    It is due in each batch while there are lent leases.
    """
    neighbours, lent = core.neighbours, core.leases.lent
    waiting = [each for each in lent.values() if each.is_undecided]
    if not waiting or neighbours.match_at is None or now >= neighbours.match_at:
        neighbours.match_at = None
        _serve(core, now, waiting)
    return bool(lent)


def _serve(core: Core, now: Instant, waiting: list[LentLease]) -> None:
    for lease in _in_order(core, waiting):
        reason = _NO_TIME if now >= lease.asked.answer_by else None
        reason = reason or _why_not_isolated(core, lease) or lending.serve(core, now, lease)
        if reason is not None and not passing.pass_on(core, now, lease):
            lending.refuse(core, now, lease, reason)


def _why_not_isolated(core: Core, lease: LentLease) -> Reason | None:
    """Return why what a lease is wanted for cannot run on this site's own nodes, if these isolate programs."""
    lend = core.settings.lend
    if lend is None or lend.isolate is Isolate.NONE:
        return None
    want = lease.asked.want
    if want.launchers:
        return _NO_LAUNCHERS
    shown = all(why_not_isolated(each, lend.visible) is None for each in want.executables)
    known = len(want.executables) <= MOST_EXECUTABLES
    return None if shown and known and not want.unisolated else _ISOLATED


def _objection(core: Core, now: Instant, event: DelegateRequest) -> Reason | None:
    """Return why the request is not considered at all; None if it is."""
    lend, origin = core.settings.lend, event.origin
    if lend is None or event.neighbour not in lend.to:
        return lending.NOT_LENT
    most = lend.requests_per_minute
    if _is_too_often(core, now, event.neighbour, most):
        return Reason(
            "too_often",
            "transient",
            f"It takes {counted_as(most, 'request')} of this site a minute.",
            "It is asked again.",
        )
    if origin.site != event.neighbour and not lend.strangers:
        return _STRANGER
    if event.walltime > lend.walltime:
        return too_long(lend.walltime, event.walltime)
    if lending.is_nothing(event.processors, event.walltime):
        return Reason("bad_request", "request", "It asks for nothing that can be lent.", "")
    if sum(each.is_undecided for each in core.leases.lent_to(event.neighbour)) >= _MOST_UNDECIDED:
        return _TOO_MANY
    return _SEEN if _is_seen(core, now, origin) else None


def _is_too_often(core: Core, now: Instant, neighbour: str, most: int) -> bool:
    """Count a request. Return whether so many of the neighbour's requests were taken in the minute before it."""
    came = core.neighbours.came_at.setdefault(neighbour, deque())
    while came and now - came[0] >= MINUTE:
        came.popleft()
    if len(came) >= most:
        return True
    came.append(now)
    return False


def _is_seen(core: Core, now: Instant, origin: Origin) -> bool:
    """Note the request. Return whether it is known from the past hour, or is here now, by whatever way it came."""
    seen = core.neighbours.seen
    while seen and (len(seen) >= _MOST_REMEMBERED or now - next(iter(seen.values())) >= _REMEMBERED_FOR):
        core.records.forget_request(oldest := next(iter(seen)))
        del seen[oldest]
    here = any(each.origin == origin for each in core.leases.lent.values())
    known = here or origin in seen
    if origin not in seen:
        seen[origin] = now
        core.records.see_request(SeenRequest(origin, now))
    return known


def _in_order(core: Core, waiting: list[LentLease]) -> list[LentLease]:
    """Return the requests in the order of the policy; first come, first served, if it fails."""
    lent = {each.neighbour: lending.lent_to(core, each.neighbour) for each in waiting}
    by_age = sorted(waiting, key=lambda each: each.asked_at)
    shown = [
        NeighboursRequest(each.processors, at, each.neighbour, lent[each.neighbour]) for at, each in enumerate(by_age)
    ]
    policy = core.neighbours.policies.dispatching
    ordered, _ = call_policy(partial(sorted, shown, key=policy), lambda found: "", sorted(shown, key=dispatching.fcfs))
    return [by_age[each.arrival] for each in ordered]
