"""The plain messages between koalad and KCM, and between KCM and wrapper. The wire's own types, not the core's.

Each is a NamedTuple; on the wire a JSON object whose `type` is the class's name in snake case. All instants are integer
microseconds of the sender's own clock unless a field states otherwise. Requests carry an `id` and are idempotent: asked
twice, they are done once and answered twice. Batch jobs and attempts are known by their tag.
"""

import re
from typing import Any, Callable, Dict, Type

from koalapy_adapters.messages import fields, files, kcm, koalad, launcher, relay, streams
from koalapy_adapters.messages.fields import Json, MessageError, passes, shown

PROTOCOL = 1

Message = Callable[[Any], Any]  # see fields.reader
Messages = Dict[str, Message]  # by `type`


def _named(*kinds: Type[Any]) -> Dict[str, Type[Any]]:
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower(): kind for kind in kinds}


def readers(*kinds: Type[Any]) -> Messages:
    """Readers of these messages, for `from_json`."""
    return {name: fields.reader(kind) for name, kind in _named(*kinds).items()}


MESSAGES: Dict[str, Type[Any]] = _named(
    *koalad.MESSAGES, *files.MESSAGES, *kcm.MESSAGES, *relay.MESSAGES, *launcher.MESSAGES, *streams.MESSAGES
)
ALL: Messages = readers(*MESSAGES.values())
FROM_KCM: Messages = {name: ALL[name] for name in _named(*kcm.MESSAGES, streams.StreamState, streams.StreamReset)}
EVENTS: Messages = {name: ALL[name] for name in _named(*kcm.EVENTS)}
_NAMES = {kind: name for name, kind in MESSAGES.items()}


def to_json(message: Any) -> Json:
    """The message as a JSON object."""
    fields = dict(message._asdict())
    fields["type"] = _NAMES[type(message)]
    return fields


def from_json(data: Any, among: Messages = ALL) -> Any:
    """Read the message of a JSON object, which must be of a type in `among`.

    Unknown fields are ignored: a newer release may have added them. Raises MessageError for anything else, and names
    the field of a wrong value.
    """
    kind = data.get("type") if type(data) is dict else None
    read = among.get(kind) if type(kind) is str else None
    if read is None:
        raise MessageError("not a message: %s" % shown(data))
    try:
        return read(data)
    except MessageError as error:
        raise error.inside(str(kind)) from None


def read(kind: Type[Any], data: Any) -> Any:
    """The message of this type of a JSON object, which need not name it. Raises MessageError."""
    name = _NAMES[kind]
    try:
        return ALL[name](data)
    except MessageError as error:
        raise error.inside(name) from None


def is_sound(message: Any) -> bool:
    """Return whether the other side would take this message of this side's own."""
    return passes(ALL[_NAMES[type(message)]], message._asdict())
