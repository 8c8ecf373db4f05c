"""How far files have come that are on their way, in either direction: for whoever asks."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from koalapy.model.identity import JobId

Direction = Literal["in", "out"]
Phase = Literal["waiting", "reading", "sending", "receiving"]
_WINDOW_S = 10.0  # over which the rate is taken


@dataclass(frozen=True, slots=True)
class Progress:
    """One transfer at this moment. `moved` of `size` bytes are over there, those too that needed no sending.

    `parameters`: of a sweep, how many's files are; `files` and `size` are those of the ones that were asked for yet.
    """

    job: JobId
    component: int | None  # None: of all components
    cluster: str
    direction: Direction
    phase: Phase
    files: int
    size: int
    moved: int
    file: str  # the one on its way
    rate: float  # bytes a second
    parameters: tuple[int, int] | None = None  # done, of

    @property
    def share(self) -> float:
        """From 0 to 1."""
        if self.parameters is not None:
            done, of = self.parameters
            return done / of if of else 0.0
        return min(1.0, self.moved / self.size) if self.size else 0.0


class Transfer:
    """Told by the one who moves the files; any thread may look."""

    def __init__(self, job: JobId, component: int | None, cluster: str, direction: Direction) -> None:
        self._about: tuple[JobId, int | None, str, Direction] = (job, component, cluster, direction)
        self._phase: Phase = "waiting"
        self._files = self._size = self._moved = self._sent = 0
        self._carried = 0  # bytes read or moved, in all phases
        self._file = ""
        self._parameters: tuple[int, int] | None = None
        self._marks: deque[tuple[float, int]] = deque(maxlen=64)
        self._lock = threading.Lock()

    def begin(self, phase: Phase, files: int, size: int) -> None:
        with self._lock:
            self._phase, self._files, self._size, self._moved, self._sent = phase, files, size, 0, 0
            self._marks.clear()
            self._marks.append((time.monotonic(), 0))

    def file(self, name: str, cluster: str | None = None) -> None:
        """This one is on its way now, to or from that cluster."""
        with self._lock:
            self._file = name
            if cluster is not None:
                self._about = (*self._about[:2], cluster, self._about[3])

    def more(self, files: int, size: int) -> None:
        """So much more is to be moved than was known at the beginning."""
        with self._lock:
            self._files += files
            self._size += size

    def parameters(self, done: int, of: int) -> None:
        """Of a sweep: of how many all is over there."""
        with self._lock:
            self._parameters = done, of

    def restart(self) -> None:
        """What was moved is looked at again."""
        with self._lock:
            self._moved = 0

    def there(self, size: int) -> None:
        """So many bytes need not be moved."""
        with self._lock:
            self._moved += size

    def add(self, size: int) -> None:
        with self._lock:
            self._moved += size
            self._sent += size
            self._carried += size
            now = time.monotonic()
            if now - self._marks[-1][0] > _WINDOW_S / 32:
                self._marks.append((now, self._sent))

    @property
    def carried(self) -> int:
        """Bytes that were read or moved since it was opened; it only grows."""
        with self._lock:
            return self._carried

    def progress(self) -> Progress:
        with self._lock:
            size, moved = self._size, self._moved
            return Progress(
                *self._about, self._phase, self._files, size, moved, self._file, self._rate(), self._parameters
            )

    def _rate(self) -> float:
        now = time.monotonic()
        while len(self._marks) > 1 and now - self._marks[0][0] > _WINDOW_S:
            self._marks.popleft()
        if not self._marks:
            return 0.0
        since, sent = self._marks[0]
        return (self._sent - sent) / max(0.1, now - since)


class Transfers:
    """Those that are under way."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[JobId, Transfer]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def open(self, job: JobId, component: int | None, cluster: str, direction: Direction) -> Iterator[Transfer]:
        transfer = Transfer(job, component, cluster, direction)
        with self._lock:
            self._open[id(transfer)] = (job, transfer)
        try:
            yield transfer
        finally:
            with self._lock:
                del self._open[id(transfer)]

    def of(self, jobs: Iterable[JobId]) -> dict[JobId, list[Progress]]:
        """Of those jobs that have any, components in order."""
        wanted, found = set(jobs), dict[JobId, list[Progress]]()
        with self._lock:
            under_way = [(job, transfer) for job, transfer in self._open.values() if job in wanted]
        for job, transfer in under_way:
            found.setdefault(job, []).append(transfer.progress())
        for each in found.values():
            each.sort(key=lambda progress: (progress.component is None, progress.component or 0, progress.cluster))
        return found
