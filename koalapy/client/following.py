"""Assembles followed output into whole lines, each once, across interrupted answers."""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from koalapy.client.calls import NotReachable, error_of
from koalapy.common.lines import Interleaving, Writer
from koalapy.model.errors import OurError

RECONNECT_S = 60.0  # a restart of koalad takes seconds
_TRY_AGAIN_S = 0.5


class Reconnecting:
    """Limits the time for which koalad may be unreachable after an answer, as during a restart.

    `report` is called with a line when koalad becomes unreachable, and when it answers again. Threads may share it.
    """

    def __init__(self, patience_s: float = RECONNECT_S, report: Callable[[str], None] | None = None) -> None:
        self._patience_s = patience_s
        self._report = report or logging.getLogger("koalapy").warning
        self._lock = threading.Lock()
        self._reached = False
        self._silent_since: float | None = None

    def answered(self, asked_at: float) -> None:
        """Record an answer to a request of `asked_at` (time.monotonic). An ending koalad may finish older answers."""
        with self._lock:
            self._reached = True
            if self._silent_since is not None and asked_at > self._silent_since:
                self._report("koalad answers again.")
                self._silent_since = None

    def pause(self, error: NotReachable) -> None:
        """Wait a moment before the next try. Raises the error if koalad has been unreachable for too long."""
        now = time.monotonic()
        with self._lock:
            if self._silent_since is None:
                if self._reached and self._patience_s:
                    self._report(f"{error.reason.message} Waiting for it for {self._patience_s:g} s.")
                self._silent_since = now
            if not self._reached or now - self._silent_since >= self._patience_s:
                raise error
        time.sleep(_TRY_AGAIN_S)


class FollowedLines:
    """Turns the frames of /v1/jobs/{job}/follow into whole lines.

    With `prefix` each line begins with its component and rank; None: if there are several components. `without`: a
    process whose output is left out. `has_ended` is True after the last frame.
    """

    def __init__(self, prefix: bool | None = None, without: Writer | None = None) -> None:
        self._prefix, self._without = prefix, without
        self._lines: Interleaving | None = None
        self._attempts: dict[int, int] = {}
        self._read: dict[tuple[int, int, int], int] = {}  # bytes by component, attempt and rank
        self._begin()

    def _begin(self) -> None:
        self._buffer = bytearray()
        self._writer, self._left = (0, 0, 0), 0  # position of the frame whose bytes are arriving, and its missing bytes
        self.has_ended = False

    def restart(self) -> list[list[int]] | None:
        """Prepare for another answer, and return the positions to request; None before the first answer."""
        self._begin()
        return None if self._lines is None else [[*writer, size] for writer, size in self._read.items()]

    def feed(self, piece: bytes) -> bytes:
        """Take a piece of the answer, and return the lines that are complete. Raises koalad's error if it sent one."""
        self._buffer += piece
        shown = bytearray()
        while self._buffer:
            if self._left:
                data = bytes(self._buffer[: self._left])
                del self._buffer[: self._left]
                shown += self._take(data)
                continue
            end = self._buffer.find(b"\n")
            if end < 0:
                break
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if line:
                shown += self._frame(json.loads(line))
        return bytes(shown)

    def _frame(self, frame: Any) -> bytes:
        match frame:
            case [int(component), int(attempt), int(rank), int(size)]:
                self._writer, self._left = (component, attempt, rank), size
                begun = self._attempts.setdefault(component, attempt)
                self._attempts[component] = attempt
                return b"" if begun == attempt else self._end(component)
            case [int(component), int()]:
                return self._end(component)
            case {"components": [*components]}:
                if self._lines is None:
                    prefix = len(components) > 1 if self._prefix is None else self._prefix
                    self._lines = Interleaving(prefix, alone=len(components) == 1 and components[0][1] == 1)
            case {"end": None}:
                self.has_ended = True
            case {"end": {"error": error}}:
                raise error_of(error)
            case _:
                raise OurError("bad_answer", f"koalad answered {str(frame)[:200]}", "Look at its log.")
        return b""

    def _end(self, component: int) -> bytes:
        """Return the last lines of a component's processes, complete or not."""
        assert self._lines is not None
        return self._lines.end(component)

    def _take(self, data: bytes) -> bytes:
        assert self._lines is not None
        self._left -= len(data)
        self._read[self._writer] = self._read.get(self._writer, 0) + len(data)
        writer = Writer(self._writer[0], self._writer[2])
        return b"" if writer == self._without else self._lines.take(writer, data)
