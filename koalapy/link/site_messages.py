"""The messages between two sites, and the checks of their fields. Each is a JSON object whose `type` names its class.

Both sides send the same ones, over one connection. Messages of the outbox travel in a SiteMessage, with their numbers.
Those of byte streams are the same as to a cluster.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from koalapy_adapters.messages import PROTOCOL, readers, to_json
from koalapy_adapters.messages.fields import Body, Count, Json, Line, Name, Number, Processors, many, name, whole
from koalapy_adapters.messages.streams import OpenStream, StreamReset, StreamState

from koalapy.model.lease import LONGEST_PATH, MOST_LINKS

SITE_PROTOCOL = 2

if TYPE_CHECKING:
    Session = int
    Links = int  # of a chain
    Paths = Sequence[str]
else:
    Session = whole(1, 1 << 62)
    Links = whole(0, MOST_LINKS)
    Paths = many(name(LONGEST_PATH))


class SiteHello(NamedTuple):
    """The message with which each side begins.

    `instance`: that of the sender's store. `epoch`: the sender's number of this connection, higher for each.
    `received`: the number of the newest message that the sender has committed from the store `received_from`.
    `kcm`: the protocol between the sender and KCMs; on a lease koalad and KCM are of two sites.
    """

    protocol: Count
    version: Name
    site: Name
    instance: Name
    epoch: Session
    received_from: Name
    received: Count
    kcm: Count = PROTOCOL


class SitePing(NamedTuple):
    """Asks for a SitePong."""


class SitePong(NamedTuple):
    """Answers a SitePing."""


class SiteMessage(NamedTuple):
    """A message of the sender's outbox. Numbers grow, but not by one: the outbox has other entries too."""

    number: Number
    body: Body


class SiteAcknowledge(NamedTuple):
    """The sender has committed all messages up to this number."""

    number: Number


class FreeProcessors(NamedTuple):
    """The body of a ReportFree: the most processors that the receiver could get at the sender's site now."""

    processors: Processors


class LeaseRequest(NamedTuple):
    """The body of a DelegateRequest. `walltime`, `within`: microseconds.

    `per_node`, `memory` (bytes a processor): 0 for any. `site`, `request` and `round` are the request's origin; its
    site is '' if it is the sender. `user`, `name`: of the job for which it is, for the lender's accounts. `launchers`:
    whether it is for Launchers of a sweep. `unisolated`: whether its program cannot run isolated. `executables`: the
    absolute paths of programs that are at their place there.
    """

    lease: Number
    processors: Processors
    walltime: Count
    site: Name
    request: Count
    round: Count
    dttl: Links
    within: Count
    per_node: Count = 0
    memory: Count = 0
    user: Line = ""
    name: Line = ""
    launchers: bool = False
    unisolated: bool = False
    executables: Paths = ()


class LeaseCancel(NamedTuple):
    """The body of a CancelRequest."""

    lease: Number


class LeaseRejection(NamedTuple):
    """The body of a RejectRequest. `processors`: the most that the receiver could get now."""

    lease: Number
    code: Name
    message: Line
    processors: Processors


class LeaseOffer(NamedTuple):
    """The body of an OfferLease. `lasts`: microseconds from now on. `length`: the links of the chain.

    `isolated`: whether its programs are, and `visible` the directories that they see beside those of the system.
    """

    lease: Number
    lasts: Count
    length: Links = 1
    isolated: bool = False
    visible: Paths = ()


class LeaseReturn(NamedTuple):
    """The body of a ReturnLease."""

    lease: Number


class LeaseRevocation(NamedTuple):
    """The body of a RevokeLease. `within`: microseconds from now on."""

    lease: Number
    within: Count


class LeaseEnd(NamedTuple):
    """The body of an EndLease. `charge`: processor-microseconds."""

    lease: Number
    charge: Count
    code: Name
    message: Line


class JobSending(NamedTuple):
    """The body of a SendJob. `job`: its id at the sender. `request`: the mapping of a job file."""

    job: Number
    request: Body


class JobChange(NamedTuple):
    """The body of a ChangeSentJob. `change`: a word of SentChange."""

    job: Number
    change: Name


class JobReport(NamedTuple):
    """The body of a ReportReceivedJob. `job`: its id at the sender; `there`: at the site that runs it, 0 for none.

    `state`: a word of JobState. `done` of `jobs`: those of a flow. `code`, `message`: why it failed, else empty.
    """

    job: Number
    there: Count
    state: Name
    done: Count
    jobs: Count
    code: Name
    message: Line


MESSAGES = readers(SiteHello, SitePing, SitePong, SiteMessage, SiteAcknowledge, OpenStream, StreamState, StreamReset)
BODIES = readers(
    FreeProcessors, LeaseRequest, LeaseCancel, LeaseRejection, LeaseOffer, LeaseReturn, LeaseRevocation, LeaseEnd,
    JobSending, JobChange, JobReport,
)  # fmt: skip
_NAMES = {
    SiteHello: "site_hello",
    SitePing: "site_ping",
    SitePong: "site_pong",
    SiteMessage: "site_message",
    SiteAcknowledge: "site_acknowledge",
    FreeProcessors: "free_processors",
    LeaseRequest: "lease_request",
    LeaseCancel: "lease_cancel",
    LeaseRejection: "lease_rejection",
    LeaseOffer: "lease_offer",
    LeaseReturn: "lease_return",
    LeaseRevocation: "lease_revocation",
    LeaseEnd: "lease_end",
    JobSending: "job_sending",
    JobChange: "job_change",
    JobReport: "job_report",
}


def site_to_json(message: Any) -> Json:
    """Return the message as a JSON object."""
    name = _NAMES.get(type(message))
    return to_json(message) if name is None else {**message._asdict(), "type": name}
