"""The wrapper's half of the relay's handshake: what it says first, and whose leave to enter it believes."""

from typing import Any, Callable, NamedTuple

from koalapy_adapters import proofs
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.messages import PROTOCOL, Enter, Knock, ProvenEnter, ProvenKnock

_NONCE_BYTES = 16


class Greeting(NamedTuple):
    """`knock` is said first; `believes` whether a message is the leave to enter, of who may give it."""

    knock: Any
    believes: Callable[[Any], bool]


class Handshake:
    """One attempt's. `files` are asked for what nobody can guess."""

    def __init__(self, tag: str, token: str, files: Files = DISK) -> None:
        self._tag, self._token, self._files = tag, token, files

    def greeting(self, now: int, secret: str) -> Greeting:
        """For who wrote this secret to the relay's file; a KCM of an older release wrote none, and wants the token.

        The port may be a stranger's by now: without the secret he can neither use what he hears nor answer it.
        """
        if not secret:
            knock = Knock(PROTOCOL, self._tag, self._token, now)
            return Greeting(knock, lambda message: isinstance(message, Enter))
        key = proofs.relay_key(secret, self._token.encode())
        nonce = self._files.unpredictable(_NONCE_BYTES)
        proven = ProvenKnock(PROTOCOL, self._tag, now, nonce, proofs.of_knock(key, self._tag, now, nonce))
        return Greeting(proven, lambda message: _is_proven(message, key, nonce))


def _is_proven(message: Any, key: bytes, nonce: str) -> bool:
    if not isinstance(message, ProvenEnter):
        return False
    return proofs.same(message.proof, proofs.of_enter(key, message.clock, nonce).encode())
