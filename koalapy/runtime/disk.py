"""The disk space that koalapy uses: on the clusters, as their KCMs count it, and in koalad's state directory."""

import os
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog
from koalapy_adapters.messages import details as answers
from koalapy_adapters.messages import files as files_messages
from koalapy_adapters.messages import kcm

from koalapy.model.errors import KoalaError, Reason
from koalapy.model.pilot import job_of_pilot
from koalapy.model.units import Instant
from koalapy.runtime.session.exchange import understood

_LOG = structlog.get_logger()
_ANSWER_S = 60.0  # a KCM ends its count after 40 s
_EVERY_S = 3600.0
_FIRST_S = 60.0  # after a cluster was connected
HERE = "here"  # this host's name among the places
_PARTS = {"output": "output", "staged": "staged"}  # parts that are a directory each

Ask = Callable[[str, Callable[[int], Any], float], kcm.Done]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDiskUse:
    """The disk space that koalapy uses in one place.

    `at`: when it was counted, None if it never was. `size`: in bytes. `directories`: on a cluster those of attempts,
    here those of jobs whose output was collected. `parts`: (name, bytes) of each part. `complete`: False if there was
    too much to count, so that there are more bytes. `trouble`: why the last count failed. `is_here`: whether the place
    is koalad's state directory.
    """

    place: str
    at: Instant | None = None
    size: int = 0
    directories: int = 0
    parts: tuple[tuple[str, int], ...] = ()
    complete: bool = True
    trouble: Reason | None = None
    is_here: bool = False


class DiskUse:
    """Counts the disk space every hour in the background, and on demand.

    Any thread may call it; `warnings` returns at once. `warn`: the size in bytes of one place above which `warnings`
    reports it; None: never, and nothing is counted in the background. It may be changed.
    """

    def __init__(
        self,
        clusters: Collection[str],
        ask: Ask,
        state_directory: Path,
        now: Callable[[], Instant],
        warn: int | None,
    ) -> None:
        """`clusters`: their names, which may change. A pilot has the directory of its cluster, and is left out."""
        self._clusters, self._ask, self._state, self._now, self.warn = clusters, ask, state_directory, now, warn
        self._last: dict[str, OwnDiskUse] = {}  # of clusters
        self._last_here: OwnDiskUse | None = None
        self._closed = threading.Event()

    def start(self) -> None:
        """Start to count in the background, while there is a limit to warn of."""
        threading.Thread(target=self._run, name="disk", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def count(self) -> list[OwnDiskUse]:
        """Count everywhere at once. Returns the clusters in the order of the grid file, then the state directory.

        Blocks.
        """
        clusters = [each for each in self._clusters if job_of_pilot(each) is None]
        with ThreadPoolExecutor(max(1, len(clusters))) as threads:
            found = list(threads.map(self._on, clusters))
        self._last = {each.place: each for each in found}
        self._last_here = self._here()
        return [*found, self._last_here]

    def warnings(self) -> list[str]:
        """Return a sentence for each place whose last count was above the limit."""
        limit = self.warn
        if limit is None:
            return []
        counted = [*self._last.values(), *([self._last_here] if self._last_here else [])]
        return [_warning(each, limit) for each in counted if each.size > limit]

    def _run(self) -> None:
        wait = _FIRST_S
        while not self._closed.wait(wait):
            try:
                if self.warn is not None:
                    self.count()
            except Exception:
                _LOG.exception("disk_not_counted")
            wait = _EVERY_S

    def _on(self, cluster: str) -> OwnDiskUse:
        before = self._last.get(cluster, OwnDiskUse(place=cluster))
        try:
            found = understood(
                answers.disk_used, self._ask(cluster, lambda number: files_messages.DiskUse(number), _ANSWER_S).details
            )
        except TimeoutError:
            message = f"{cluster} did not count what koalapy has there within {_ANSWER_S:.0f} s."
            return replace(before, trouble=Reason("no_answer", "transient", message, "Try again later."))
        except KoalaError as error:
            return replace(before, trouble=error.reason)
        parts = (("attempts", max(0, found.bytes - found.staged_bytes)), ("staged", found.staged_bytes))
        return OwnDiskUse(
            place=cluster,
            at=self._now(),
            size=found.bytes,
            directories=found.attempts,
            parts=parts,
            complete=found.whole,
        )

    def _here(self) -> OwnDiskUse:
        parts = {name: sum(_sizes(self._state / directory)) for name, directory in _PARTS.items()}
        parts["log"] = sum(_size(path) for path in self._state.glob("koalad.log*"))
        rest = sum(_sizes(self._state)) - sum(parts.values())
        parts = {"store": max(0, rest), **parts}
        directories = sum(1 for _ in _entries(self._state / _PARTS["output"]))
        return OwnDiskUse(
            place=HERE, at=self._now(), size=sum(parts.values()), directories=directories, parts=tuple(parts.items()),
            is_here=True,
        )  # fmt: skip


def _warning(taken: OwnDiskUse, limit: int) -> str:
    where = "in koalad's state directory" if taken.is_here else f"on {taken.place}"
    least = "" if taken.complete else "at least "
    return (
        f"koalapy has {least}{as_size(taken.size)} {where}, more than `disk.warn` ({as_size(limit)}). "
        f"`koala clusters --disk` shows what it is."
    )


def as_size(size: int) -> str:
    """Return a number of bytes in words, by powers of 1024, as grid files have them."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{size} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            yield from found
    except OSError:
        return


def _sizes(directory: Path) -> Iterator[int]:
    """Yield the bytes on disk of every file below the directory. Links are not followed."""
    for place, _, files in os.walk(directory):
        for name in files:
            yield _size(Path(place, name))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
