"""Passing a job's output through while it runs, try after try."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from koalapy.calls import Document, NotReachable
from koalapy.cli.output import say
from koalapy.client import Grid
from koalapy.model.errors import KoalaError, TransientError

_FINAL = frozenset({"done", "failed", "cancelled"})
_LOOK_S = 0.3
_AGAIN_S = 1.0  # before output that broke off is asked for again
_LAST_TRIES = 5  # once the job is over


def follow_output(koalad: Grid, job: int, output: BinaryIO, errors: BinaryIO, tell: Callable[[Document], None]) -> None:
    """Write what the job's processes write, as it comes, until the job is over. Raises KoalaError.

    `tell` hears how the job is, again and again.
    """
    streams = (_Target("output", output), _Target("errors", errors))
    followed: dict[tuple[int, int, str], threading.Thread] = {}
    over = threading.Event()
    while not over.is_set():
        found = _look(koalad, job)
        tell(found)
        if found["state"] in _FINAL:
            over.set()
        for component in found["components"]:
            if not component["attempt"] or not component["started_at"]:
                continue
            for stream in streams:
                key = (component["index"], component["attempt"], stream.name)
                if key not in followed:
                    arguments = (koalad, job, component["index"], stream, over)
                    followed[key] = threading.Thread(target=_pass_on, args=arguments, daemon=True)
                    followed[key].start()
    for thread in followed.values():
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


def _pass_on(koalad: Grid, job: int, component: int, stream: _Target, over: threading.Event) -> None:
    """What breaks off is taken up again where it was, for as long as the job is not over and its cluster is back."""
    written, tries = 0, 0
    while True:
        passed = 0
        try:
            for piece in koalad.output(job, stream=stream.name, component=component, follow=True):
                stream.write(piece[max(0, written - passed) :])
                passed += len(piece)
                written = max(written, passed)
            return
        except KoalaError as error:
            tries += over.is_set()
            if not isinstance(error, TransientError) or isinstance(error, NotReachable) or tries > _LAST_TRIES:
                say(f"koala: the {stream.name} of component {component} broke off: {error.reason.message}")
                say(f"`koala logs {job}` has the rest when its cluster can be reached.")
                return
            time.sleep(_AGAIN_S)
