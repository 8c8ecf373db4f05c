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


def derive_key(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    """32 bytes by HKDF-SHA256 (RFC 5869); other salts and purposes give other keys, none of which tells of another."""
    extracted = hmac.new(salt, key, hashlib.sha256).digest()
    return hmac.new(extracted, purpose + b"\x01", hashlib.sha256).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # JSON may hold halves of characters
