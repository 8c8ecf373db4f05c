"""Fetches files of attempts: lists them, then fetches large ones one by one and small ones many at a time."""

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from koalapy_adapters.messages.kcm import Fetched
from koalapy_adapters.trees import Found

from koalapy.model.errors import ClusterError, RequestError, TransientError
from koalapy.model.identity import AttemptId
from koalapy.runtime.collecting.plan import Item, as_count, as_time, entries
from koalapy.runtime.collecting.write_output import OutputDirectories, Part, Small, file_errors_translated
from koalapy.runtime.current_grid import no_such_cluster
from koalapy.runtime.transfers import Transfer, batches

_SMALL = 1 << 20
_BATCH_NAMES, _BATCH_BYTES = 1 << 17, 8 << 20  # bytes of names in one FetchMany, and of what they name
_TRIES = 3
_LINE = 256  # bytes before each small file at most

Ended = Callable[[Fetched], None]


class Source(Protocol):
    """The part of a Link that collecting needs. Every call raises KoalaError.

    An empty piece means that nothing has arrived.
    """

    def list_files(self, attempt: AttemptId, patterns: Sequence[str]) -> Iterator[bytes]: ...

    def fetch(
        self, attempt: AttemptId, where: str, path: str = "", offset: int = 0, *, ended: Ended
    ) -> Iterator[bytes]: ...

    def fetch_many(self, attempt: AttemptId, paths: Sequence[str], ended: Ended) -> Iterator[bytes]: ...

    def read_ends(self, attempt: AttemptId, where: str, most: int) -> Iterator[bytes]: ...


