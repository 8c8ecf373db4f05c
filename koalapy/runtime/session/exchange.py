"""One request under way in a session: its answer, and the chunks and credit of its stream."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from koalapy_adapters.frames import INITIAL_CREDIT, FrameError
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.kcm import Done, Refused

from koalapy.link.translate import reason_of
from koalapy.model.errors import ClusterError, KoalaError, Reason, TransientError

T = TypeVar("T")

POLL_S = 1.0  # between checks whether the result is still wanted


class RefusedError(KoalaError):
    """The KCM refused a request. `reason`: why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code, reason.message, reason.advice)
        self.reason = reason
        self.whose = reason.whose


class Exchange:
    """One request. The session's reader fills it, and the thread that sent it waits for it.

    `id`: the number of the request and of its stream.
    """

    def __init__(self, id: int) -> None:
        self.id = id
        self._changed = threading.Condition()
        self._credit = INITIAL_CREDIT  # chunks that may be sent
        self._open = INITIAL_CREDIT  # chunks that may still arrive
        self._chunks: deque[bytes] = deque()
        self._ended = False
        self._answer: Any = None
        self._lost: Reason | None = None

    # ---- what the reader calls

    def granted(self, chunks: int) -> None:
        """Add credit. Raises FrameError if it exceeds the chunks sent: it would let a whole file into memory."""
        with self._changed:
            self._credit += chunks
            if self._credit > INITIAL_CREDIT:
                raise FrameError("credit for more chunks than were sent")
            self._changed.notify_all()

    def arrived(self, data: bytes) -> None:
        """Add a chunk; an empty one ends the stream. Raises FrameError if there was no credit for it."""
        with self._changed:
            self._open -= 1
            if self._open < 0:
                raise FrameError("a chunk beyond the credit of its stream")
            self._ended = self._ended or not data
            self._chunks.append(data)
            self._changed.notify_all()

    def answered(self, message: Any) -> None:
        with self._changed:
            self._answer = message
            self._changed.notify_all()

    def lost(self, reason: Reason) -> None:
        with self._changed:
            self._lost = self._lost or reason
            self._changed.notify_all()

    # ---- what the asker calls

    def grant(self, chunks: int) -> None:
        """Allow this number of further chunks. Call it before the credit is sent to the other side."""
        with self._changed:
            self._open += chunks

    def may_send(self, limit_s: float | None = None, look: Callable[[], None] = lambda: None) -> bool:
        """Wait for the credit to send one more chunk, and take it. False if an answer is first, or the link is lost.

        `look` is called about every POLL_S seconds, and may raise. Raises TimeoutError after `limit_s` seconds.
        """
        self._await(lambda: self._credit > 0 or self._has_ended(), limit_s, look)
        with self._changed:
            if self._has_ended():
                return False
            self._credit -= 1
            return True

    def chunks(self, limit_s: float | None = None) -> Iterator[bytes]:
        """Yield the chunks until the stream ends or is refused, and b"" about every POLL_S seconds without one.

        Raises TransientError if the link is lost before, and TimeoutError if nothing has arrived for `limit_s` seconds.
        """
        since = time.monotonic()
        while True:
            with self._changed:
                there = self._changed.wait_for(lambda: self._chunks or self._has_ended(), POLL_S)
                data = self._chunks.popleft() if self._chunks else b""
                if there and not data:
                    if not self._ended and self._answer is None:
                        self._raise_lost()
                    return
            if not there and limit_s is not None and time.monotonic() - since >= limit_s:
                raise TimeoutError
            yield data
            if data:
                since = time.monotonic()

    def answer(self, limit_s: float | None = None, look: Callable[[], None] = lambda: None) -> Any:
        """Wait for the answer, and return it. `look` is called about every POLL_S seconds, and may raise.

        Raises RefusedError if the KCM refuses, TransientError if the link is lost before, and TimeoutError after
        `limit_s` seconds.
        """
        self._await(self._has_ended, limit_s, look)
        if self._answer is None:
            self._raise_lost()
        if isinstance(self._answer, Refused):
            raise RefusedError(reason_of(self._answer.error))
        return self._answer

    def _has_ended(self) -> bool:
        return self._answer is not None or self._lost is not None

    def _await(self, there: Callable[[], bool], limit_s: float | None, look: Callable[[], None]) -> None:
        began = time.monotonic()
        while True:
            left = POLL_S if limit_s is None else min(POLL_S, limit_s - (time.monotonic() - began))
            with self._changed:
                if self._changed.wait_for(there, max(0.0, left)):
                    return
            look()
            if limit_s is not None and time.monotonic() - began >= limit_s:
                raise TimeoutError

    def _raise_lost(self) -> None:
        assert self._lost is not None
        raise TransientError(self._lost.code, self._lost.message, self._lost.advice)


def done(answer: Any) -> Done:
    """Return the answer if it is a Done. Raises ClusterError, code `garbled`, if it is not."""
    if not isinstance(answer, Done):
        raise _garbled(f"it answers with {type(answer).__name__}")
    return answer


def understood(read: Callable[[Any], T], details: Any) -> T:
    """Return a Done's details as `read` parses them; see messages.details. Raises ClusterError, code `garbled`."""
    try:
        return read(details)
    except MessageError as error:
        raise _garbled(f"details{error}") from error


def _garbled(what: str) -> ClusterError:
    advice = "Nothing of it was used. Find the program that runs as the KCM on its head node."
    return ClusterError("garbled", f"The KCM's answer cannot be understood: {what}.", advice)


def stalled(cluster: str) -> TransientError:
    """Return the error for a cluster that has stopped sending requested data, though its session is up."""
    message = f"Nothing has come of {cluster}'s files for too long, though its connection lives."
    return TransientError("stalled", message, "Is its shared directory slow, or does it hang? It is tried again.")
