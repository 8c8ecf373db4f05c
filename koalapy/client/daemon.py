"""Start koalad detached from the terminal, wait until it is ready, and wait for its end."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from koalapy.common.locations import Locations
from koalapy.model.errors import KoalaError, OurError, RequestError, TransientError

_READY_S = 120.0
_HELD_S = 30.0  # for another koalad of this grid to be ready, or to have ended
_POLL_S = 0.1
_KINDS: dict[str, type[KoalaError]] = {"request": RequestError, "transient": TransientError}


def start(locations: Locations, is_up: Callable[[], bool]) -> bool:
    """Start koalad of this grid file and return True when it is ready; False if `is_up` finds it running already.

    Raises KoalaError with koalad's own words; then this call has left no koalad running.
    """
    deadline = time.monotonic() + _HELD_S
    while not is_up():
        answer = _launch(locations)
        if "error" not in answer:
            return True
        if answer["code"] != "store_locked" or time.monotonic() > deadline:
            raise _KINDS.get(answer["whose"], OurError)(answer["code"], answer["error"], answer["advice"])
        time.sleep(_POLL_S)  # another koalad has the store: it starts, or it ends
    return False


def wait_for_end(pid: int, timeout_s: float) -> bool:
    """Return whether the process ends within `timeout_s` seconds. A child process of ours is reaped."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended = bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return ended


def _launch(locations: Locations) -> dict[str, str]:
    """Start koalad once and return its one line: {"pid": …} or {"error", "advice", "code", "whose"}.

    Raises RequestError without a grid file, OurError if koalad cannot be started or is not ready in time.
    """
    if locations.grid_file is None:
        advice = "Give the path of its grid file with --grid."
        message = f"There is no grid file {locations.grid}, and no koalad of that name runs."
        raise RequestError("no_grid_file", message, advice)
    locations.make()
    reader, writer = os.pipe()
    try:
        process = _spawn(locations, locations.grid_file, writer)
    finally:
        os.close(writer)
    try:
        answer = _read_answer(reader, locations)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        os.close(reader)
    if "error" in answer:
        process.wait()
    process.returncode = 0  # it is on its own from now on
    return answer


def _spawn(locations: Locations, grid_file: Path, ready: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "koalapy.koalad", "--grid", str(grid_file), "--ready-fd", str(ready)]
    command += ["--log-file", str(locations.log)]
    try:
        with locations.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(ready,),
                start_new_session=True,
                cwd="/",
            )
    except OSError as error:
        message = f"koalad cannot be started: {error.strerror} ({error.filename})."
        raise OurError("not_started", message, "Make room or change permissions there, then try again.") from error


def _read_answer(reader: int, locations: Locations) -> dict[str, str]:
    data = b""
    deadline = time.monotonic() + _READY_S
    while not data.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            raise OurError("not_ready", f"koalad was not ready after {_READY_S:.0f} s.", _look_at(locations))
        piece = os.read(reader, 65_536)
        if not piece:
            raise OurError("not_started", "koalad ended before it was ready.", _look_at(locations))
        data += piece
    return dict(json.loads(data))


def _look_at(locations: Locations) -> str:
    return f"Look at the end of {locations.log}."
