"""The sweep's program, with command line and environment for each number."""

import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from koalapy_adapters.host.spawn import encoded
from koalapy_adapters.launcher.parameter_files import Lines
from koalapy_adapters.launcher.space import Compiled

Json = Dict[str, Any]


class Call(NamedTuple):
    """The command line and environment of one parameter."""

    path: bytes
    argv: List[bytes]
    environment: Mapping[bytes, bytes]


class Program:
    """The template of component.json. `work` is the working directory, in which also its files of parameters are."""

    def __init__(self, program: Json, environment: Mapping[str, str], work: str) -> None:
        """`environment` is the attempt's. Raises ValueError for an invalid template."""
        own = [(name, value) for name, value in program["environment"] if "{" in value or "}" in value]
        self._names = [encoded(name) for name, _ in own]
        self._environment = {encoded(name): encoded(value) for name, value in environment.items()}
        self._environment[b"KOALA_SWEEP"] = b"%d" % program["sweep"]["sweep"]
        self._work = encoded(work)
        self._found: Dict[bytes, bytes] = {}
        texts = [program["executable"], *program["arguments"], *(value for _, value in own)]
        self._words = 1 + len(program["arguments"])
        self._compiled = Compiled(program["sweep"]["space"], texts, Lines(work).read)

    def of_slot(self, slot: int) -> None:
        """Set the slot that runs the program."""
        self._environment[b"KOALA_SLOT"] = b"%d" % slot

    def call(self, number: int) -> Call:
        """The call for a parameter. Raises ValueError if it has no value, and OSError if there is no such program."""
        texts = self._compiled.of(number)
        environment = self._environment
        environment[b"KOALA_PARAMETER"] = b"%d" % number
        if self._names:
            environment.update(zip(self._names, texts[self._words :]))
        executable = texts[0]
        path = self._found.get(executable) or self._locate(executable)
        argv = texts[: self._words]
        argv[0] = path
        return Call(path, argv, environment)

    def _locate(self, executable: bytes) -> bytes:
        path = executable if b"/" in executable else self._on_path(executable)
        if path is None:
            raise FileNotFoundError(2, "it is not on the PATH of the cluster's nodes")
        if len(self._found) < 1000:
            self._found[executable] = path = os.path.join(self._work, path)
        return path

    def _on_path(self, name: bytes) -> Optional[bytes]:
        for place in self._environment.get(b"PATH", b"/usr/bin:/bin").split(b":"):
            path = os.path.join(self._work, place, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
        return None


def limits(sweep: Json) -> Tuple[Optional[float], int]:
    """One parameter's walltime in seconds, or None, and the number of bytes that it may write."""
    return sweep.get("limit_s"), sweep.get("output_limit") or _OUTPUT_LIMIT


_OUTPUT_LIMIT = 1 << 30
