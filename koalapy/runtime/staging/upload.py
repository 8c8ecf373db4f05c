"""Uploads files into a cluster's staging cache over one session: each content once, however many attempts need it."""

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from koalapy_adapters.files import SMALL
from koalapy_adapters.frames import MAX_CHUNK
from koalapy_adapters.messages import details as answers
from koalapy_adapters.messages.fields import Rows
from koalapy_adapters.messages.files import Store, StoreMany, Want

from koalapy.link.reconnect import Timing
from koalapy.model.errors import ClusterError, KoalaError, Reason, TransientError
from koalapy.runtime.session.exchange import POLL_S, RefusedError, stalled, understood
from koalapy.runtime.session.session import Session
from koalapy.runtime.staging.gather import Entry, opened
from koalapy.runtime.transfers import Transfer, batches, megabytes

_AGAIN = ("stage_damaged", "bad_size", "stage_moved", "stage_short")  # errors after which one more try may succeed
_TRIES = 3
_ASKED = 2000  # hashes in one Want
_BATCH_FILES, _BATCH_BYTES = 1000, 8 << 20  # small files in one StoreMany
_SENDERS = 2  # streams at one time: file data on the wire delays messages


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes to store: a version of a file, or `data`."""

    digest: str
    size: int
    entry: Entry | None = None
    data: bytes = b""

    @property
    def name(self) -> str:
        return self.entry.place if self.entry else "the list of files"

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open the bytes for reading. Raises RequestError if the file is not that version any more."""
        return nullcontext(io.BytesIO(self.data)) if self.entry is None else opened(self.entry)

    def check(self) -> None:
        with self.open():
            pass


@dataclass(frozen=True, slots=True)
class _Missing:
    content: Content
    there: int  # bytes of it that have arrived


class Uploads:
    """The uploads of one session. `name`: the cluster's name.

    A thread that needs what another one is sending waits for it, and sends it itself if that fails.
    """

    def __init__(self, name: str, session: Session, timing: Timing) -> None:
        self._name, self._session, self._timing = name, session, timing
        self._flying: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        self._senders = threading.BoundedSemaphore(_SENDERS)

    def upload(self, contents: Iterable[Content], copies: int, transfer: Transfer) -> None:
        """Return when all contents are on the cluster. `copies`: bytes that the job needs there for its own copies.

        Raises KoalaError: TransientError if the link is lost, and one with code `stalled` if the cluster takes nothing
        or gives no answer for too long.
        """
        left = {content.digest: content for content in contents}
        while left:
            mine = self._claim(left)
            if mine:
                with self._flight(mine):
                    self._send(mine, copies, transfer)
            else:
                self._await(next(iter(left)), transfer)
                continue
            for content in mine:
                del left[content.digest]

    # ---- the division of contents among threads

    def _claim(self, left: dict[str, Content]) -> list[Content]:
        """Return the contents that no thread is sending. The caller has to send them."""
        with self._lock:
            mine = [content for digest, content in left.items() if digest not in self._flying]
            self._flying |= {content.digest: Future() for content in mine}
        return mine

    @contextmanager
    def _flight(self, mine: Sequence[Content]) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                landed = [self._flying.pop(content.digest) for content in mine]
            for each in landed:
                each.set_result(None)

    def _await(self, digest: str, transfer: Transfer) -> None:
        with self._lock:
            flight = self._flying.get(digest)
        while flight is not None and not flight.done():
            transfer.go_on()
            with suppress(TimeoutError):
                flight.result(POLL_S)

    # ---- sending

    def _send(self, contents: Sequence[Content], copies: int, transfer: Transfer) -> None:
        for left in reversed(range(_TRIES)):
            missing = self._missing(contents, copies, transfer)
            for content in contents:
                transfer.there(content.size)
            for each in missing:
                transfer.there(each.there - each.content.size)
            try:
                return self._send_missing(missing, transfer)
            except RefusedError as error:
                if error.reason.code not in _AGAIN:
                    raise
                for each in missing:
                    each.content.check()
                if not left:
                    raise
            transfer.restart()
        raise AssertionError("the last try raises or returns")

    def _missing(self, contents: Sequence[Content], copies: int, transfer: Transfer) -> list[_Missing]:
        """Return the contents that are not on the cluster. Raises KoalaError if there is no room for them."""
        missing: list[_Missing] = []
        room = answers.Wanted([])
        for page in batches(contents, (_one, _ASKED)):
            room = self._wanted(_asked(page), transfer)
            missing += _lacking(page, room.missing)
        _check_room(sum(each.content.size - each.there for each in missing), copies, room)
        return missing

    def _wanted(self, asked: list[list[Any]], transfer: Transfer) -> answers.Wanted:
        try:
            answer = self._session.ask(lambda id: Want(id, asked), self._timing.stalled, transfer.go_on)
        except TimeoutError as error:
            raise stalled(self._name) from error
        return understood(answers.wanted, answer.details)

    def _send_missing(self, missing: Sequence[_Missing], transfer: Transfer) -> None:
        small = [each.content for each in missing if each.content.size <= SMALL]
        for batch in batches(small, (_one, _BATCH_FILES), (lambda content: content.size, _BATCH_BYTES)):
            self._send_batch(batch, transfer)
        for each in missing:
            if each.content.size > SMALL:
                self._send_one(each, transfer)

    def _send_one(self, missing: _Missing, transfer: Transfer) -> None:
        content = missing.content
        with self._turn(transfer), content.open() as file:
            file.seek(missing.there)
            store = lambda id: Store(id, content.digest, content.size, missing.there)  # noqa: E731
            self._send_stream(store, iter(lambda: file.read(MAX_CHUNK), b""), [content], transfer)

    def _send_batch(self, batch: Sequence[Content], transfer: Transfer) -> None:
        with self._turn(transfer):
            self._send_stream(lambda id: StoreMany(id, _asked(batch)), _joined(batch), batch, transfer)

    def _send_stream(
        self, request: Callable[[int], Any], pieces: Iterable[bytes], contents: Sequence[Content], transfer: Transfer
    ) -> None:
        """Send the pieces of these contents, which the other side may read or write as a whole before it answers."""
        transfer.file(contents[0].name)
        limit_s = self._timing.stalled_after(sum(content.size for content in contents))
        self._session.send_stream(request, _counted(pieces, transfer), self._name, limit_s, transfer.go_on)

    @contextmanager
    def _turn(self, transfer: Transfer) -> Iterator[None]:
        """Take one of the streams that may be open at the same time."""
        while not self._senders.acquire(timeout=POLL_S):
            transfer.go_on()
        try:
            yield
        finally:
            self._senders.release()


