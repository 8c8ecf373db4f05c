"""Where the program is, checked on the first node before anybody waits for this component."""

import os
from typing import Callable, Dict, List, Optional

from koalapy_adapters.host.spawn import encoded
from koalapy_adapters.wrapper.events import Json
from koalapy_adapters.wrapper.failure_texts import no_executable

_STAGE = "Stage it in, or name it by an absolute path."
_CORRECT = "Correct the path, look whether the nodes see that directory, or stage the program in."
_STAGE_IN = "Stage it in, or ask who opened the pilot to make its directory `visible`."
_PERMIT = "Set its executable bit (chmod +x)."


class NoExecutable(Exception):
    """The program cannot be run. `error`: its path and the reason."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.error = error


def locate(
    executable: str, work: str, environment: Dict[str, str], shows: Optional[Callable[[str], bool]] = None
) -> str:
    """Its absolute path. With a slash: absolute or in the directory `work`; without: on the environment's PATH.

    `shows(path)`: whether the program sees this file, if it is isolated. Raises NoExecutable.
    """
    if "/" in executable:
        path = os.path.join(work, executable)
        if shows is not None and not shows(path):
            raise NoExecutable(no_executable(executable, "is not visible to an isolated program", _STAGE_IN))
        _check(executable, path)
        return path
    for place in _places(work, environment):
        path = os.path.join(place, executable)
        if shows is not None and not shows(path):
            continue
        if os.path.isfile(encoded(path)) and os.access(encoded(path), os.X_OK):
            _check(executable, path)
            return path
    advice = "Correct its name, load it with `setup`, or write ./%s for one that is staged in." % executable
    if " " in executable.strip():
        advice = "Write only `%s` there, and what follows it into `arguments`." % executable.split()[0]
    raise NoExecutable(no_executable(executable, "is not on the PATH of the cluster's nodes", advice))


def _places(work: str, environment: Dict[str, str]) -> List[str]:
    return [os.path.join(work, place) for place in environment.get("PATH", "/usr/bin:/bin").split(":")]


def _check(executable: str, path: str) -> None:
    raw, stage = encoded(path), _CORRECT if os.path.isabs(executable) else _STAGE
    if not os.path.exists(raw):
        raise NoExecutable(no_executable(executable, "does not exist on the cluster", stage))
    if not os.path.isfile(raw):
        raise NoExecutable(no_executable(executable, "is not a file", stage))
    if not os.access(raw, os.X_OK):
        raise NoExecutable(no_executable(executable, "may not be executed", _PERMIT))
    interpreter = _interpreter(raw)
    if interpreter and not os.access(interpreter, os.X_OK):
        named = interpreter.decode("utf-8", "replace")
        advice = "Correct the first line of the script; a trailing carriage return would also be part of that name."
        raise NoExecutable(no_executable(executable, "needs the interpreter %r, which is not there" % named, advice))


def _interpreter(path: bytes) -> bytes:
    """The interpreter in a script's first line; empty for any other file, and for one that may be run but not read."""
    try:
        with open(path, "rb") as file:
            first = file.read(256)
    except OSError:
        return b""
    if not first.startswith(b"#!"):
        return b""
    words = first[2:].partition(b"\n")[0].split(None, 1)
    return words[0] if words and words[0].startswith(b"/") else b""
