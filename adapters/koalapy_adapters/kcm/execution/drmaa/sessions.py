"""The DRMAA sessions of a cluster: one, and a second one once the first has more to do than one thing."""

import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List

from koalapy_adapters.kcm.execution.drmaa.client import DrmaaClient
from koalapy_adapters.kcm.execution.drmaa.library import Library

SESSIONS = 2  # each is an event client of Grid Engine's qmaster, which has room for 99, or for what the cluster says


class DrmaaSessions:
    """Several DRMAA clients in place of one, for several submits at a time. Methods block and may run in any thread.

    Of some three hundred answers Grid Engine's library notices one only after a second, in which it does nothing: its
    thread that waits for events, and the one that waits for the answer, share a condition, and the wrong one of them is
    woken. More threads in one process make that more frequent; another process has a library of its own.
    """

    def __init__(self, command: List[str], library: Library, tell: Callable[[Any], None]) -> None:
        self._sessions = [DrmaaClient(command, library, tell) for _ in range(SESSIONS)]
        self._asked = [0] * SESSIONS
        self._lock = threading.Lock()

    @property
    def usable(self) -> bool:
        """Not while the batch system's commands do better."""
        return self._sessions[0].usable

    def start(self) -> bool:
        """Whether there is a session; a helper that died is started again."""
        return self._sessions[0].start()

    def submit(self, script: str, words: List[str]) -> str:
        """See Drmaa.submit."""
        with self._least_asked() as session:
            return session.submit(script, words)

    def control(self, batch_id: str, action: str) -> bool:
        """See Drmaa.control."""
        with self._least_asked() as session:
            return session.control(batch_id, action)

    def close(self) -> None:
        for session in self._sessions:
            session.close()

    @contextmanager
    def _least_asked(self) -> Iterator[DrmaaClient]:
        """The first of them, if nobody waits for it; or if the other cannot be begun."""
        with self._lock:
            number = self._asked.index(min(self._asked))
            self._asked[number] += 1
        try:
            session = self._sessions[number]
            yield session if number == 0 or session.start() else self._sessions[0]
        finally:
            with self._lock:
                self._asked[number] -= 1
