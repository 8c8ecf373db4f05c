"""The keys of a login, in the order in which they are tried.

A server counts tries, so the most likely key comes first.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from paramiko.message import Message
from paramiko.pkey import PublicBlob, UnknownKeyType
from paramiko.ssh_exception import PasswordRequiredException, SSHException

from koalapy_adapters.connections.ssh_config import Resolved
from koalapy_adapters.errors import ClusterError

_AGENT_S = 30.0  # a key may have to be touched
_CERTIFICATE = "-cert-v"

Unlock = Callable[[str], str | None]  # a file's passphrase; None: leave it


class KeyFile(NamedTuple):
    """File of a private key.

    `key`: None if it is locked; `public`: the public half, None if unknown without the key.
    """

    path: str
    key: paramiko.PKey | None
    public: bytes | None


def candidates(resolved: Resolved, identity: str | None, unlock: Unlock) -> Iterator[paramiko.PKey]:
    """Yield the keys to try, each first with its certificates and then alone.

    The order:

    - keys of the agent that are in a key file, too
    - the key file that the grid file names
    - other keys of the agent, unless IdentitiesOnly is set
    - key files of the ssh configuration, if the grid file names none
    - locked key files, if `unlock` gives the passphrase

    Raises ClusterError if the file that the grid file names holds no key, or if a passphrase is wrong.
    """
    named = [_key_file(Path(identity).expanduser(), required=True)] if identity is not None else []
    files = named + [_key_file(Path(path), required=False) for path in resolved.identities if identity is None]
    found = [file for file in files if file is not None]
    with _agent(resolved.agent) as held:
        certificates = [*_certificates(resolved, found), *held.certificates]
        wanted = [file.public for file in found]
        first = [key for public in wanted for key in held.keys if key.asbytes() == public]
        rest = [] if resolved.identities_only else [key for key in held.keys if key not in first]
        have = [key.asbytes() for key in first]
        free = [file.key for file in found if file.key is not None and file.public not in have]
        ordered: list[paramiko.PKey] = [*first, *free, *rest] if identity is not None else [*first, *rest, *free]
        for key in ordered:
            yield from _certified(key, certificates)
        for file in found:
            if file.key is None and file.public not in have and (unlocked := _unlocked(file, unlock)) is not None:
                yield from _certified(unlocked, certificates)


def _key_file(path: Path, required: bool) -> KeyFile | None:
    """Read a private key; None if the file has no usable key and is not required. Raises ClusterError if it is."""
    try:
        key = paramiko.PKey.from_path(path)
        return KeyFile(str(path), key, key.asbytes())
    except (TypeError, PasswordRequiredException):  # what cryptography raises for a passphrase that is not given
        return KeyFile(str(path), None, _public_half(path))
    except (OSError, ValueError, UnknownKeyType, SSHException) as error:
        if not required:
            return None
        why = error.strerror if isinstance(error, OSError) else "it holds no private key that can be read"
        message = f"The key {path} cannot be used: {why}."
        raise ClusterError("no_identity", message, "Correct `identity:` in the grid file.") from error


def _public_half(path: Path) -> bytes | None:
    with contextlib.suppress(OSError, ValueError):
        return bytes(PublicBlob.from_file(f"{path}.pub").key_blob)
    return None


def _unlocked(file: KeyFile, unlock: Unlock) -> paramiko.PKey | None:
    passphrase = unlock(file.path)
    if not passphrase:
        return None
    try:
        return paramiko.PKey.from_path(file.path, passphrase.encode())  # type: ignore[arg-type]  # bytes, in truth
    except (OSError, ValueError, TypeError, UnknownKeyType, SSHException) as error:
        message = f"That is not the passphrase of {file.path}."
        raise ClusterError("answer_refused", message, "Answer once more with `koala login`.") from error


# ---- certificates


def _certificates(resolved: Resolved, files: list[KeyFile]) -> Iterator[PublicBlob]:
    for path in (*resolved.certificates, *(f"{file.path}-cert.pub" for file in files)):
        with contextlib.suppress(OSError, ValueError):
            yield PublicBlob.from_file(path)


def _certified(key: paramiko.PKey, certificates: list[PublicBlob]) -> Iterator[paramiko.PKey]:
    """Yield the key with each certificate that was made for it, and then the key alone."""
    for certificate in certificates:
        if _certifies(certificate.key_blob, key.asbytes()):
            key.public_blob = certificate
            yield key
    key.public_blob = None
    yield key


def _certifies(certificate: bytes, key: bytes) -> bool:
    """Return whether the certificate is for the key.

    A certificate holds its kind, a nonce, and then the fields of its public key (OpenSSH's PROTOCOL.certkeys).
    """
    return _after(certificate, 2).startswith(_after(key, 1))


def _after(blob: bytes, fields: int) -> bytes:
    message = Message(blob)
    for _ in range(fields):
        message.get_binary()
    return bytes(message.get_remainder())


# ---- the agent


class _Held(NamedTuple):
    """Keys and certificates of an agent. It keeps a certificate beside its key, as if it were another one."""

    keys: list[AgentKey]
    certificates: list[PublicBlob]


@contextlib.contextmanager
def _agent(path: str | None) -> Iterator[_Held]:
    """Keys and certificates of the agent at this socket, connected during the block; none if it does not answer."""
    try:
        agent = _Agent(path) if path is not None else None
    except (SSHException, OSError):
        agent = None
    try:
        held = list(agent.get_keys()) if agent is not None else []
        certificates = [PublicBlob(type_=key.name, blob=key.blob) for key in held if _CERTIFICATE in key.name]
        yield _Held([key for key in held if _CERTIFICATE not in key.name], certificates)
    finally:
        if agent is not None:
            agent.close()


class _Agent(AgentSSH):
    """The agent at a given socket; paramiko's own class uses SSH_AUTH_SOCK alone."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._plug = socket.socket(socket.AF_UNIX)
        self._plug.settimeout(_AGENT_S)
        try:
            self._plug.connect(path)
            self._connect(self._plug)  # type: ignore[attr-defined]  # what every agent of paramiko's calls
        except BaseException:
            self._plug.close()
            raise

    def close(self) -> None:
        self._plug.close()
