"""The plain messages between koalad and KCM, and between KCM and wrapper. The wire's own types, not the core's.

Each is a NamedTuple; on the wire a JSON object whose `type` is the class's name in snake case. All instants are integer
microseconds of the sender's own clock unless a field says otherwise. Requests carry an `id` and are idempotent: asked
twice, they are done once and answered twice. Batch jobs and attempts are known by their tag.
"""

import re
from typing import Any, Dict, Type

from koalapy_adapters.messages import files, kcm, koalad, launcher, relay
from koalapy_adapters.messages.files import Fetch, FetchMany, ListFiles, Stat, Store, StoreMany, Want
from koalapy_adapters.messages.kcm import (
    BatchSeen,
    Done,
    Event,
    Failure,
    Fetched,
    Gone,
    LaunchersSeen,
    LauncherSuspected,
    Lingers,
    Measured,
    MeasureFailed,
    ParametersBack,
    ParametersDone,
    ParametersWanted,
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
    Feed,
    Forget,
    Hello,
    Ping,
    Program,
    Recall,
    Release,
    Submit,
    Tags,
    Trust,
    Watch,
)
from koalapy_adapters.messages.launcher import Back, Doing, Ended, Give, Holding, Kept, Pull, Suspect, Trusted
from koalapy_adapters.messages.relay import (
    RELAY_PROTOCOL,
    Beat,
    FromLauncher,
    RelayChallenge,
    RelayHello,
    RelayProof,
    RelayWelcome,
    Say,
    Stop,
    ToLauncher,
)

__all__ = [
    "PROTOCOL",
    "RELAY_PROTOCOL",
    "Acknowledge",
    "Back",
    "BatchSeen",
    "Beat",
    "Cancel",
    "Clean",
    "ClusterConfig",
    "Diagnose",
    "Dissolve",
    "Doing",
    "Done",
    "Ended",
    "Event",
    "Examine",
    "Failure",
    "Feed",
    "Fetch",
    "FetchMany",
    "Fetched",
    "Forget",
    "FromLauncher",
    "Give",
    "Gone",
    "Hello",
    "Holding",
    "Json",
    "Kept",
    "LauncherSuspected",
    "LaunchersSeen",
    "Lingers",
    "ListFiles",
    "MeasureFailed",
    "Measured",
    "MessageError",
    "ParametersBack",
    "ParametersDone",
    "ParametersWanted",
    "Ping",
    "Pong",
    "Program",
    "Pull",
    "PutKey",
    "Recall",
    "Refused",
    "RelayChallenge",
    "RelayHello",
    "RelayProof",
    "RelayWelcome",
    "Release",
    "Report",
    "Say",
    "Stat",
    "Stop",
    "Store",
    "StoreMany",
    "Submit",
    "Submitted",
    "Suspect",
    "Tags",
    "ToLauncher",
    "Trust",
    "Trusted",
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
    for kind in (*koalad.MESSAGES, *files.MESSAGES, *kcm.MESSAGES, *relay.MESSAGES, *launcher.MESSAGES)
}
_NAMES = {kind: name for name, kind in MESSAGES.items()}


def to_json(message: Any) -> Json:
    """The message as a JSON object."""
    fields = dict(message._asdict())
    fields["type"] = _NAMES[type(message)]
    return fields


def from_json(data: Any) -> Any:
    """The message of a JSON object. Raises MessageError for whatever is none."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str) or data["type"] not in MESSAGES:
        raise MessageError("not a message: %.80r" % (data,))
    kind = MESSAGES[data["type"]]
    fields = {name: value for name, value in data.items() if name != "type"}
    try:
        return kind(**fields)
    except TypeError as error:
        raise MessageError("%s: %s" % (data["type"], error)) from error
