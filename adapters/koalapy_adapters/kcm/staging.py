"""Files in and out in chunks with credit: Store into the stage, Fetch from an attempt, Stat in its directory."""

import asyncio
import hashlib
import os
import stat
from typing import Any, Callable, Dict, Optional

from koalapy_adapters import layout
from koalapy_adapters.errors import BatchError, RequestError, SiteError
from koalapy_adapters.frames import INITIAL_CREDIT, MAX_CHUNK, Chunk
from koalapy_adapters.kcm.commands import failure_of
from koalapy_adapters.kcm.directories import Directories, is_digest, is_inside, unusable
from koalapy_adapters.kcm.outputs import Outputs, must_be_in_reach
from koalapy_adapters.kcm.pipes import Writer
from koalapy_adapters.kcm.threads import in_thread
from koalapy_adapters.messages import Done, Fetch, Fetched, Refused, Stat, Store

FOLLOW = 0.2  # seconds between two looks at files that may grow


class Staging:
    """`is_over` says of a tag whether its attempt writes no more."""

    def __init__(self, directories: Directories, writer: Writer, is_over: Callable[[str], bool]) -> None:
        self._directories, self._writer, self._is_over = directories, writer, is_over
        self._incoming: Dict[int, "asyncio.Queue[Chunk]"] = {}
        self._credit: Dict[int, asyncio.Semaphore] = {}
        self._tasks: Dict[int, Any] = {}

    def request(self, message: Any) -> None:
        """Store, Fetch or Stat: answered when it is done."""
        if isinstance(message, Store):
            self._incoming[message.id] = asyncio.Queue()
            serving: Any = self._store(message)
        elif isinstance(message, Fetch):
            self._credit[message.id] = asyncio.Semaphore(INITIAL_CREDIT)
            serving = self._fetch(message)
        else:
            serving = self._stat(message)
        task = asyncio.ensure_future(self._answer(message.id, serving))
        self._tasks[message.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(message.id, None))

    def chunk(self, chunk: Chunk) -> None:
        """Of a Store; or an empty one on the stream of a Fetch that nobody reads any more."""
        queue = self._incoming.get(chunk.stream)
        if queue is not None:
            queue.put_nowait(chunk)
        elif chunk.stream in self._credit and not chunk.data:
            self._tasks[chunk.stream].cancel()

    def credit(self, stream: int, chunks: int) -> None:
        semaphore = self._credit.get(stream)
        for _ in range(min(chunks, INITIAL_CREDIT) if semaphore is not None else 0):
            assert semaphore is not None
            semaphore.release()

    async def _answer(self, number: int, serving: Any) -> None:
        try:
            answer = await serving
        except OSError as error:
            answer = Refused(number, failure_of(unusable(self._directories.own, error)))
        except BatchError as error:
            answer = Refused(number, failure_of(error))
        finally:
            self._incoming.pop(number, None)
            self._credit.pop(number, None)
        self._writer.after_chunks(answer)

    async def _store(self, message: Store) -> Done:
        if not is_digest(message.digest):
            raise RequestError("bad_digest", "%r is no sha256 in hex." % message.digest)
        path = layout.staged_file(self._directories.shared, self._directories.instance, message.digest)
        if await in_thread(lambda: _has(path, message.size)):
            return Done(message.id, have=True)
        arrival = _Arrival(path, message)
        try:
            await self._receive(message.id, arrival)
            await in_thread(arrival.finish)
        finally:
            await in_thread(arrival.discard)
        return Done(message.id)

    async def _receive(self, stream: int, arrival: "_Arrival") -> None:
        while True:
            chunk = await self._incoming[stream].get()
            if not chunk.data:
                return
            await in_thread(lambda data=chunk.data: arrival.write(data))  # type: ignore[misc]
            self._writer.credit(stream, 1)

    async def _fetch(self, message: Fetch) -> Fetched:
        outputs = Outputs(self._directories.attempt(message.tag), message.where, message.path, message.offset)
        await in_thread(outputs.open)
        number, last = 0, False
        while not last:
            last = not message.follow or self._is_over(message.tag)
            number = await self._send_all(message.id, outputs, number, last)
            await asyncio.sleep(0 if last else FOLLOW)
        await self._send(Chunk(message.id, number, b""))
        return Fetched(message.id, outputs.sent, outputs.mode)

    async def _send_all(self, stream: int, outputs: Outputs, number: int, last: bool) -> int:
        """All that the files hold by now; the number of the next chunk."""
        while True:
            data = await in_thread(lambda: outputs.read(MAX_CHUNK, last))
            if not data:
                return number
            await self._send(Chunk(stream, number, data))
            number += 1

    async def _send(self, chunk: Chunk) -> None:
        await self._credit[chunk.stream].acquire()
        self._writer.chunk(chunk)

    async def _stat(self, message: Stat) -> Done:
        attempt = self._directories.attempt(message.tag)
        sizes = await in_thread(lambda: {path: _size(attempt, path) for path in message.paths})
        return Done(message.id, details={path: size for path, size in sizes.items() if size is not None})


class _Arrival:
    """A file on its way into the stage: under another name until it is whole. Methods block."""

    def __init__(self, path: str, message: Store) -> None:
        self._path, self._size, self._digest = path, message.size, message.digest
        self._temporary = "%s.%s.%d.%d" % (path, os.uname().nodename, os.getpid(), message.id)
        self._file: Optional[Any] = None
        self._hash, self._written = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        if self._file is None:
            self._file = os.fdopen(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        self._written += len(data)
        if self._written > self._size:
            raise RequestError("bad_size", "More than the %d bytes that were announced." % self._size)
        self._hash.update(data)
        self._file.write(data)

    def finish(self) -> None:
        """Raises SiteError for a file that is not what was announced."""
        self.write(b"")
        assert self._file is not None
        if self._hash.hexdigest() != self._digest or self._written != self._size:
            raise SiteError("stage_damaged", "The file %s arrived damaged." % self._digest, "Send it again.")
        self._file.flush()
        os.fsync(self._file.fileno())
        os.rename(self._temporary, self._path)

    def discard(self) -> None:
        """Close it, and remove what did not become the file."""
        if self._file is not None:
            self._file.close()
        try:
            os.unlink(self._temporary)
        except OSError:
            pass


def _has(path: str, size: int) -> bool:
    """Whether the stage has it; it counts as used today."""
    try:
        if os.stat(path).st_size != size:
            return False
        os.utime(path)
        return True
    except FileNotFoundError:
        return False


def _size(attempt: str, path: str) -> Optional[int]:
    """None for what is no file in its working directory. Raises OSError if that cannot be known now."""
    if not is_inside(path):
        return None
    try:
        status = os.stat(os.path.join(layout.inside(attempt, "work"), path))
    except (FileNotFoundError, NotADirectoryError):
        must_be_in_reach(attempt)
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
