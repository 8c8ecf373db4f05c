"""The wrapper's half of the relay's handshake: its first message, its answer, and the check of the welcome."""

from typing import Any, List, NamedTuple, Optional

from koalapy_adapters import proofs
from koalapy_adapters.channel import Keys
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.handshake import (
    NO_CHALLENGE,
    NONCE_BYTES,
    kcm_proof,
    relay_key,
    session_keys,
    wrapper_proof,
)
from koalapy_adapters.messages.relay import RELAY_PROTOCOL, RelayChallenge, RelayHello, RelayProof, RelayWelcome


class Answer(NamedTuple):
    """To the challenge. Once `proof` is written, all is sealed with `keys`."""

    proof: RelayProof
    keys: Keys


class Welcomed(NamedTuple):
    """The KCM has proven itself; `offset`: its clock minus ours."""

    offset: int


class Opening:
    """One connection's handshake. The relay's port may be another user's: what that sends must not be accepted."""

    def __init__(self, key: bytes, hello: RelayHello, by_files: bool) -> None:
        self._key, self._hello = key, hello
        self._challenge: Optional[RelayChallenge] = NO_CHALLENGE if by_files else None
        self._challenged_at: Optional[int] = None
        self.first: List[Any] = [hello]  # sent at once
        if self._challenge is not None:
            self.first.append(RelayProof(wrapper_proof(key, hello, self._challenge)))

    def received(self, now: int, message: Any) -> Any:
        """Answer, Welcomed, or None for what is not accepted."""
        if isinstance(message, RelayChallenge) and self._challenge is None:
            self._challenge, self._challenged_at = message, now
            proof = RelayProof(wrapper_proof(self._key, self._hello, message))
            return Answer(proof, session_keys(self._key, self._hello, message))
        if isinstance(message, RelayWelcome) and self._challenge is not None and self._accepts(message):
            return Welcomed(self._offset(now, message))
        return None

    def _accepts(self, welcome: RelayWelcome) -> bool:
        assert self._challenge is not None
        covered = self._challenge._replace(clock=welcome.clock)
        return isinstance(welcome.clock, int) and proofs.same(
            welcome.proof, kcm_proof(self._key, self._hello, covered).encode()
        )

    def _offset(self, now: int, welcome: RelayWelcome) -> int:
        contact_at = now if self._challenged_at is None else self._challenged_at
        return welcome.clock - (self._hello.clock + contact_at) // 2


class Handshake:
    """One attempt's. `files` are asked for what nobody can guess."""

    def __init__(self, tag: str, token: str, files: Files = DISK) -> None:
        self._tag, self._token, self._files = tag, token, files

    def open(self, now: int, secret: str, by_files: bool) -> Opening:
        """Begin a handshake with the KCM that wrote this secret to the relay's file."""
        key = relay_key(secret, self._token.encode())
        hello = RelayHello(RELAY_PROTOCOL, self._tag, now, self._files.unpredictable(NONCE_BYTES))
        return Opening(key, hello, by_files)
