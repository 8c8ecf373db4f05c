"""Whom a relay lets in, and what those who are in may say, however they came."""

from typing import Any, Callable, NamedTuple, Optional

from koalapy_adapters import proofs
from koalapy_adapters.kcm.actions import LauncherSaid, WrapperPut, WrapperSaid
from koalapy_adapters.messages import (
    PROTOCOL,
    Beat,
    Enter,
    FromLauncher,
    Knock,
    MessageError,
    ProvenEnter,
    ProvenKnock,
    PutKey,
    Say,
)

PROTOCOLS = (PROTOCOL,)  # those that a wrapper may speak


class Admitted(NamedTuple):
    """A wrapper that may come in. `key`: what it has proven to know; none of an older one, which showed its token."""

    tag: str
    clock: int
    key: bytes = b""
    nonce: str = ""

    def told(self, message: Any) -> Any:
        """The message as this one is told it: who has proven itself to us asks for the same of us."""
        if not self.key or not isinstance(message, Enter):
            return message
        return ProvenEnter(message.protocol, message.clock, proofs.of_enter(self.key, message.clock, self.nonce))


class Door:
    """One KCM's. `token_of` an attempt, None where there is none; `secret`: what it wrote to the relay's file."""

    def __init__(self, token_of: Callable[[str], Optional[bytes]], secret: str) -> None:
        self._token_of, self._secret = token_of, secret

    def admit(self, message: Any) -> Optional[Admitted]:
        """None for whoever is not let in, and learns nothing. Blocks as long as the shared directory does."""
        if not _is_knock(message):
            return None
        tag = str(message.tag)
        token = self._token_of(tag)
        if not token:
            return None
        if isinstance(message, ProvenKnock):
            return self._proven(message, tag, token)
        return Admitted(tag, message.clock) if proofs.same(message.token, token) else None

    def _proven(self, knock: ProvenKnock, tag: str, token: bytes) -> Optional[Admitted]:
        key, nonce = proofs.relay_key(self._secret, token), str(knock.nonce)
        expected = proofs.of_knock(key, tag, knock.clock, nonce).encode()
        return Admitted(tag, knock.clock, key, nonce) if proofs.same(knock.proof, expected) else None


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


def _is_knock(message: Any) -> bool:
    """Whether it is one, in a protocol that is spoken here."""
    knocks = isinstance(message, (Knock, ProvenKnock))
    return knocks and message.protocol in PROTOCOLS and isinstance(message.clock, int)
