"""Passing a job's output through while it runs, try after try."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from koalapy.calls import NotReachable
from koalapy.cli.output import print_message
from koalapy.client import Grid
from koalapy.client.following import Reconnecting
from koalapy.model.errors import KoalaError

Document = Mapping[str, Any]

_FINAL = frozenset({"done", "failed", "cancelled"})
_LOOK_S = 0.3
_NEVER_RAN = "never_ran"


def follow_output(
    koalad: Grid,
    job: int,
    output: BinaryIO,
    errors: BinaryIO,
    tell: Callable[[Document], None],
    prefix: bool | None,
    reconnect_s: float,
) -> None:
    """Write what the job's processes write, as it comes, until the job is over.

    `tell` hears how the job is, again and again. `prefix`: see Grid.output. koalad may be away for `reconnect_s`.
    Raises KoalaError, NotReachable after that time.
    """
    targets = (_Target("output", output), _Target("errors", errors))
    reconnecting = Reconnecting(reconnect_s, print_message)
    threads = [
        threading.Thread(target=_pass_on, args=(koalad, job, each, prefix, reconnecting), daemon=True)
        for each in targets
    ]
    for thread in threads:
        thread.start()
    while True:
        asked_at = time.monotonic()
        try:
            found = _look(koalad, job)
            reconnecting.answered(asked_at)
            tell(found)
        except NotReachable as error:
            reconnecting.pause(error)
        else:
            if found["state"] in _FINAL:
                break
    for thread in threads:
        thread.join()
    for target in targets:
        if target.error is not None:
            print_message(f"koala: the {target.name} broke off: {target.error.reason.message}")
            print_message(f"`koala logs {job}` has the rest when its cluster can be reached.")


class _Target:
    """One of the job's streams, and where it is written to: piece by piece, each whole, as long as anybody reads.

    `error`: why not all of it came.
    """

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name, self._file = name, file
        self.error: KoalaError | None = None
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        with self._lock:
            try:
                self._file.write(data)
                self._file.flush()
            except OSError:
                self._leave()

    def _leave(self) -> None:
        """Drop the rest: its reader has gone, as with `| head`, or the disk is full; the job goes on."""
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)


def _look(koalad: Grid, job: int) -> Document:
    try:
        return koalad.wait([job], _LOOK_S)[0]
    except TimeoutError:
        return koalad.jobs(ids=[job])[0]


def _pass_on(koalad: Grid, job: int, stream: _Target, prefix: bool | None, reconnecting: Reconnecting) -> None:
    """koalad takes up what breaks off between it and a cluster, and Grid what breaks off between it and koalad."""
    try:
        for piece in koalad.output(job, stream=stream.name, follow=True, prefix=prefix, reconnect=reconnecting):
            stream.write(piece)
    except KoalaError as error:
        if error.reason.code != _NEVER_RAN:  # the job's own reason says why
            stream.error = error
