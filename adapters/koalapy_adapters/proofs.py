"""How two who share a secret prove to each other that they know it, and show it to nobody, whoever it is that listens.

A proof is an HMAC-SHA256 over what it is good for; with a nonce of who is to believe it, an old one proves nothing.
"""

import hashlib
import hmac


def proof(key: bytes, *words: str) -> str:
    """In hexadecimal. Other words never run together to the same."""
    said = b"".join(b"%d:%s," % (len(word), word) for word in map(_bytes, words))
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def same(shown: object, expected: bytes) -> bool:
    """In constant time, whatever it is that a stranger has shown."""
    return hmac.compare_digest(_bytes(str(shown)), expected)


# ---- between a wrapper and its KCM -----------------------------------------------------------------------------------


def relay_key(secret: str, token: bytes) -> bytes:
    """Who has it knows the attempt's token and this one KCM's secret, which is in the relay's file."""
    return hmac.new(_bytes(secret), token, hashlib.sha256).digest()


def of_knock(key: bytes, tag: str, clock: int, nonce: str) -> str:
    return proof(key, "knock", tag, str(clock), nonce)


def of_enter(key: bytes, clock: int, nonce: str) -> str:
    """The KCM's, for the wrapper that knocked with this nonce."""
    return proof(key, "enter", str(clock), nonce)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # JSON may hold halves of characters
