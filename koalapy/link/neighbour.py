"""The conversation of koalad with the koalad of a neighbouring site: messages that arrive once and in order. Pure.

Messages leave by the outbox and keep its numbers. A side keeps what it has sent until the other side has committed it.
Each hello states what its sender has committed, and everything after that is sent again, in its order. So a cut
connection loses nothing, and the receiver recognises by the number what it has received before.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from koalapy_adapters.messages import PROTOCOL, from_json
from koalapy_adapters.messages.fields import MessageError

from koalapy.common.extras import need_matchmaker
from koalapy.driver.driver import Delivery
from koalapy.languages.mapping import job_mapping
from koalapy.languages.reading import from_mapping
from koalapy.link.conversation import Deliver
from koalapy.link.session import Accepted, Reaction, Refused
from koalapy.link.site_messages import (
    BODIES,
    SITE_PROTOCOL,
    FreeProcessors,
    JobChange,
    JobReport,
    JobSending,
    LeaseCancel,
    LeaseEnd,
    LeaseOffer,
    LeaseRejection,
    LeaseRequest,
    LeaseReturn,
    LeaseRevocation,
    SiteAcknowledge,
    SiteHello,
    SiteMessage,
    SitePing,
    SitePong,
    site_to_json,
)
from koalapy.model.commands import (
    CancelRequest,
    ChangeSentJob,
    DelegateRequest,
    EndLease,
    NeighbourCommand,
    OfferLease,
    RejectRequest,
    ReportFree,
    ReportReceivedJob,
    ReturnLease,
    RevokeLease,
    SendJob,
)
from koalapy.model.errors import Reason, RequestError
from koalapy.model.events import (
    JobUnreadable,
    MessageReceived,
    NeighbourConnected,
    NeighbourEvent,
    NeighbourLost,
    NeighbourMessage,
)
from koalapy.model.identity import JobId, origin_of_site
from koalapy.model.lease import Origin
from koalapy.model.request import Request
from koalapy.model.sent import Sent, SentChange, why_not_sent
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant

MESSAGES_PER_SECOND = 100  # of one neighbour, in the long run
_BURST = 1000


class Outgoing:
    """The messages for one neighbour that it has not committed yet, over all sessions.

    `highest`: the greatest number that this site's store has given to any command so far. `count`: how many were put.
    """

    def __init__(self, highest: int) -> None:
        self.highest, self.count = highest, 0
        self._waiting: dict[int, NeighbourCommand] = {}

    def put(self, number: int, command: NeighbourCommand) -> bool:
        """Keep a message. Returns False if it is kept already. A report replaces an earlier one."""
        if number in self._waiting:
            return False
        if isinstance(command, ReportFree):
            self._waiting = {key: each for key, each in self._waiting.items() if not isinstance(each, ReportFree)}
        self._waiting[number] = command
        self.highest, self.count = max(self.highest, number), self.count + 1
        return True

    def committed(self, number: int) -> tuple[int, ...]:
        """Drop the messages up to this number. Returns their numbers."""
        found = tuple(each for each in self._waiting if each <= number)
        for each in found:
            del self._waiting[each]
        return found

    def all(self) -> list[tuple[int, NeighbourCommand]]:
        """Return the messages in the order of their numbers."""
        return sorted(self._waiting.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOpening:
    """The facts that one session with a neighbour begins with.

    `site`, `instance`, `version`: this site's name, its store's and koalapy's. `epoch`: higher than those of all
    sessions before it. `received_from`, `received`: see SiteHello.
    """

    site: str
    instance: str
    version: str
    epoch: int
    received_from: str = ""
    received: int = 0


class NeighbourConversation:
    """One session. Nothing is sent after the hello before the neighbour's hello has come."""

    def __init__(self, neighbour: str, opening: SiteOpening, outgoing: Outgoing) -> None:
        self.epoch = opening.epoch
        self._name, self._opening, self._outgoing = neighbour, opening, outgoing
        self._origin = origin_of_site(neighbour)
        self._their_instance = ""
        self._delivered = 0  # the number of the newest message that was
        self._acknowledged = 0
        self._bucket, self._counted_at = 0.0, Instant(0)

    # ---- to the neighbour

    def hello(self, now: Instant) -> SiteHello:
        """Return the first message of the session."""
        own = self._opening
        return SiteHello(SITE_PROTOCOL, own.version, own.site, own.instance, own.epoch, own.received_from, own.received)

    def ping(self, now: Instant) -> SitePing:
        return SitePing()

    def send(self, number: int, command: NeighbourCommand) -> Reaction:
        return Reaction((SiteMessage(number, site_to_json(_body(command))),))

    def acknowledge(self, number: int) -> Reaction:
        """Acknowledge a message that was committed, and all before it."""
        self._acknowledged = max(self._acknowledged, number)
        return Reaction((SiteAcknowledge(number),))

    # ---- from the neighbour

    def received(self, now: Instant, message: Any) -> Reaction:
        """Return the reaction to a message. Raises MessageError if its body cannot be understood."""
        match message:
            case SiteHello():
                return self._greeted(message)
            case SitePing():
                return Reaction((SitePong(),))
            case SiteMessage(number, body) if self._their_instance:
                return self._arrived(now, number, body)
            case SiteAcknowledge(number) if self._their_instance:
                return self._committed(number)
        return Reaction()

    def _greeted(self, hello: SiteHello) -> Reaction:
        if (reason := self._objection(hello)) is not None:
            return Reaction(answer=Refused(reason))
        self._their_instance = hello.instance
        own = self._opening
        self._delivered = self._acknowledged = own.received if own.received_from == hello.instance else 0
        confirmed = self._outgoing.committed(hello.received if hello.received_from == own.instance else 0)
        again = [message for each in self._outgoing.all() for message in self.send(*each).messages]
        event = NeighbourConnected(neighbour=self._name, instance=hello.instance)
        commands = (*_confirm(confirmed), self._deliver(event))
        return Reaction(tuple(again), commands, Accepted(hello.site, hello.version, hello.epoch))

    def _objection(self, hello: SiteHello) -> Reason | None:
        """Return why there can be no session with this hello; None if there can."""
        own = self._opening
        if self._their_instance:
            return Reason("garbled", "ours", f"{self._name} sent two hellos in one session.", "")
        if hello.protocol != SITE_PROTOCOL:
            what = f"{self._name} has protocol {hello.protocol} of koalapy {hello.version}; this site {SITE_PROTOCOL}."
            return Reason("other_protocol", "cluster", what, "Use the same release of koalapy at both sites.")
        if hello.kcm != PROTOCOL:
            theirs = f"protocol {hello.kcm} of koalapy {hello.version}"
            what = f"{self._name} has {theirs} for clusters; this site {PROTOCOL}."
            advice = "A lease needs the same one: use the same release of koalapy at both sites."
            return Reason("other_protocol", "cluster", what, advice)
        if hello.site != self._name:
            what = f"The site with the key of {self._name} calls itself {hello.site}."
            advice = "Agree on one name: `koala sites remove`, then `koala sites join` with the right line."
            return Reason("other_name", "cluster", what, advice)
        if hello.instance == own.instance:
            return Reason("own_store", "cluster", f"{self._name} has this site's own store.", "Give it another one.")
        if hello.received_from == own.instance and hello.received > self._outgoing.highest:
            what = (
                f"{self._name} has received message {hello.received}, which this store does not know: the store was "
                "restored from a backup, or another koalad used a copy of it."
            )
            advice = "At both sites: `koala sites remove`, then `koala sites join`; then the numbers begin anew."
            return Reason("store_restored", "cluster", what, advice)
        return None

    def _arrived(self, now: Instant, number: int, body: Any) -> Reaction:
        if self._is_flooded(now):
            message = f"{self._name} sends more than {MESSAGES_PER_SECOND} messages a second."
            return Reaction(answer=Refused(Reason("too_many_messages", "cluster", message, "Ask its people why.")))
        if number <= self._delivered:
            return Reaction((SiteAcknowledge(self._acknowledged),)) if self._acknowledged else Reaction()
        found = _message(self._name, from_json(body, BODIES))
        event = MessageReceived(neighbour=self._name, instance=self._their_instance, number=number, message=found)
        self._delivered = number
        return Reaction(commands=(self._deliver(event, number=number),))

    def _is_flooded(self, now: Instant) -> bool:
        """Count a message, and return whether there are too many: by a bucket that runs out at a constant rate."""
        run_out = (now - self._counted_at) * MESSAGES_PER_SECOND / SECOND
        self._bucket, self._counted_at = max(0.0, self._bucket - run_out) + 1, now
        return self._bucket > _BURST

    def _committed(self, number: int) -> Reaction:
        return Reaction(commands=_confirm(self._outgoing.committed(number)))

    def _deliver(self, *events: NeighbourEvent, number: int | None = None) -> Deliver:
        acknowledge = None if number is None else (self._origin, self.epoch, number)
        return Deliver(Delivery(events=events, acknowledge=acknowledge, session=(self._origin, self.epoch)))


