"""The files of a job, and their versions: fixed when it is submitted, hashed once, kept on disk.

Every component on every cluster, and every later try, gets the same bytes, or none.
"""

import hashlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from koalapy.model.errors import RequestError
from koalapy.runtime.staging.gather import Entry, opened, unchanged

_READ = 1 << 20
_IN_MEMORY = 32
_POLL_S = 1.0
_KEPT_S = 90 * 86400  # a list that was not used for so long can only belong to a final job
_NAME_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Version:
    """The files of a job and their hashes: sha256 of each entry in hex, '' for a directory."""

    entries: tuple[Entry, ...]
    digests: tuple[str, ...]

    def listed(self) -> list[list[object]]:
        """Return the list of [place, hash, mode], as messages.Submit has it."""
        return [[entry.place, digest, entry.mode] for entry, digest in zip(self.entries, self.digests, strict=True)]

    @property
    def name(self) -> str:
        """The hash of all that the program finds: places, contents, permissions."""
        return hashlib.sha256(json.dumps(self.listed()).encode()).hexdigest()


class Versions:
    """The versions of jobs' files. Any thread may call it.

    `directory` is made when it is needed. Without one, nothing outlives this object.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._fixed: OrderedDict[str, Version] = OrderedDict()
        self._busy: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def keep(self, entries: Sequence[Entry]) -> str:
        """Store the entries as they are. Returns the name to find them by, '' without a directory.

        Raises RequestError if they cannot be written.
        """
        text = json.dumps([list(entry) for entry in entries])
        name = hashlib.sha256(text.encode()).hexdigest()[:_NAME_LENGTH]
        if self._directory is None:
            return ""
        path = self._directory / f"{name}.files"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                self._drop_old()
                _write(path, text)
            os.utime(path)
        except OSError as error:
            message = f"What the job is about cannot be written down: {error.strerror}: {path}."
            raise RequestError("state_full", message, "Make room there, then submit the job again.") from error
        return name

    def entries(self, name: str) -> tuple[Entry, ...] | None:
        """Return the entries of this name; None if they are not known, or not any more."""
        data = self._read(f"{name}.files") if name else None
        return None if data is None else tuple(Entry(*each) for each in data)

    def fix(self, name: str, entries: tuple[Entry, ...], going_on: Callable[[int], None]) -> Version:
        """Return the entries with their hashes, computed now if they were not before, and once for concurrent callers.

        `going_on` is called with the number of bytes read, and with 0 about every second while another thread reads. It
        may raise. Raises RequestError for a file that has changed since it was submitted, or is missing.
        """
        if not name:
            return _hashed(entries, going_on)
        with self._lock:
            busy = self._busy.setdefault(name, threading.Lock())
        while not busy.acquire(timeout=_POLL_S):
            going_on(0)
        try:
            found = self._fixed.get(name) or self._stored(name, entries) or _hashed(entries, going_on)
            self._remember(name, found)
        finally:
            busy.release()
        return found

    def _stored(self, name: str, entries: tuple[Entry, ...]) -> Version | None:
        digests = self._read(f"{name}.hashes")
        return None if digests is None or len(digests) != len(entries) else Version(entries, tuple(digests))

    def _remember(self, name: str, version: Version) -> None:
        with self._lock:
            known = name in self._fixed
            self._fixed[name] = version
            self._fixed.move_to_end(name)
            while len(self._fixed) > _IN_MEMORY:
                self._busy.pop(self._fixed.popitem(last=False)[0], None)
        if self._directory is not None:
            with suppress(OSError):  # then they are hashed once more after a restart, and must be the same files
                os.utime(self._directory / f"{name}.files")
                if not known:
                    _write(self._directory / f"{name}.hashes", json.dumps(version.digests))

    def _read(self, file: str) -> list[str] | None:
        if self._directory is None:
            return None
        try:
            data: list[str] = json.loads((self._directory / file).read_text())
            return data
        except (OSError, ValueError):
            return None

    def _drop_old(self) -> None:
        assert self._directory is not None
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _KEPT_S:
                    path.unlink()


def _hashed(entries: tuple[Entry, ...], going_on: Callable[[int], None]) -> Version:
    return Version(entries, tuple("" if entry.directory else _digest(entry, going_on) for entry in entries))


def _digest(entry: Entry, going_on: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with opened(entry) as file:
        while data := file.read(_READ):
            going_on(len(data))
            digest.update(data)
        unchanged(entry, os.fstat(file.fileno()))
    return digest.hexdigest()


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.write_text(text)
    temporary.rename(path)
