"""The plain messages between koalad and KCM, and between KCM and wrapper. The wire's own types, not the core's.

Each is a NamedTuple; on the wire a JSON object whose `type` is the class's name in snake case. All instants are integer
microseconds of the sender's own clock unless a field says otherwise. Requests carry an `id` and are idempotent: asked
twice, they are done once and answered twice. Batch jobs and attempts are known by their tag.
"""

import re
from typing import Any, Dict, Type

from koalapy_adapters.messages import kcm, koalad, relay
from koalapy_adapters.messages.kcm import (
    BatchSeen,
    Done,
    Event,
    Failure,
    Fetched,
    Gone,
    Measured,
    MeasureFailed,
    Pong,
    PutKey,
    Refused,
    Report,
    Submitted,
    Welcome,
)
from koalapy_adapters.messages.koalad import (
    Acknowledge,
    Cancel,
    Clean,
    ClusterConfig,
    Diagnose,
    Dissolve,
    Examine,
    Fetch,
    FetchMany,
    Forget,
    Hello,
    ListFiles,
    Ping,
    Program,
    Release,
    Stat,
    Store,
    StoreMany,
    Submit,
    Tags,
    Want,
    Watch,
)
from koalapy_adapters.messages.relay import Beat, Enter, Knock, Say, Stop

__all__ = [
    "PROTOCOL",
    "Acknowledge",
    "BatchSeen",
    "Beat",
    "Cancel",
    "Clean",
    "ClusterConfig",
    "Diagnose",
    "Dissolve",
    "Done",
    "Enter",
    "Event",
    "Examine",
    "Failure",
    "Fetch",
    "FetchMany",
    "Fetched",
    "Forget",
    "Gone",
    "Hello",
    "Json",
    "Knock",
    "ListFiles",
    "MeasureFailed",
    "Measured",
    "MessageError",
    "Ping",
    "Pong",
    "Program",
    "PutKey",
    "Refused",
    "Release",
    "Report",
    "Say",
    "Stat",
    "Stop",
    "Store",
    "StoreMany",
    "Submit",
    "Submitted",
    "Tags",
    "Want",
    "Watch",
    "Welcome",
    "from_json",
    "to_json",
]

PROTOCOL = 1

Json = Dict[str, Any]


class MessageError(ValueError):
    """A message that this side does not understand."""


MESSAGES: Dict[str, Type[Any]] = {
    re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower(): kind
    for kind in (*koalad.MESSAGES, *kcm.MESSAGES, *relay.MESSAGES)
}
_NAMES = {kind: name for name, kind in MESSAGES.items()}


def to_json(message: Any) -> Json:
    """The message as a JSON object."""
    fields = dict(message._asdict())
    fields["type"] = _NAMES[type(message)]
    return fields


def from_json(data: Any) -> Any:
    """The message of a JSON object. Raises MessageError for whatever is none."""
    if not isinstance(data, dict) or data.get("type") not in MESSAGES:
        raise MessageError("not a message: %.80r" % (data,))
    kind = MESSAGES[data["type"]]
    fields = {name: value for name, value in data.items() if name != "type"}
    try:
        return kind(**fields)
    except TypeError as error:
        raise MessageError("%s: %s" % (data["type"], error)) from error