class Download:
    """Fetches the files of one transfer. Every method raises KoalaError."""

    def __init__(self, links: Mapping[str, Source], transfer: Transfer) -> None:
        self.transfer, self._links = transfer, links

    def listed(self, cluster: str, attempt: AttemptId, patterns: Sequence[str]) -> list[Found]:
        """Return the entries of the attempt's working directory that match these patterns."""
        with closing(self._watched(self._link(cluster).list_files(attempt, patterns))) as pieces:
            return list(entries(pieces))

    def left(self, directories: OutputDirectories, files: Sequence[Item]) -> list[Item]:
        """Return the files that are not here yet. Their directories must exist. Checks that there is room for them."""
        with file_errors_translated():
            left = [item for item in files if not directories.is_there(item)]
            parts = {item.target: min(item.found.size, directories.size_of_part(item)) for item in left}
            self.transfer.there(sum(item.found.size for item in files) - sum(item.found.size for item in left))
            directories.check_room(left, parts)
        return left

    def bring_small(self, directories: OutputDirectories, items: Iterable[Item]) -> None:
        """Bring the items of at most 1 MiB, in batches. Larger ones are skipped."""
        with file_errors_translated():
            for batch in _batches(item for item in items if item.found.size <= _SMALL):
                directories.check_room(batch, {})
                self._bring_batch(directories, batch)

    def bring_large(self, directories: OutputDirectories, items: Iterable[Item]) -> None:
        """Bring the items of more than 1 MiB, one by one. Smaller ones are skipped."""
        with file_errors_translated():
            for item in items:
                if item.found.size > _SMALL:
                    self._bring_one(directories, item)

    def output(self, cluster: str, attempt: AttemptId, stream: str, most: int) -> Generator[bytes, None, None]:
        """Return the pieces of an attempt's output or errors, to be closed: at most `most` bytes of each process."""
        return self._watched(self._link(cluster).read_ends(attempt, stream, most))

    def _link(self, cluster: str) -> Source:
        link = self._links.get(cluster)
        if link is None:
            raise no_such_cluster(cluster, self._links)
        return link

    def _watched(self, pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
        """Yield the pieces that are not empty, while they are wanted. When it is closed, the stream is closed too."""
        try:
            for piece in pieces:
                self.transfer.go_on()
                if piece:
                    yield piece
        finally:
            if isinstance(pieces, Generator):
                pieces.close()

    # ---- large ones

    def _bring_one(self, directories: OutputDirectories, item: Item) -> None:
        self.transfer.file(item.found.path, item.cluster)
        for _ in range(_TRIES):
            if self._bring_part(directories, item):
                return
        message = f"{item.found.path} arrives damaged from {item.cluster}, or is still being written there."
        raise RequestError("output_damaged", message, "See that nothing of the job is at work any more.")

    def _bring_part(self, directories: OutputDirectories, item: Item) -> bool:
        """Bring a file from where an earlier try ended.

        False if the file is damaged, or longer than it was listed; then it was dropped.
        """
        ends: list[Fetched] = []
        with Part(directories, item) as part:
            self.transfer.there(part.size)
            source = self._link(item.cluster)
            arriving = source.fetch(item.attempt, "work", item.found.path, part.size, ended=ends.append)
            with closing(self._watched(arriving)) as pieces:
                fits = all(self._written(part, data) for data in pieces)
            if not fits or not part.is_whole(ends[0].digest):
                self.transfer.there(-part.size)
                part.drop()
                return False
            part.become(ends[0].mode)
        return True

    def _written(self, part: Part, data: bytes) -> bool:
        fits = part.write(data)
        if fits:
            self.transfer.add(len(data))
        return fits

    # ---- small ones

    def _bring_batch(self, directories: OutputDirectories, batch: Sequence[Item]) -> None:
        first = batch[0]
        self.transfer.file(first.found.path, first.cluster)
        ends: list[Fetched] = []
        paths = [item.found.path for item in batch]
        small, digest = Small(directories), hashlib.sha256()
        arriving = self._link(first.cluster).fetch_many(first.attempt, paths, ends.append)
        try:
            with closing(self._watched(arriving)) as pieces:
                for item, facts, data in _unpacked(batch, _hashing(pieces, digest.update)):
                    small.write(item, facts.mode, facts.mtime_ns, data)
                    self.transfer.add(len(data))
            if digest.hexdigest() != ends[0].digest:
                raise TransientError("output_damaged", f"Files arrived damaged from {first.cluster}.", "")
            small.become()
        finally:
            small.drop()


def _hashing(pieces: Iterator[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in pieces:
        update(piece)
        yield piece


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the items in batches, each of one component."""
    for _, some in groupby(items, lambda item: item.attempt):
        yield from batches(some, (_size_of_name, _BATCH_NAMES), (lambda item: item.found.size, _BATCH_BYTES))


def _size_of_name(item: Item) -> int:
    return len(json.dumps(item.found.path))


class Facts(NamedTuple):
    """The size, mode and time that messages.FetchMany gives for a file before its bytes."""

    size: int
    mode: int
    mtime_ns: int


def _unpacked(batch: Sequence[Item], pieces: Iterator[bytes]) -> Iterator[tuple[Item, Facts, bytes]]:
    """Yield each file's facts and bytes from the stream of messages.FetchMany.

    Raises ClusterError for a malformed stream, and TransientError for a file that has changed since it was listed. No
    more than a file of the listed size, and a piece, is held in memory.
    """
    buffer = bytearray()
    for item in batch:
        line = _line(buffer, pieces)
        facts = _facts(line)
        if facts is None:
            raise TransientError("output_changed", f"{item.found.path} was taken away meanwhile.", "")
        if facts.size > item.found.size:
            raise TransientError("output_changed", f"{item.found.path} has grown since it was listed.", "")
        while len(buffer) < facts.size:
            buffer += _more(pieces)
        yield item, facts, bytes(buffer[: facts.size])
        del buffer[: facts.size]
    if buffer or next(pieces, b""):
        raise ClusterError("bad_stream", "A stream of files has more than was asked for.", "")


def _line(buffer: bytearray, pieces: Iterator[bytes]) -> bytes:
    """Remove the first line from the buffer, and return it. Raises ClusterError if the stream has no such line."""
    while (end := buffer.find(b"\n", 0, _LINE)) < 0:
        if len(buffer) >= _LINE:
            raise _garbled(bytes(buffer))
        buffer += _more(pieces)
    line = bytes(buffer[:end])
    del buffer[: end + 1]
    return line


def _more(pieces: Iterator[bytes]) -> bytes:
    piece = next(pieces, b"")
    if not piece:
        raise ClusterError("bad_stream", "A stream of files broke off.", "")
    return piece


def _facts(line: bytes) -> Facts | None:
    try:
        fields: Any = json.loads(line)
        if fields is None:
            return None
        size, mode, mtime_ns = fields
        return Facts(as_count(size), as_count(mode) & 0o777, as_time(mtime_ns))
    except (ValueError, TypeError, RecursionError) as error:
        raise _garbled(line) from error


def _garbled(line: bytes) -> ClusterError:
    return ClusterError("bad_stream", f"A KCM's line about its files is invalid: {line[:80]!r}.", "")
