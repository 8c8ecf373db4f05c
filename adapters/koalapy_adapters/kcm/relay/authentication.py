"""Decides which wrappers a relay lets in, and which messages it takes from them, by TCP or by files."""

from typing import Any, Callable, List, NamedTuple, Optional

from koalapy_adapters import proofs
from koalapy_adapters.channel import Keys
from koalapy_adapters.frames import Chunk
from koalapy_adapters.handshake import (
    NO_CHALLENGE,
    NONCE_BYTES,
    kcm_proof,
    relay_key,
    session_keys,
    wrapper_proof,
)
from koalapy_adapters.kcm.state.actions import (
    LauncherReported,
    OtherVersion,
    StreamFrameReceived,
    WrapperPut,
    WrapperReported,
)
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.kcm import PutKey
from koalapy_adapters.messages.relay import (
    RELAY_PROTOCOL,
    FromLauncher,
    Heartbeat,
    RelayChallenge,
    RelayHello,
    RelayProof,
    RelayWelcome,
    ReportMessage,
)
from koalapy_adapters.messages.streams import StreamChunk, StreamReset, StreamState
from koalapy_adapters.streams import as_frame

_LONGEST = 64  # characters of a tag or nonce


class Accounts(NamedTuple):
    """Facts about attempts in the shared directory; each call blocks.

    `token_of` an attempt, None where there is none. `other_version`: see Directories.other_version.
    """

    token_of: Callable[[str], Optional[bytes]]
    other_version: Callable[[str], Optional[OtherVersion]] = lambda tag: None


class Challenged(NamedTuple):
    """An unauthenticated client whose proof is awaited."""

    hello: RelayHello
    challenge: RelayChallenge


class Admitted(NamedTuple):
    """A wrapper that has proven itself. `welcome` is sent first, and sealed with `keys` if the relay uses frames."""

    tag: str
    clock: int
    welcome: RelayWelcome
    keys: Keys

    def clock_at(self, now: int) -> int:
        """Return the wrapper's clock at an instant of the KCM's. Hello and welcome have both clocks at one instant."""
        return self.clock + now - self.welcome.clock


class Authenticator:
    """One KCM's. `secret`: what it wrote to the relay's file; `unpredictable`: see Files."""

    def __init__(self, accounts: Accounts, secret: str, unpredictable: Callable[[int], str]) -> None:
        self._accounts, self._secret, self._unpredictable = accounts, secret, unpredictable

    def challenge(self, now: int, data: Any) -> Optional[Challenged]:
        """The answer to a first frame, whoever sent it; None for what is no hello of our protocol."""
        hello = _as_hello(data)
        if hello is None:
            return None
        return Challenged(hello, RelayChallenge(now, self._unpredictable(NONCE_BYTES)))

    def admit(self, challenged: Challenged, data: Any) -> Optional[Admitted]:
        """The answer to the second frame; None for a client without the secrets, which gets no answer. Blocks."""
        return self._admit(challenged.hello, challenged.challenge, challenged.challenge.clock, data)

    def admit_file(self, now: int, contents: List[Any]) -> Optional[Admitted]:
        """The answer to a hello file, whose JSON objects these are; None for a client without the secrets. Blocks."""
        hello = _as_hello(contents[0]) if len(contents) == 2 else None
        return self._admit(hello, NO_CHALLENGE, now, contents[1]) if hello is not None else None

    def other_version(self, data: Any) -> Optional[OtherVersion]:
        """React to a hello of another protocol. Blocks.

        Anybody can send one. Therefore it counts only if the attempt's own files show that its wrapper has another.
        """
        if not isinstance(data, dict) or data.get("protocol") == RELAY_PROTOCOL:
            return None
        tag = data.get("tag")
        return self._accounts.other_version(tag) if isinstance(tag, str) and len(tag) <= _LONGEST else None

    def _admit(self, hello: RelayHello, challenge: RelayChallenge, clock: int, data: Any) -> Optional[Admitted]:
        shown = _message(data)
        token = self._accounts.token_of(hello.tag) if isinstance(shown, RelayProof) else None
        if not token:
            return None
        key = relay_key(self._secret, token)
        if not proofs.same(shown.proof, wrapper_proof(key, hello, challenge).encode()):
            return None
        proof = kcm_proof(key, hello, challenge._replace(clock=clock))
        return Admitted(hello.tag, hello.clock, RelayWelcome(clock, proof), session_keys(key, hello, challenge))


def outcome(tag: str, message: Any) -> Any:
    """Return the machine's event for a wrapper's message, or None. A wrapper reports on its own attempt only.

    Raises MessageError for a message that no wrapper sends.
    """
    if isinstance(message, ReportMessage) and isinstance(message.report, dict):
        return WrapperReported(tag, message.report)
    if isinstance(message, PutKey):
        return WrapperPut(tag, str(message.key), str(message.value))
    if isinstance(message, FromLauncher) and isinstance(message.body, dict):
        return LauncherReported(tag, message.body)
    if isinstance(message, (Chunk, StreamChunk, StreamState, StreamReset)):
        return StreamFrameReceived(tag, as_frame(message))
    if isinstance(message, Heartbeat):
        return None
    raise MessageError("a wrapper sends no %s" % type(message).__name__)


def _as_hello(data: Any) -> Optional[RelayHello]:
    hello = _message(data)
    if not isinstance(hello, RelayHello) or hello.protocol != RELAY_PROTOCOL or not isinstance(hello.clock, int):
        return None
    words = (hello.tag, hello.nonce)
    return hello if all(isinstance(word, str) and len(word) <= _LONGEST for word in words) else None


def _message(data: Any) -> Any:
    try:
        return from_json(data)
    except MessageError:
        return None
