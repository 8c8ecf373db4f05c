"""Files in transfer, in either direction: their progress for the API, and their division into batches."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

from koalapy.answers import jobs as answers
from koalapy.model.identity import JobId
from koalapy.model.textfile.words import valid_text

Direction = Literal["in", "out"]
Phase = Literal["waiting", "reading", "sending", "receiving"]
T = TypeVar("T")
_WINDOW_S = 10.0  # the period over which the rate is measured


class Transfer:
    """One transfer. The thread that moves the files updates it; any thread may read it.

    `go_on` is called for each piece that is moved, and about every second without one. It raises to give up.
    """

    def __init__(
        self, job: JobId, component: int | None, cluster: str, direction: Direction, go_on: Callable[[], None]
    ) -> None:
        self.go_on = go_on
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
        """Record that this file is being moved now, to or from this cluster."""
        with self._lock:
            self._file = name
            if cluster is not None:
                self._about = (*self._about[:2], cluster, self._about[3])

    def more(self, files: int, size: int) -> None:
        """Add files, and their size in bytes, that were not known at the beginning."""
        with self._lock:
            self._files += files
            self._size += size

    def parameters(self, done: int, of: int) -> None:
        """Record for how many of a sweep's parameters all files are done."""
        with self._lock:
            self._parameters = done, of

    def restart(self) -> None:
        """Set the bytes moved to 0, before the files are checked again."""
        with self._lock:
            self._moved = 0

    def there(self, size: int) -> None:
        """Add bytes that are there without a transfer. A negative number removes them again."""
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
        """The bytes read or moved since the transfer was opened. They only grow."""
        with self._lock:
            return self._carried

    def progress(self) -> answers.Transfer:
        """Describe the progress at this moment."""
        with self._lock:
            _, component, cluster, direction = self._about
            done, parameters = self._parameters or (None, None)
            return {
                "direction": direction,
                "component": component,
                "cluster": cluster,
                "phase": self._phase,
                "files": self._files,
                "bytes": self._size,
                "bytes_moved": self._moved,
                "bytes_per_second": round(self._rate()),
                "file": valid_text(self._file) or None,
                "parameters_done": done,
                "parameters": parameters,
            }

    def _rate(self) -> float:
        now = time.monotonic()
        while len(self._marks) > 1 and now - self._marks[0][0] > _WINDOW_S:
            self._marks.popleft()
        if not self._marks:
            return 0.0
        since, sent = self._marks[0]
        return (self._sent - sent) / max(0.1, now - since)


class Transfers:
    """The transfers that are under way."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[JobId, Transfer]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def open(
        self, job: JobId, component: int | None, cluster: str, direction: Direction, go_on: Callable[[], None]
    ) -> Iterator[Transfer]:
        transfer = Transfer(job, component, cluster, direction, go_on)
        with self._lock:
            self._open[id(transfer)] = (job, transfer)
        try:
            yield transfer
        finally:
            with self._lock:
                del self._open[id(transfer)]

    def of(self, jobs: Iterable[JobId]) -> dict[JobId, list[answers.Transfer]]:
        """Return the progress of these jobs' transfers, in the order of components. Jobs without any are left out."""
        wanted, found = set(jobs), dict[JobId, list[answers.Transfer]]()
        with self._lock:
            under_way = [(job, transfer) for job, transfer in self._open.values() if job in wanted]
        for job, transfer in under_way:
            found.setdefault(job, []).append(transfer.progress())
        for each in found.values():
            each.sort(key=lambda found: (found["component"] is None, found["component"] or 0, found["cluster"]))
        return found


def batches(items: Iterable[T], *limits: tuple[Callable[[T], int], int]) -> Iterator[list[T]]:
    """Yield the items in batches within all limits: an amount of each item, and the most of it in one batch."""
    batch: list[T] = []
    sums = [0] * len(limits)
    for item in items:
        sums = [before + amount(item) for before, (amount, _) in zip(sums, limits, strict=True)]
        if batch and any(size > most for size, (_, most) in zip(sums, limits, strict=True)):
            yield batch
            batch, sums = [], [amount(item) for amount, _ in limits]
        batch.append(item)
    if batch:
        yield batch


def megabytes(size: int) -> str:
    """Return a number of bytes in words, by powers of 1000."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000  # type: ignore[assignment]
    return f"{size:.3g} GB"
