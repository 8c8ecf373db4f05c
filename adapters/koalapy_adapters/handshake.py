"""The relay's handshake, as wrapper and KCM both compute it: proofs that cover all its messages, and session keys.

By TCP its messages are RelayHello, RelayChallenge, RelayProof and RelayWelcome; after the welcome, frames are sealed
(see channel). By files there is no challenge: a hello file holds RelayHello and RelayProof, and only the user can write
it.
"""

import hashlib
import hmac
from typing import Any

from koalapy_adapters import proofs
from koalapy_adapters.channel import Keys
from koalapy_adapters.messages.relay import RelayChallenge, RelayHello

NONCE_BYTES = 16
NO_CHALLENGE = RelayChallenge(0, "")  # in its place by files


def relay_key(secret: str, token: bytes) -> bytes:
    """Derive a 32-byte key that proves knowledge of the attempt's token and of the KCM's secret in the relay's file."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), token, hashlib.sha256).digest()


def wrapper_proof(key: bytes, hello: RelayHello, challenge: RelayChallenge) -> str:
    return _proof(key, "wrapper", hello, challenge)


def kcm_proof(key: bytes, hello: RelayHello, challenge: RelayChallenge) -> str:
    return _proof(key, "kcm", hello, challenge)


def session_keys(key: bytes, hello: RelayHello, challenge: RelayChallenge) -> Keys:
    """Derive the keys that seal the frames of this one connection."""
    salt = _transcript(hello, challenge)
    return Keys(
        *(proofs.derive_key(key, salt, b"koalapy relay, written by " + whose) for whose in (b"wrapper", b"kcm"))
    )


def _proof(key: bytes, whose: str, *fields_of: Any) -> str:
    return proofs.proof(key, whose, *(str(field) for message in fields_of for field in message))


def _transcript(*fields_of: Any) -> bytes:
    words = [str(field).encode("utf-8", "surrogatepass") for message in fields_of for field in message]
    return b"".join(b"%d:%s," % (len(word), word) for word in words)
