"""A search for the Python interpreters of a head node, over a login that needs none of them."""

import re
import threading
from typing import NamedTuple

from koalapy_adapters.connections.loader import OLDEST
from koalapy_adapters.connections.protocol import Connection
from koalapy_adapters.connections.shell import through_login_shell
from koalapy_adapters.errors import BatchError

_PATIENCE_S = 20.0
_MARK = "koalapy-python"
_NAMES = " ".join(["python3", *(f"python3.{minor}" for minor in range(20, 5, -1))])
_PLACES = "/usr/bin/python3.[0-9]* /usr/local/bin/python3 /opt/*/bin/python3 /opt/rh/*/root/bin/python3"
_PROGRAM = "import shlex, sys; print(sys.version.split()[0])"  # that of python3-minimal has no shlex
_SCRIPT = (
    f"for p in $(for n in {_NAMES}; do command -v $n; done; ls {_PLACES} 2>/dev/null); do "
    f"v=$($p -c '{_PROGRAM}' 2>/dev/null) && echo {_MARK} $p $v; done"
)


class Python(NamedTuple):
    path: str
    version: str

    @property
    def parts(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:3])

    @property
    def usable(self) -> bool:
        return self.parts >= OLDEST


def find_pythons(connection: Connection) -> list[Python]:
    """Return the interpreters that start: those on a login shell's path first, then those at usual places.

    Raises BatchError if the login fails.
    """
    channel = connection.open(through_login_shell(_SCRIPT), lambda line: None)
    timer = threading.Timer(_PATIENCE_S, channel.close)
    timer.start()
    output = b""
    try:
        while data := channel.read(65_536):
            output += data
    finally:
        timer.cancel()
        channel.close()
    return parse(output.decode(errors="replace"))


def parse(text: str) -> list[Python]:
    """Return the interpreters in the script's output, each path once.

    Other lines, such as a login's greeting, are skipped.
    """
    found = re.findall(rf"^{_MARK} (/\S+) (\d+\.\d+\.\d+\S*)$", text, re.MULTILINE)
    return [Python(path, version) for path, version in dict(found).items()]


def suggested(connection: Connection) -> str:
    """Return the path to write as `python:`, '' if no interpreter is usable or the login fails."""
    try:
        found = [python for python in find_pythons(connection) if python.usable]
    except BatchError:
        return ""
    return found[0].path if found else ""