def _confirm(numbers: tuple[int, ...]) -> tuple[Deliver, ...]:
    """Return the delivery for messages that the neighbour has committed, whatever becomes of this session."""
    return (Deliver(Delivery(confirmed=numbers)),) if numbers else ()


def neighbour_lost(neighbour: str, reason: Reason) -> Delivery:
    """Return the delivery for the end of a session with the neighbour, or a try that failed."""
    return Delivery(events=(NeighbourLost(neighbour=neighbour, reason=reason),))


def _body(command: NeighbourCommand) -> Any:
    match command:
        case ReportFree():
            return FreeProcessors(command.processors)
        case DelegateRequest():
            per_node, memory = command.processors_per_node or 0, command.memory or 0
            return LeaseRequest(
                command.lease, command.processors, command.walltime, *command.origin, command.dttl, command.within,
                per_node, memory, command.user, command.name, command.launchers, command.unisolated,
                list(command.executables),
            )  # fmt: skip
        case CancelRequest():
            return LeaseCancel(command.lease)
        case RejectRequest():
            reason = command.reason
            return LeaseRejection(command.lease, reason.code, reason.message, command.processors)
        case OfferLease():
            visible = list(command.isolation or ())
            return LeaseOffer(command.lease, command.lasts, command.length, command.isolation is not None, visible)
        case ReturnLease():
            return LeaseReturn(command.lease)
        case RevokeLease():
            return LeaseRevocation(command.lease, command.within)
        case EndLease():
            return LeaseEnd(command.lease, command.charge, command.reason.code, command.reason.message)
        case SendJob():
            return JobSending(command.job, job_mapping(command.request))
        case ChangeSentJob():
            return JobChange(command.job, str(command.change))
        case ReportReceivedJob(sent=sent, reason=why):
            code, message = (why.code, why.message) if why is not None else ("", "")
            return JobReport(command.job, sent.job, str(sent.state), sent.done, sent.count, code, message)


