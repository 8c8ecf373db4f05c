"""One request under way on a link: its answer, and the chunks and the credit of its stream."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from koalapy_adapters.frames import INITIAL_CREDIT
from koalapy_adapters.messages import Refused

from koalapy.link.translate import reason_of
from koalapy.model.errors import KoalaError, Reason, TransientError


class RefusedError(KoalaError):
    """The KCM did not do what it was asked to; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code, reason.message, reason.advice)
        self.reason = reason
        self.whose = reason.whose


class Exchange:
    """Fed by the link's reader, waited for by whoever asked. `id` is the request's and its stream's."""

    def __init__(self, id: int) -> None:
        self.id = id
        self._changed = threading.Condition()
        self._credit = INITIAL_CREDIT
        self._chunks: deque[bytes] = deque()
        self._ended = False
        self._answer: Any = None
        self._lost: Reason | None = None

    # ---- what the reader calls

    def granted(self, chunks: int) -> None:
        with self._changed:
            self._credit += chunks
            self._changed.notify_all()

    def arrived(self, data: bytes) -> None:
        with self._changed:
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

    def may_send(self) -> bool:
        """Wait for the credit to send one more chunk, and take it. False if an answer came first."""
        with self._changed:
            self._changed.wait_for(lambda: self._credit > 0 or self._answer is not None or self._lost is not None)
            if self._answer is not None or self._lost is not None:
                return False
            self._credit -= 1
            return True

    def chunks(self) -> Iterator[bytes]:
        """Until the stream ends or is refused. Raises TransientError if the link is lost before."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._chunks or self._answer is not None or self._lost is not None)
                data = self._chunks.popleft() if self._chunks else b""
                if not data:
                    if not self._ended and self._answer is None:
                        self._raise_lost()
                    return
            yield data

    def answer(self, timeout_s: float | None = None) -> Any:
        """Wait for it. Raises RefusedError for a no, TransientError if the link is lost before, or TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._answer is not None or self._lost is not None, timeout_s):
                raise TimeoutError
            if self._answer is None:
                self._raise_lost()
        if isinstance(self._answer, Refused):
            raise RefusedError(reason_of(self._answer.error))
        return self._answer

    def _raise_lost(self) -> None:
        assert self._lost is not None
        raise TransientError(self._lost.code, self._lost.message, self._lost.advice)
