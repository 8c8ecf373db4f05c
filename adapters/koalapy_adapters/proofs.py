"""Proofs of knowledge of a shared secret, which do not reveal the secret to a listener.

A proof is an HMAC-SHA256 over its purpose. If that includes a nonce of the verifier, an old proof is worthless.
"""

import hashlib
import hmac


def proof(key: bytes, *words: str) -> str:
    """Compute a proof over the words, in hexadecimal.

    Each word is encoded with its length, so that no other words give the same.
    """
    data = b"".join(b"%d:%s," % (len(word), word) for word in map(_bytes, words))
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def same(shown: object, expected: bytes) -> bool:
    """Compare in constant time. `shown`: any value that the other side sent; `expected`: the proof as bytes."""
    return hmac.compare_digest(_bytes(str(shown)), expected)


def derive_key(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    """Derive 32 bytes by HKDF-SHA256 (RFC 5869). Another salt or purpose gives an independent key."""
    extracted = hmac.new(salt, key, hashlib.sha256).digest()
    return hmac.new(extracted, purpose + b"\x01", hashlib.sha256).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # JSON may hold halves of characters