def _counted(pieces: Iterable[bytes], transfer: Transfer) -> Iterator[bytes]:
    """Yield the pieces. Each counts once the next one is wanted, for then it was sent."""
    for data in pieces:
        yield data
        transfer.add(len(data))


def _one(content: Content) -> int:
    return 1


def _asked(contents: Iterable[Content]) -> list[list[Any]]:
    return [[content.digest, content.size] for content in contents]


def _lacking(page: Sequence[Content], listed: Rows) -> list[_Missing]:
    """Return the contents of the page that a cluster lists as missing.

    Raises ClusterError for any that it was not asked about.
    """
    there: dict[int, int] = {index: size for index, size in listed}  # noqa: C416
    found = [_Missing(page[index], there[index]) for index in sorted(there) if index < len(page)]
    if len(found) < len(there) or not all(each.there <= each.content.size for each in found):
        message = f"A KCM's list of missing files is invalid: {str(listed)[:80]}."
        raise ClusterError("bad_listing", message, "")
    return found


def _joined(batch: Sequence[Content]) -> Iterator[bytes]:
    """Yield the contents one after the other, in pieces of a chunk's size."""
    left = bytearray()
    for content in batch:
        with content.open() as file:
            left += file.read(content.size + 1)
        while len(left) >= MAX_CHUNK:
            yield bytes(left[:MAX_CHUNK])
            del left[:MAX_CHUNK]
    if left:
        yield bytes(left)


def _check_room(missing: int, copies: int, room: answers.Wanted) -> None:
    """Raises RefusedError if the files do not fit.

    The reason is the cluster's if it is full now, and the request's if the file system is too small.
    """
    needed, free, total = missing + copies, room.free, room.total
    if free is None or total is None or needed <= free:
        return
    message = (
        f"Its files do not fit: {megabytes(missing)} are still to be sent, and {megabytes(copies)} are the job's own"
        f" copies, but its shared directory has {megabytes(free)} free of {megabytes(total)}."
    )
    if needed > total:
        advice = "Name a larger `shared` directory in the grid file, or another cluster in the job."
        raise RefusedError(Reason("does_not_fit", "request", message, advice, command="statvfs"))
    raise RefusedError(Reason("does_not_fit", "cluster", message, "Free space there."))


def lost(error: KoalaError) -> bool:
    """Return whether the error means that the link is lost. Then the work is begun again over the next session."""
    return isinstance(error, TransientError) and not isinstance(error, RefusedError) and not is_stalled(error)


def is_stalled(error: KoalaError) -> bool:
    """Return whether the error means that the cluster takes nothing, though the link is up."""
    return error.reason.code == "stalled"
