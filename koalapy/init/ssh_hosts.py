"""The hosts of a person's ssh configuration: aliases without wildcards, to which a login is possible."""

import glob
import os
import pwd
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from koalapy.locations import home

_DEPTH = 8  # of nested includes; OpenSSH allows 16
_WORDS = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")


def ssh_hosts(config: Path | None = None, own: Path | None = None) -> list[str]:
    """Return the hosts in the order of the files, each once; [] without a file.

    `config`: used instead of the person's file, as by `ssh -F`. `own`: used instead of the person's ~/.ssh.
    """
    base = own or _of_openssh()
    return list(dict.fromkeys(_hosts(config or base / "config", base, 0)))


def _of_openssh() -> Path:
    """Return the .ssh directory of the home in the password database, since OpenSSH ignores $HOME."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    except KeyError:
        return home() / ".ssh"


def _hosts(path: Path, base: Path, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        return
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        match = _WORDS.match(line)
        if match is None:
            continue
        word, values = match[1].lower(), _values(match[2])
        if word == "host":
            yield from (name for name in values if not set(name) & set("*?!"))
        elif word == "include":
            for value in values:
                yield from _included(base, value, depth)


def _included(base: Path, pattern: str, depth: int) -> Iterator[str]:
    """Yield the hosts of included files. A relative path is relative to ~/.ssh in every file (ssh_config(5))."""
    for name in sorted(glob.glob(os.path.join(base, os.path.expanduser(pattern)))):
        yield from _hosts(Path(name), base, depth + 1)


def _values(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return []
