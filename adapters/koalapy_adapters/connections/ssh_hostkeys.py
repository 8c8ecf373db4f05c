"""Verifies a head node's host key against known_hosts. Nothing is trusted on first use."""

import contextlib
import os
from collections.abc import Iterable

import paramiko

from koalapy_adapters.errors import SiteError

DEFAULT_PORT = 22
_USUAL = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
_RSA = ("rsa-sha2-512", "rsa-sha2-256")  # how a key that known_hosts calls ssh-rsa is used today


def known_keys(host: str, port: int, file: str | None) -> dict[str, paramiko.PKey]:
    """The host's keys by kind, from the grid file's known_hosts, else from the user's own and the system's.

    Hashed names are found too. As in OpenSSH, `[host]:port` comes before the host alone. Raises SiteError.
    """
    hosts = paramiko.HostKeys()
    if file is not None:
        _load_named(hosts, file)
    else:
        for name in _USUAL:
            with contextlib.suppress(OSError, ValueError):
                hosts.load(os.path.expanduser(name))
    names = [host] if port == DEFAULT_PORT else [f"[{host}]:{port}", host]
    return next((dict(found) for name in names if (found := hosts.lookup(name))), {})


def prefer(transport: paramiko.Transport, kinds: Iterable[str]) -> None:
    """Ask the server for a host key of a kind that is known, so that another kind is not taken for a wrong key."""
    options = transport.get_security_options()
    wanted = [name for kind in kinds for name in (_RSA if kind == "ssh-rsa" else (kind,))]
    usable = [name for name in wanted if name in options.key_types]
    if usable:
        options.key_types = usable


def verify(where: str, key: paramiko.PKey, known: dict[str, paramiko.PKey]) -> None:
    """Raises SiteError for a key that is not the known one."""
    if not known:
        message = f"The host key of {where} is not known; it shows {key.get_name()} {key.fingerprint}."
        advice = "Compare it with what the site publishes, then add it to known_hosts, as by one login with ssh."
        raise SiteError("unknown_host_key", message, advice)
    if known.get(key.get_name()) != key:
        message = f"{where} shows another host key ({key.fingerprint}) than known_hosts has: someone may be in between."
        raise SiteError("wrong_host_key", message, "Ask its administrators before you change known_hosts.")


def _load_named(hosts: paramiko.HostKeys, file: str) -> None:
    try:
        hosts.load(os.path.expanduser(file))
    except (OSError, ValueError) as error:
        message = f"The known_hosts file {file} cannot be read: {error}."
        raise SiteError("no_known_hosts", message, "Correct `known_hosts:` in the grid file.") from error
