"""Verify a host's key against known_hosts files, as sshd(8) describes them. Nothing is trusted on first use."""

import base64
import binascii
import fnmatch
import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import paramiko

from koalapy_adapters.connections.ssh_config import DEFAULT_PORT
from koalapy_adapters.errors import ClusterError

_REVOKED = "@revoked"
_RSA = ("rsa-sha2-512", "rsa-sha2-256")  # how a key that known_hosts calls ssh-rsa is used today


class HostKey(NamedTuple):
    """A host's key from a line of known_hosts."""

    kind: str
    blob: bytes
    revoked: bool = False


def known_keys(names: Iterable[str], files: Iterable[str], required: bool = False) -> list[HostKey]:
    """Return a host's keys: those of the first of its names that the files have, and the revoked ones of all names.

    Raises ClusterError if a file is required and cannot be read.
    """
    lines = [line for file in files for line in _lines(file, required)]
    found: list[HostKey] = []
    for name in names:
        of_name = [key for patterns, key in lines if _matches(patterns, name)]
        found += [key for key in of_name if key.revoked or not any(not each.revoked for each in found)]
    return found


def names_of(host: str, port: int) -> list[str]:
    """Names of a host in known_hosts; as in OpenSSH, `[host]:port` comes before the host alone."""
    host = host.lower()
    return [host] if port == DEFAULT_PORT else [f"[{host}]:{port}", host]


def prefer(transport: paramiko.Transport, known: Iterable[HostKey]) -> None:
    """Ask the server for a host key of a kind that is known, so that another kind is not taken for a wrong key."""
    options = transport.get_security_options()
    kinds = [key.kind for key in known if not key.revoked]
    wanted = [name for kind in kinds for name in (_RSA if kind == "ssh-rsa" else (kind,))]
    usable = list(dict.fromkeys(name for name in wanted if name in options.key_types))
    if usable:
        options.key_types = usable


def verify(where: str, key: paramiko.PKey, known: list[HostKey]) -> None:
    """Verify the key that a host shows. Raises ClusterError if it is unknown, revoked, or not a known one."""
    shown = HostKey(key.get_name(), key.asbytes())
    if shown._replace(revoked=True) in known:
        message = f"{where} shows a host key that known_hosts has as revoked ({key.fingerprint})."
        raise ClusterError("wrong_host_key", message, "Do not log in there; ask its administrators.")
    if not any(not each.revoked for each in known):
        message = f"The host key of {where} is not known; it shows {key.get_name()} {key.fingerprint}."
        advice = (
            "Compare it with what the administrators publish, then add it to known_hosts, as by one login with ssh."
        )
        raise ClusterError("unknown_host_key", message, advice)
    if shown not in known:
        message = f"{where} shows another host key ({key.fingerprint}) than known_hosts has: someone may be in between."
        raise ClusterError("wrong_host_key", message, "Ask its administrators before you change known_hosts.")


def _lines(file: str, required: bool) -> Iterator[tuple[str, HostKey]]:
    """Yield patterns and key of each line. Certificate authorities are left out: paramiko cannot verify them."""
    try:
        with open(os.path.expanduser(file), encoding="utf-8", errors="replace") as opened:
            text = opened.read()
    except OSError as error:
        if not required:
            return
        message = f"The known_hosts file {file} cannot be read: {error.strerror}."
        raise ClusterError("no_known_hosts", message, "Correct `known_hosts:` in the grid file.") from error
    for line in text.splitlines():
        marker, _, rest = line.strip().partition(" ") if line.lstrip().startswith("@") else ("", "", line)
        fields = rest.split()
        if len(fields) < 3 or fields[0].startswith("#") or marker not in ("", _REVOKED):
            continue
        try:
            blob = base64.b64decode(fields[2], validate=True)
        except binascii.Error:
            continue
        yield fields[0], HostKey(fields[1], blob, marker == _REVOKED)


def _matches(patterns: str, name: str) -> bool:
    """Return whether the patterns match the name: one hashed name, or patterns with `*` and `?`.

    One with `!` excludes the name.
    """
    if patterns.startswith("|"):
        return _is_hash_of(patterns, name)
    listed = patterns.lower().split(",")
    if any(_fits(each[1:], name) for each in listed if each.startswith("!")):
        return False
    return any(_fits(each, name) for each in listed if not each.startswith("!"))


def _fits(pattern: str, name: str) -> bool:
    """Return whether one pattern matches the name. Its brackets are those of `[host]:port`."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _is_hash_of(text: str, name: str) -> bool:
    """Return whether the text is a hash of the name, in the form |1|SALT|HMAC-SHA1."""
    try:
        _, version, salt, digest = text.split("|")
        wanted = base64.b64decode(digest)
        made = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
    except (ValueError, binascii.Error):
        return False
    return version == "1" and hmac.compare_digest(made, wanted)