def _message(neighbour: str, body: Any) -> NeighbourMessage:
    """Return the message of a body. Raises MessageError for a word that it does not know."""
    match body:
        case LeaseRequest():
            return DelegateRequest(
                neighbour=neighbour, lease=body.lease, processors=body.processors, walltime=Duration(body.walltime),
                origin=Origin(body.site or neighbour, body.request, body.round), dttl=body.dttl,
                within=Duration(body.within), processors_per_node=body.per_node or None, memory=body.memory or None,
                user=body.user, name=body.name, launchers=body.launchers, unisolated=body.unisolated,
                executables=tuple(body.executables),
            )  # fmt: skip
        case LeaseCancel():
            return CancelRequest(neighbour=neighbour, lease=body.lease)
        case LeaseRejection():
            reason = Reason(body.code, "cluster", body.message, "")
            return RejectRequest(neighbour=neighbour, lease=body.lease, reason=reason, processors=body.processors)
        case LeaseOffer(lease=lease, lasts=lasts, length=length):
            isolation = tuple(body.visible) if body.isolated else None
            return OfferLease(
                neighbour=neighbour, lease=lease, lasts=Duration(lasts), length=length, isolation=isolation
            )
        case LeaseReturn():
            return ReturnLease(neighbour=neighbour, lease=body.lease)
        case LeaseRevocation():
            return RevokeLease(neighbour=neighbour, lease=body.lease, within=Duration(body.within))
        case LeaseEnd():
            reason = Reason(body.code, "cluster", body.message, "")
            return EndLease(neighbour=neighbour, lease=body.lease, charge=body.charge, reason=reason)
        case JobSending():
            found, job = _received(neighbour, body), JobId(body.job)
            if isinstance(found, Reason):
                return JobUnreadable(neighbour=neighbour, job=job, reason=found)
            return SendJob(neighbour=neighbour, job=job, request=found)
        case JobChange():
            return ChangeSentJob(neighbour=neighbour, job=JobId(body.job), change=_word(SentChange, body.change))
        case JobReport():
            state = _word(JobState, body.state)
            sent = Sent(job=JobId(body.there), state=state, done=body.done, count=body.jobs)
            why = Reason(body.code, "cluster", body.message, "") if body.code else None
            return ReportReceivedJob(neighbour=neighbour, job=JobId(body.job), sent=sent, reason=why)
    return ReportFree(neighbour=neighbour, processors=body.processors)


def _received(neighbour: str, body: JobSending) -> Request | Reason:
    """Return the request of a neighbour's job; or why this site cannot read or run such a job."""
    try:
        request = from_mapping(body.request, f"job {body.job} of the site {neighbour}", "/")
    except RequestError as error:
        return error.reason
    if request.site is not None or request.notify or request.after:
        return Reason("not_sent", "request", "It has site, notify or after, which are its sender's.", "")
    why = why_not_sent(request)
    if why is not None:
        return Reason(why.code, why.whose, f"The job {why.message}.", why.advice)
    try:
        need_matchmaker(request)
    except RequestError as error:
        return error.reason
    return request


_Word = TypeVar("_Word", bound=StrEnum)


def _word(kind: type[_Word], text: str) -> _Word:
    """Return the member of this text. Raises MessageError."""
    try:
        return kind(text)
    except ValueError as error:
        raise MessageError(f"{text} is no {kind.__name__}") from error
