"""Files in and out in chunks with credit: into the staging cache, and from what an attempt has written."""

import asyncio
import os
import time
from typing import Any, Callable, Dict, Optional

from koalapy_adapters.errors import BatchError, RequestError
from koalapy_adapters.frames import INITIAL_CREDIT, MAX_CHUNK, Chunk
from koalapy_adapters.kcm.execution.batch_system import failure_of
from koalapy_adapters.kcm.execution.threads import in_thread
from koalapy_adapters.kcm.koalad_streams import Writer
from koalapy_adapters.kcm.shared_directory import disk_use
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.shared_directory.errors import unusable
from koalapy_adapters.kcm.shared_directory.output import FileList, FileRange, ManyFiles, OneFile, Outputs, size_of
from koalapy_adapters.kcm.shared_directory.stage_cache import Stage
from koalapy_adapters.messages.files import DiskUse, Fetch, FetchMany, ListFiles, Stat, Store, StoreMany, Want
from koalapy_adapters.messages.kcm import Done, Fetched, Refused

FOLLOW = 0.2  # seconds between two looks at files that may grow
CLEAN = 3600.0  # seconds between two looks for what nobody uses any more


class Staging:
    """`has_ended` returns for a tag whether its attempt writes no more."""

    def __init__(self, directories: Directories, writer: Writer, has_ended: Callable[[str], bool]) -> None:
        self._directories, self._writer, self._has_ended = directories, writer, has_ended
        self._stage = Stage(os.path.join(directories.own, "stage"), directories.cluster)
        self._cleaned_at: Optional[float] = None
        self._incoming: Dict[int, "asyncio.Queue[Chunk]"] = {}
        self._credit: Dict[int, asyncio.Semaphore] = {}
        self._arriving: Dict[str, asyncio.Lock] = {}
        self._tasks: Dict[int, Any] = {}

    def request(self, message: Any) -> None:
        """Any of those below: answered when it is done."""
        if isinstance(message, (Store, StoreMany)):
            self._incoming[message.id] = asyncio.Queue()
        elif isinstance(message, (Fetch, FetchMany, ListFiles)):
            self._credit[message.id] = asyncio.Semaphore(INITIAL_CREDIT)
        task = asyncio.ensure_future(self._answer(message.id, _SERVED[type(message)](self, message)))
        self._tasks[message.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(message.id, None))

    def chunk(self, chunk: Chunk) -> None:
        """Take a chunk of a Store, or an empty one that ends the stream of a Fetch that koalad no longer reads."""
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

    # ---- in

    async def _want(self, message: Want) -> Done:
        now = time.monotonic()
        if self._cleaned_at is None or now - self._cleaned_at > CLEAN:
            self._cleaned_at = now
            await in_thread(self._stage.clean)
        return Done(message.id, details=await in_thread(lambda: self._stage.wanted(message.files)))

    async def _store(self, message: Store) -> Done:
        """Two of the same are done one after the other; then it is there."""
        lock = self._arriving.setdefault(message.digest, asyncio.Lock())
        try:
            async with lock:
                return await self._store_one(message)
        finally:
            if not lock.locked():
                self._arriving.pop(message.digest, None)

    async def _store_one(self, message: Store) -> Done:
        if await in_thread(lambda: self._stage.has(message.digest, message.size)):
            return Done(message.id, have=True)
        arrival = self._stage.arrival(message.digest, message.size, message.offset)
        try:
            await in_thread(arrival.open)
            await self._receive(message.id, arrival)
            await in_thread(arrival.finish)
        finally:
            await in_thread(arrival.close)
        return Done(message.id)

    async def _store_many(self, message: StoreMany) -> Done:
        batch = self._stage.batch(message.files, "%s.%d" % (self._directories.files.process(), message.id))
        await self._receive(message.id, batch)
        await in_thread(batch.finish)
        return Done(message.id)

    async def _receive(self, stream: int, into: Any) -> None:
        """All that has come is written at one time."""
        queue = self._incoming[stream]
        ended = False
        while not ended:
            pieces = [await queue.get()]
            while pieces[-1].data and not queue.empty():
                pieces.append(queue.get_nowait())
            ended = not pieces[-1].data
            data = b"".join(piece.data for piece in pieces)
            if data:
                await in_thread(lambda data=data: into.write(data))  # type: ignore[misc]
                self._writer.credit(stream, len(pieces) - ended)

    # ---- out

    async def _fetch(self, message: Fetch) -> Fetched:
        attempt = self._directories.attempt(message.tag)
        if message.where in ("work", "slot"):
            file = _file_of(attempt, message)
            try:
                return await self._pass_on(message.id, file)
            finally:
                await in_thread(file.close)
        still = (lambda: not self._has_ended(message.tag)) if message.follow else None
        if message.follow and message.positions is None:
            raise RequestError("bad_fetch", "What several processes write cannot be followed without their positions.")
        if message.size >= 0 and (message.follow or message.positions):
            raise RequestError("bad_fetch", "What is followed or read on cannot be bounded.")
        outputs = Outputs(attempt, message.where, message.positions, message.size)
        return await self._pass_on(message.id, outputs, still)

    async def _fetch_many(self, message: FetchMany) -> Fetched:
        return await self._pass_on(message.id, ManyFiles(self._directories.attempt(message.tag), message.paths))

    async def _list(self, message: ListFiles) -> Fetched:
        return await self._pass_on(message.id, FileList(self._directories.attempt(message.tag), message.patterns))

    async def _pass_on(self, stream: int, source: Any, still: Optional[Callable[[], bool]] = None) -> Fetched:
        """Send what the source reads, as chunks; repeatedly while it may `still` grow."""
        await in_thread(source.open)
        number, last = 0, False
        while not last:
            last = still is None or not still()
            number = await self._send_all(stream, source, number, last)
            await asyncio.sleep(0 if last else FOLLOW)
        await self._send(Chunk(stream, number, b""))
        return Fetched(stream, source.sent, source.mode, source.digest)

    async def _send_all(self, stream: int, source: Any, number: int, last: bool) -> int:
        """All that it holds by now; the number of the next chunk."""
        while True:
            data = await in_thread(lambda: source.read(MAX_CHUNK, last))
            if not data:
                return number
            await self._send(Chunk(stream, number, data))
            number += 1

    async def _send(self, chunk: Chunk) -> None:
        await self._credit[chunk.stream].acquire()
        self._writer.chunk(chunk)

    async def _disk_use(self, message: DiskUse) -> Done:
        directory = self._directories.attempt(message.tag) if message.tag else self._directories.own
        return Done(message.id, details=await in_thread(disk_use.Counter(directory).count))

    async def _stat(self, message: Stat) -> Done:
        attempt = self._directories.attempt(message.tag)
        sizes = await in_thread(lambda: {path: size_of(attempt, path) for path in message.paths})
        return Done(message.id, details={path: size for path, size in sizes.items() if size is not None})


def _file_of(attempt: str, message: Fetch) -> Any:
    if message.where == "slot":
        return FileRange(attempt, message.path, message.offset, message.size)
    return OneFile(attempt, message.path, message.offset)


_SERVED: Dict[type, Callable[[Staging, Any], Any]] = {
    Want: Staging._want,
    Store: Staging._store,
    StoreMany: Staging._store_many,
    Fetch: Staging._fetch,
    FetchMany: Staging._fetch_many,
    ListFiles: Staging._list,
    Stat: Staging._stat,
    DiskUse: Staging._disk_use,
}
SERVED = tuple(_SERVED)  # the requests that come here
