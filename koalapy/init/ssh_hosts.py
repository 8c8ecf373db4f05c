"""The hosts of a person's ssh configuration: aliases without wildcards, to which a login is possible."""

import glob
import os
import pwd
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from koalapy.common.locations import home

_DEPTH = 8  # of nested includes; OpenSSH allows 16
_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+""")
_PLAIN = re.compile(r"""[^"'\\]+""")
_LONGEST = 4096  # characters of a word with quotes
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
    if "\0" in pattern:
        return  # no path has one
    for name in sorted(glob.glob(os.path.join(base, os.path.expanduser(pattern)))):
        yield from _hosts(Path(name), base, depth + 1)


def _values(text: str) -> list[str]:
    """Return the words of a line up to a comment; [] if a quote is not closed, or a word has very much in quotes.

    shlex reads each word for itself, since its time grows with the square of a text's length.
    """
    words: list[str] = []
    end = 0
    for found in _WORD.finditer(text):
        if text[end : found.start()].strip():
            return []
        if found[0].startswith("#"):
            return words
        end = found.end()
        if _PLAIN.fullmatch(found[0]):
            words.append(found[0])
        elif len(found[0]) <= _LONGEST:
            words += shlex.split(found[0])
        else:
            return []
    return [] if text[end:].strip() else words
