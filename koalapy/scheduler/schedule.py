"""The scheduling pass (DCS, section 3.2): who of the wait queue is claimed for now, who fails, who was overtaken."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from koalapy.broker.answers import Answers
from koalapy.broker.broker import Allocation, PolicyFailed, shortest_queue
from koalapy.broker.fit import lacks
from koalapy.broker.patience import excluded, queues_since
from koalapy.broker.room import Room
from koalapy.core.wait_queue import Place, Waiting, WaitQueue
from koalapy.information.kis import View
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.evolve import quick
from koalapy.model.identity import JobId
from koalapy.model.request import Request
from koalapy.model.settings import Settings
from koalapy.model.units import Instant
from koalapy.policies.placement import PlacementPolicy
from koalapy.policies.queueing import QueueingPolicy
from koalapy.scheduler.ahead import Ahead, Overtaken


@dataclass(frozen=True, slots=True)
class Policies:
    """The registered policies that the grid file chose."""

    placement: PlacementPolicy
    queueing: QueueingPolicy


@quick
@dataclass(frozen=True, slots=True)
class Claim:
    """Take these clusters for the job. `patient`: it goes into batch queues, not on idle processors."""

    job: JobId
    allocation: Allocation
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """No retry can mend it."""

    job: JobId
    reason: Reason


Decision = Claim | Reject | Overtaken


@dataclass(frozen=True, slots=True)
class Pass:
    """`left`: the room if all is carried out. `end`: where the queueing policy said no, None if it never did.

    `settled`: whoever is still there has been refused in the room that is left: nobody has passed anybody.
    """

    decisions: list[Decision]
    left: Room
    end: Place | None
    settled: bool


def schedule(
    now: Instant,
    queue: WaitQueue,
    room: Room,
    answers: Answers,
    settings: Settings,
    policy: QueueingPolicy,
    since: Place | None = None,
    newest: JobId | None = None,
) -> Pass:
    """One pass over the wait queue, head first. A job that does not fit keeps its place and counts nothing.

    Only jobs are looked at of which something can be decided, and only those at the place `since` or behind it, where
    one is given. The queueing policy is asked before each of them, with all that is nearer to the head; once it has
    said no, it would say no of whoever comes after.

    A job whose clusters are out of reach, or too small for it while nodes are down, is passed freely under any policy
    that lets jobs pass: it does not wait for processors that a passing job would take.

    Jobs up to `newest` were there when koalad started. They do not fail for a size that a cluster has shown only since.
    """
    queue.pass_time(Instant(now - settings.queue_after))
    queue.doubt(room.sizes)
    decisions: list[Decision] = []
    ahead = Ahead(queue, partial(_stalled, now, room=room, answers=answers))
    end: Place | None = None
    for waiting in queue.worth_a_look(room.most_idle, room.most_backlog, since):
        doubted = queue.doubts(waiting.place)
        if not (doubted or room.may_take(waiting.need) or _may_queue(now, waiting, room, settings)):
            continue
        ahead.come_to(waiting.place)
        if not policy(ahead, settings.max_overtakes):
            end = waiting.place
            break
        decision = _decide(now, waiting, room, answers, settings, doubted, newest)
        if decision is None:
            continue
        if isinstance(decision, Claim):
            room = room.after(decision.allocation, waiting.job.request, decision.patient)
            ahead.overtake()
        ahead.leave_out(waiting.place)
        decisions.append(decision)
    queue.trust(end)
    overtaken = ahead.overtaken
    return Pass([*decisions, *overtaken], room, end, settled=not overtaken)


def _decide(
    now: Instant,
    waiting: Waiting,
    room: Room,
    answers: Answers,
    settings: Settings,
    doubted: bool,
    newest: JobId | None,
) -> Decision | None:
    job, shape = waiting.job, waiting.shape
    without = excluded(now, job)
    allocation = answers.place(job.request, shape, room, without) if room.may_take(waiting.need) else None
    if isinstance(allocation, PolicyFailed):
        return Reject(job.id, allocation.reason)
    if allocation is not None:
        return Claim(job.id, allocation)
    if doubted and answers.never_fits(job.request, shape, room, anew=newest is None or job.id > newest):
        return Reject(job.id, too_large(job.request, room.views))
    if not _may_queue(now, waiting, room, settings):
        return None
    allocation = shortest_queue(job.request, room.views, without)
    return Claim(job.id, allocation, patient=True) if allocation is not None else None


def _may_queue(now: Instant, waiting: Waiting, room: Room, settings: Settings) -> bool:
    """Whether it is patient by now, and some batch queue would take its largest component."""
    since = queues_since(waiting.job, settings)
    return since is not None and now >= since and waiting.need.largest <= room.most_backlog


def _stalled(now: Instant, waiting: Waiting, room: Room, answers: Answers) -> bool:
    """Whether what it needs cannot be used now: a named cluster is in trouble or left out, none is usable at all, or
    all are usable, and too small for it.
    """
    job = waiting.job
    without = excluded(now, job)
    if all(name in without for name in room.usable):
        return True
    named = (component.cluster for component in job.request.components if not component.optional)
    if any(name is not None and (name not in room.usable or name in without) for name in named):
        return True
    return answers.too_small(job.request, waiting.shape, room)


def _smaller(request: Request, views: Sequence[View]) -> str:
    """Splitting a component helps only where the sum fits the grid."""
    if request.processors > sum((view.whole or view.size)[0] for view in views):
        return "Ask for fewer processors: the whole grid has not as many."
    return "Ask for fewer processors, or split it into more components."


def too_large(request: Request, views: Sequence[View]) -> Reason:
    """Why a job fails that never fits."""
    sizes = ", ".join(f"{view.name} has {(view.whole or view.size)[0]}" for view in views)
    found = [each for each in lacks(dict(enumerate(request.components)), views) if each.reason.code == "too_large"]
    asked = " + ".join(str(component.processors) for component in request.components)
    which = f"component {found[0].component}" if found else "the job"
    return Reason(
        "too_large",
        "request",
        f"{which[0].upper()}{which[1:]} never fits: the job asks for {counted_as(asked, 'processor')}; {sizes}.",
        _smaller(request, views),
    )
