"""Passes a job's output through while it runs, attempt after attempt."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from koalapy.cli.output import print_message
from koalapy.client import Grid
from koalapy.client.calls import NotReachable
from koalapy.client.following import Reconnecting
from koalapy.client.grid import FINAL
from koalapy.common.lines import Writer
from koalapy.model.errors import KoalaError

if TYPE_CHECKING:
    from koalapy.answers.jobs import Job

_POLL_S = 0.3
_NEVER_RAN = "never_ran"


class File(Protocol):
    """A file to which output is written."""

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...

    def fileno(self) -> int: ...


def follow_output(
    koalad: Grid,
    job: int,
    output: File | None,
    errors: File | None,
    notify: Callable[[Job], None],
    prefix: bool | None,
    reconnect_s: float,
    without: Writer | None = None,
) -> None:
    """Write the output of the job's processes as it arrives, until the job is final.

    What has no file is not shown. `notify` is called with the job's document repeatedly. `prefix`: see Grid.output.
    `reconnect_s`: the seconds for which koalad may be unreachable. `without`: a process that is shown otherwise. Raises
    KoalaError, and NotReachable after that time.
    """
    files = {"output": output, "errors": errors}
    targets = [_Target(name, file) for name, file in files.items() if file is not None]
    reconnecting = Reconnecting(reconnect_s, print_message)
    threads = [
        threading.Thread(target=_pass_on, args=(koalad, job, each, prefix, reconnecting, without), daemon=True)
        for each in targets
    ]
    for thread in threads:
        thread.start()
    while True:
        asked_at = time.monotonic()
        try:
            found = _look(koalad, job)
            reconnecting.answered(asked_at)
            notify(found)
        except NotReachable as error:
            reconnecting.pause(error)
        else:
            if found["state"] in FINAL:
                break
    for thread in threads:
        thread.join()
    for target in targets:
        if target.error is not None:
            print_message(f"koala: the {target.name} broke off: {target.error.reason.message}")
            print_message(f"`koala logs {job}` has the rest when its cluster can be reached.")


class _Target:
    """One of the job's streams, and the file to which its pieces are written, each as a whole.

    `error`: why the output is incomplete, None if it is complete.
    """

    def __init__(self, name: str, file: File) -> None:
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
        """Discard the rest, because the reader has closed its end or the disk is full. The job continues."""
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)


def _look(koalad: Grid, job: int) -> Job:
    try:
        return koalad.wait([job], _POLL_S)[0]
    except TimeoutError:
        return koalad.jobs(ids=[job])[0]


def _pass_on(
    koalad: Grid, job: int, stream: _Target, prefix: bool | None, reconnecting: Reconnecting, without: Writer | None
) -> None:
    """Copy one stream to its target. koalad reconnects to clusters, and Grid reconnects to koalad."""
    try:
        pieces = koalad.output(
            job, stream=stream.name, follow=True, prefix=prefix, reconnect=reconnecting, without=without
        )
        for piece in pieces:
            stream.write(piece)
    except KoalaError as error:
        if error.reason.code != _NEVER_RAN:  # otherwise the job's own reason explains it
            stream.error = error
