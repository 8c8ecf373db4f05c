"""Whom a relay lets in, and what those who are in may say, however they came."""

import hmac
from typing import Any, Optional

from koalapy_adapters.kcm.actions import LauncherSaid, WrapperPut, WrapperSaid
from koalapy_adapters.messages import PROTOCOL, Beat, FromLauncher, Knock, MessageError, PutKey, Say

PROTOCOLS = (PROTOCOL,)  # those that a wrapper may speak


def is_knock(message: Any) -> bool:
    """Whether it is one, in a protocol that is spoken here."""
    return isinstance(message, Knock) and message.protocol in PROTOCOLS and isinstance(message.clock, int)


def admits(expected: Optional[bytes], knock: Knock) -> bool:
    """Whether this is the attempt's token; one that has none lets nobody in."""
    return bool(expected) and hmac.compare_digest(expected or b"", str(knock.token).encode())


def outcome(tag: str, message: Any) -> Any:
    """What the machine is told, None where that is nothing. A wrapper speaks for its own attempt only.

    Raises MessageError for what no wrapper says.
    """
    if isinstance(message, Say) and isinstance(message.report, dict):
        return WrapperSaid(tag, message.report)
    if isinstance(message, PutKey):
        return WrapperPut(tag, str(message.key), str(message.value))
    if isinstance(message, FromLauncher) and isinstance(message.body, dict):
        return LauncherSaid(tag, message.body)
    if isinstance(message, Beat):
        return None
    raise MessageError("a wrapper does not say %s" % type(message).__name__)
