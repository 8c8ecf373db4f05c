"""The messages between two sites, and the checks of their fields. Each is a JSON object whose `type` names its class.

Both sides send the same ones, over one connection. Messages of the outbox travel in a SiteMessage, with their numbers.
Those of byte streams are the same as to a cluster.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from koalapy_adapters.messages import OpenStream, StreamReset, StreamState, readers, to_json
from koalapy_adapters.messages.fields import Body, Count, Json, Name, Number, Processors, whole

SITE_PROTOCOL = 1

if TYPE_CHECKING:
    Session = int
else:
    Session = whole(1, 1 << 62)


class SiteHello(NamedTuple):
    """The first message of each side.

    `instance`: that of the sender's store. `epoch`: the sender's number of this connection, higher for each.
    `received`: the number of the newest message that the sender has committed from the store `received_from`.
    """

    protocol: Count
    version: Name
    site: Name
    instance: Name
    epoch: Session
    received_from: Name
    received: Count


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
    """The body of a ReportFree: the processors that the sender's clusters have idle."""

    processors: Processors


MESSAGES = readers(SiteHello, SitePing, SitePong, SiteMessage, SiteAcknowledge, OpenStream, StreamState, StreamReset)
BODIES = readers(FreeProcessors)
_NAMES = {
    SiteHello: "site_hello",
    SitePing: "site_ping",
    SitePong: "site_pong",
    SiteMessage: "site_message",
    SiteAcknowledge: "site_acknowledge",
    FreeProcessors: "free_processors",
}


def site_to_json(message: Any) -> Json:
    """Return the message as a JSON object."""
    name = _NAMES.get(type(message))
    return to_json(message) if name is None else {**message._asdict(), "type": name}
