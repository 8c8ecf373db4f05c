"""Logs in by key: the identity file of the grid file, the agent's keys, the user's own. Never asks for a password."""

import os
from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import AuthenticationException, SSHException

from koalapy_adapters.errors import SiteError

OPENSSH = 'Or let your own OpenSSH connect, by `connect: "command:ssh -T HOST"`.'
_OWN = ("id_ed25519", "id_ecdsa", "id_rsa")


def log_in(transport: paramiko.Transport, where: str, user: str, identity: str | None) -> None:
    """Raises SiteError if no key is let in. The server counts tries: the most likely key comes first."""
    locked: list[str] = []
    tried = 0
    for key in _keys(identity, locked):
        tried += 1
        try:
            if not (further := transport.auth_publickey(user, key)):
                return
        except AuthenticationException:
            continue
        except (SSHException, EOFError) as error:
            if not transport.is_active():
                raise _refused(where, user, f"it ended the login after {tried} keys") from error
            continue
        raise _refused(where, user, f"besides the key it wants {' or '.join(further)}")
    if locked:
        message = f"{where} does not let {user} in: the key {locked[0]} is locked by a passphrase."
        raise SiteError("authentication", message, f"Unlock it with `ssh-add {locked[0]}`. {OPENSSH}")
    raise _refused(where, user, f"none of {tried} keys is accepted" if tried else "there is no key to show")


def _keys(identity: str | None, locked: list[str]) -> Iterator[paramiko.PKey]:
    if identity is not None:
        yield from _read(Path(identity).expanduser(), locked, required=True)
    yield from _agent_keys()
    if identity is None:
        for name in _OWN:
            yield from _read(Path.home() / ".ssh" / name, locked, required=False)


def _read(path: Path, locked: list[str], required: bool) -> Iterator[paramiko.PKey]:
    """The key of a file, if it can be used without asking."""
    try:
        yield paramiko.PKey.from_path(path)
    except TypeError:  # what cryptography raises for a passphrase that is needed and not given
        locked.append(str(path))
    except (OSError, ValueError, UnknownKeyType) as error:
        if required:
            why = error.strerror if isinstance(error, OSError) else "it holds no private key that can be read"
            message = f"The key {path} cannot be used: {why}."
            raise SiteError("no_identity", message, "Correct `identity:` in the grid file.") from error


def _agent_keys() -> Iterator[paramiko.PKey]:
    if not os.environ.get("SSH_AUTH_SOCK"):
        return
    try:
        agent = paramiko.Agent()
    except (SSHException, OSError):  # a socket that its agent has left behind
        return
    try:
        yield from agent.get_keys()
    finally:
        agent.close()


def _refused(where: str, user: str, why: str) -> SiteError:
    advice = f"Check `connect:` and `identity:` in the grid file, and the keys of your agent. {OPENSSH}"
    return SiteError("authentication", f"{where} does not let {user} in: {why}.", advice)
