"""Files of attempts on their way home: what there is, large ones by themselves, small ones many at a time."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from koalapy_adapters.messages import Fetched
from koalapy_adapters.trees import Found

from koalapy.model.errors import RequestError, SiteError, TransientError
from koalapy.model.identity import AttemptId, InstanceId, tag_of
from koalapy.runtime.collecting import landing
from koalapy.runtime.collecting.plan import Item, entries
from koalapy.runtime.staging.transfers import Transfer
from koalapy.runtime.unnamed import no_such_cluster

_SMALL = 1 << 20
_BATCH_NAMES, _BATCH_BYTES = 1 << 17, 8 << 20  # bytes of names in one FetchMany, and of what they name
_TRIES = 3

Ended = Callable[[Fetched], None]


class Source(Protocol):
    """The part of a Link that collecting needs. Every call raises KoalaError."""

    def list_files(self, attempt: AttemptId, patterns: Sequence[str]) -> Iterator[bytes]: ...

    def fetch(
        self, attempt: AttemptId, where: str, path: str = "", offset: int = 0, *, ended: Ended
    ) -> Iterator[bytes]: ...

    def fetch_many(self, attempt: AttemptId, paths: Sequence[str], ended: Ended) -> Iterator[bytes]: ...


class Mover:
    """`go_on` is called for every piece, and may raise. Every method raises KoalaError."""

    def __init__(
        self, instance: InstanceId, links: Mapping[str, Source], transfer: Transfer, go_on: Callable[[], None]
    ) -> None:
        self._instance, self._links, self._transfer, self._go_on = instance, links, transfer, go_on

    def listed(self, cluster: str, attempt: AttemptId, patterns: Sequence[str]) -> list[Found]:
        """What these name in the attempt's working directory."""
        return list(entries(self._watched(self._link(cluster).list_files(attempt, patterns))))

    def left(self, files: Sequence[Item]) -> list[Item]:
        """Those that are not there yet; there is room for them, and their directories are there."""
        left = [item for item in files if not landing.is_there(item)]
        parts = {item.target: min(item.found.size, landing.size_of_part(self._part(item))) for item in left}
        self._transfer.there(sum(item.found.size for item in files) - sum(item.found.size for item in left))
        landing.check_room(left, parts)
        return left

    def bring_small(self, items: Iterable[Item]) -> None:
        """Those of them that are."""
        with landing.told():
            for batch in _batches(item for item in items if item.found.size <= _SMALL):
                self._bring_batch(batch)

    def bring_large(self, items: Iterable[Item]) -> None:
        """All others."""
        with landing.told():
            for item in items:
                if item.found.size > _SMALL:
                    self._bring_one(item)

    def _link(self, cluster: str) -> Source:
        link = self._links.get(cluster)
        if link is None:
            raise no_such_cluster(cluster, self._links)
        return link

    def _watched(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._go_on()
            yield piece

    # ---- large ones

    def _bring_one(self, item: Item) -> None:
        self._transfer.file(item.found.path, item.cluster)
        for _ in range(_TRIES):
            if self._bring_part(item):
                return
        message = f"{item.found.path} arrives damaged from {item.cluster}, or is still being written there."
        raise RequestError("output_damaged", message, "See that nothing of the job is at work any more.")

    def _bring_part(self, item: Item) -> bool:
        """From where it was. False if it is not what is there, and was dropped."""
        ends: list[Fetched] = []
        with landing.Part(self._part(item)) as part:
            self._transfer.there(part.size)
            source = self._link(item.cluster)
            for data in self._watched(
                source.fetch(item.attempt, "work", item.found.path, part.size, ended=ends.append)
            ):
                part.write(data)
                self._transfer.add(len(data))
            if not part.is_whole(ends[0].digest):
                self._transfer.there(-part.size)
                part.drop()
                return False
            part.become(item, ends[0].mode)
        return True

    def _part(self, item: Item) -> Path:
        return landing.part_of(item, tag_of(self._instance, item.attempt))

    # ---- small ones

    def _bring_batch(self, batch: Sequence[Item]) -> None:
        first = batch[0]
        self._transfer.file(first.found.path, first.cluster)
        ends: list[Fetched] = []
        paths = [item.found.path for item in batch]
        pieces = self._watched(self._link(first.cluster).fetch_many(first.attempt, paths, ends.append))
        small, digest = landing.Small(tag_of(self._instance, first.attempt)), hashlib.sha256()
        try:
            for item, (facts, data) in zip(batch, _unpacked(_hashing(pieces, digest.update)), strict=True):
                if facts is None:
                    raise TransientError("output_changed", f"{item.found.path} was taken away meanwhile.", "")
                small.write(item, facts[1], facts[2], data)
                self._transfer.add(len(data))
            if digest.hexdigest() != ends[0].digest:
                raise TransientError("output_damaged", f"Files arrived damaged from {first.cluster}.", "")
            small.become()
        finally:
            small.drop()


def _hashing(pieces: Iterator[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in pieces:
        update(piece)
        yield piece


def _batches(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Each of one component."""
    batch: list[Item] = []
    names = size = 0
    for item in items:
        name = len(json.dumps(item.found.path))
        full = names + name > _BATCH_NAMES or size + item.found.size > _BATCH_BYTES
        if batch and (full or item.attempt != batch[0].attempt):
            yield batch
            batch, names, size = [], 0, 0
        batch.append(item)
        names += name
        size += item.found.size
    if batch:
        yield batch


def _unpacked(pieces: Iterator[bytes]) -> Iterator[tuple[list[int] | None, bytes]]:
    """Of each file its facts and its bytes, out of the stream of messages.FetchMany. Raises SiteError for nonsense."""
    buffer = bytearray()
    for piece in chain(pieces, (b"",)):
        buffer += piece
        while (end := buffer.find(b"\n")) >= 0:
            facts = _facts(bytes(buffer[:end]))
            size = facts[0] if facts else 0
            if len(buffer) < end + 1 + size:
                break
            yield facts, bytes(buffer[end + 1 : end + 1 + size])
            del buffer[: end + 1 + size]
    if buffer:
        raise SiteError("bad_stream", "A stream of files broke off.", "")


def _facts(line: bytes) -> list[int] | None:
    try:
        facts: Any = json.loads(line)
        return None if facts is None else [int(facts[0]), int(facts[1]), int(facts[2])]
    except (ValueError, TypeError, IndexError) as error:
        raise SiteError("bad_stream", f"What a KCM sends of its files is not understood: {line[:80]!r}.", "") from error
