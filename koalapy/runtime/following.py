"""The output of a job's processes while they write it: all components at once, try after try, across reconnects."""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from koalapy.common.lines import Interleaving, Writer
from koalapy.link.stretches import Stretches
from koalapy.model.errors import KoalaError, OurError
from koalapy.model.identity import AttemptId
from koalapy.model.job import Job

_LOG = structlog.get_logger()
_POLL_S = 0.5  # between two looks at the job
_AGAIN_S = 1.0  # before interrupted output is requested again
_LAST_TRIES = 5  # after the attempt has ended
_MOST_WAITING = 8  # pieces of one component that have not been taken yet

Read = Callable[[str, AttemptId, str, Mapping[int, int], bool], Iterator[bytes]]
"""(cluster, attempt, stream, positions, follow): see Link.read."""


Positions = Mapping[tuple[int, int], Mapping[int, int]]
"""Bytes that were read before, of each rank, by component and the number of its attempt."""


class OutputEnds(NamedTuple):
    """Bytes that one process of an attempt wrote. Without bytes: nothing was written for a while."""

    component: int
    attempt: int
    rank: int
    data: bytes


class Ended(NamedTuple):
    """The end of an attempt's output: all of it has been read."""

    component: int
    attempt: int


class Stretchwise:
    """The output of one attempt. After an interruption it is read on from its position.

    `positions`: bytes of each rank that were read so far.
    """

    def __init__(
        self, read: Read, cluster: str, attempt: AttemptId, stream: str, positions: Positions | None = None
    ) -> None:
        self._read, self._cluster, self._attempt, self._stream = read, cluster, attempt, stream
        self.positions = dict((positions or {}).get((attempt.component, attempt.number), {}))

    def pieces(self, follow: bool) -> Generator[tuple[int, bytes], None, None]:
        """Yield (rank, bytes), without bytes about every second in which nothing arrives. Raises KoalaError."""
        stretches = Stretches()
        for piece in self._read(self._cluster, self._attempt, self._stream, dict(self.positions), follow):
            if not piece:
                yield 0, b""
            for rank, data in stretches.feed(piece):
                self.positions[rank] = self.positions.get(rank, 0) + len(data)
                yield rank, data


@dataclass(frozen=True, slots=True)
class Followed:
    """The output to read: `stream` (output or errors) of one component, or of all if `component` is None."""

    stream: str
    component: int | None = None

    def components(self, job: Job) -> Sequence[int]:
        """Return the numbers of the components."""
        return range(len(job.request.components)) if self.component is None else (self.component,)


def read_all(read: Read, job: Job, what: Followed) -> Iterator[OutputEnds | Ended]:
    """Yield the output so far, in the order of components and ranks. Raises KoalaError.

    A component whose attempt has no directory on its cluster yet has no output.
    """
    for index in what.components(job):
        attempt = job.attempt(index)
        if attempt is None:
            continue
        source = Stretchwise(read, attempt.cluster, attempt.id, what.stream)
        try:
            for rank, data in source.pieces(follow=False):
                yield OutputEnds(index, attempt.id.number, rank, data)
            yield Ended(index, attempt.id.number)
        except KoalaError as error:
            if error.reason.code != "no_such_attempt" or job.state.final:
                raise


def as_text(pieces: Iterator[OutputEnds | Ended], prefix: bool) -> Iterator[bytes]:
    """Yield the bytes of the pieces in their order. An empty piece means that nothing has arrived.

    With `prefix` each line begins with its component and rank, and a process's unfinished line is ended before another
    process's output.
    """
    lines, last = Interleaving(prefix), None
    for piece in pieces:
        if not prefix:
            yield piece.data if isinstance(piece, OutputEnds) else b""
        elif isinstance(piece, Ended):
            yield lines.end(piece.component)
        else:
            writer = Writer(piece.component, piece.rank)
            if piece.data and writer != last:
                last = writer
                yield lines.end(piece.component)
            yield lines.take(writer, piece.data)


