"""Passing a job's output through while it runs, try after try."""

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from koalapy.cli.output import say
from koalapy.client import Grid
from koalapy.model.errors import KoalaError

Document = Mapping[str, Any]

_FINAL = frozenset({"done", "failed", "cancelled"})
_LOOK_S = 0.3
_NEVER_RAN = "never_ran"


def follow_output(
    koalad: Grid, job: int, output: BinaryIO, errors: BinaryIO, tell: Callable[[Document], None], prefix: bool | None
) -> None:
    """Write what the job's processes write, as it comes, until the job is over. Raises KoalaError.

    `tell` hears how the job is, again and again. `prefix`: see Grid.output.
    """
    targets = (_Target("output", output), _Target("errors", errors))
    threads = [threading.Thread(target=_pass_on, args=(koalad, job, each, prefix), daemon=True) for each in targets]
    for thread in threads:
        thread.start()
    while (found := _look(koalad, job))["state"] not in _FINAL:
        tell(found)
    tell(found)
    for thread in threads:
        thread.join()


class _Target:
    """One of the job's streams, and where it is written to: piece by piece, each whole, as long as anybody reads."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name, self._file = name, file
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        with self._lock:
            try:
                self._file.write(data)
                self._file.flush()
            except OSError:
                self._leave()

    def _leave(self) -> None:
        """Nobody reads any more, as with `| head`, or there is no room: the job goes on, and the rest is dropped."""
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)


def _look(koalad: Grid, job: int) -> Document:
    try:
        return koalad.wait([job], _LOOK_S)[0]
    except TimeoutError:
        return koalad.jobs(ids=[job])[0]


def _pass_on(koalad: Grid, job: int, stream: _Target, prefix: bool | None) -> None:
    """koalad takes up what breaks off between it and a cluster."""
    try:
        for piece in koalad.output(job, stream=stream.name, follow=True, prefix=prefix):
            stream.write(piece)
    except KoalaError as error:
        if error.reason.code == _NEVER_RAN:  # the job's own reason says why
            return
        say(f"koala: the {stream.name} broke off: {error.reason.message}")
        say(f"`koala logs {job}` has the rest when its cluster can be reached.")