def follow_all(
    read: Read, look: Callable[[], Job], what: Followed, positions: Positions | None = None
) -> Iterator[Sequence[OutputEnds | Ended]]:
    """Yield lists of pieces until the job has ended. An empty list means that nothing has arrived.

    `look` returns the job as it is now; an error that it raises ends this. `positions`: output that is not read again.
    Raises KoalaError at the end if a component's output could not be read to its end.
    """
    job = look()
    readers: dict[AttemptId, _Reader] = {}
    changed = threading.Condition()
    looked = time.monotonic()
    try:
        while True:
            for index in what.components(job):
                attempt = job.attempt(index)
                before = [reader for each, reader in readers.items() if each.component == index]
                if attempt is None or attempt.id in readers or not all(each.is_done for each in before):
                    continue
                if attempt.started_at:
                    source = Stretchwise(read, attempt.cluster, attempt.id, what.stream, positions)
                    readers[attempt.id] = _Reader(source, attempt.id, changed)
            for identity, reader in readers.items():
                attempt = job.attempt(identity.component)
                if attempt is None:
                    is_last, has_ended = job.number_of(identity.component) == identity.number, False
                else:
                    is_last, has_ended = attempt.id == identity, attempt.ended_at is not None
                reader.is_complete = job.state.final or not is_last or has_ended
            with changed:
                changed.wait_for(lambda: any(each.waiting or each.has_ended for each in readers.values()), _POLL_S)
                taken = list(_taken([*readers.values()]))
                changed.notify_all()
            yield taken
            if job.state.final and all(each.is_done for each in readers.values()):
                break
            if time.monotonic() - looked >= _POLL_S:
                job, looked = look(), time.monotonic()
        for reader in readers.values():
            if reader.error is not None:
                raise reader.error
    finally:
        with changed:
            for reader in readers.values():
                reader.closed = True
            changed.notify_all()


def _taken(readers: Sequence["_Reader"]) -> Iterator[OutputEnds | Ended]:
    """Yield one piece of each reader in turn, so that a busy one delays no other.

    Then yield the end of each that has ended.
    """
    while any(reader.waiting for reader in readers):
        for reader in readers:
            if reader.waiting:
                rank, data = reader.waiting.popleft()
                yield OutputEnds(reader.attempt.component, reader.attempt.number, rank, data)
    for reader in readers:
        if reader.has_ended:
            reader.has_ended, reader.is_done = False, True
            yield Ended(reader.attempt.component, reader.attempt.number)


class _Reader:
    """A thread that reads one attempt's output. Its public attributes are read and changed under `changed`.

    `is_complete`: koalad knows that the attempt writes no more. An end of the stream before that does not count.
    """

    def __init__(self, source: Stretchwise, attempt: AttemptId, changed: threading.Condition) -> None:
        self._source, self._changed = source, changed
        self.attempt = attempt
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.is_complete = self.closed = self.has_ended = self.is_done = False
        self.error: KoalaError | None = None
        threading.Thread(target=self._run, name="follow", daemon=True).start()

    def _run(self) -> None:
        error = None
        try:
            error = self._read()
        except Exception:
            _LOG.exception("following_failed")
            error = OurError("following_failed", "The output cannot be passed on.", "Look at koalad's log.")
        finally:
            with self._changed:
                self.error, self.has_ended = error, True
                self._changed.notify_all()

    def _read(self) -> KoalaError | None:
        """Read until the stream has ended or the reader is closed.

        Returns why the output could not be read to its end.
        """
        tries = 0
        while not self.closed:
            complete = self.is_complete
            try:
                self._pass_on()
                if complete:
                    return None
            except KoalaError as error:
                tries += complete
                absent = error.reason.code == "no_such_attempt"
                if complete and absent:
                    return None
                if tries > _LAST_TRIES or not (absent or error.reason.whose in ("transient", "cluster")):
                    return error
            with self._changed:
                self._changed.wait_for(lambda: self.closed or (self.is_complete and not complete), _AGAIN_S)  # noqa: B023
        return None

    def _pass_on(self) -> None:
        """Queue the pieces of the stream until it ends or the reader is closed."""
        with closing(self._source.pieces(follow=True)) as pieces:
            for rank, data in pieces:
                with self._changed:
                    self._changed.wait_for(lambda: self.closed or len(self.waiting) < _MOST_WAITING)
                    if self.closed:
                        return
                    if data:
                        self.waiting.append((rank, data))
                        self._changed.notify_all()
