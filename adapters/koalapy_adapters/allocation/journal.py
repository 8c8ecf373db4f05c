"""The files of a queue, in one directory of the shared directory.

DIRECTORY/jobs.jsonl       every change of a job, one a line; the last line of a job is its state
          jobs.copy.jsonl  the same, in the queue of a machine itself; it is written second
          jobs.1.jsonl     the older half, once the first has grown too large
          jobs.damaged.jsonl  a journal that could not be read, nor its copy; kept for an examination
          runs/N           the keeper of a job that runs, in the queue of a machine itself (see keepers)
          server.json      where the queue's server runs, and its socket
          server.log       what the server and the launchers of its node servers print

Only the queue of a machine itself outlives a crash of its machine; its journal is therefore synced. Elsewhere the
allocation is over once the node of the server has lost its power.
"""

import json
import os
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

from koalapy_adapters.allocation import jobs
from koalapy_adapters.host import descendants

_LIMIT = 16 << 20
_BOOT = "/proc/sys/kernel/random/boot_id"
_OLD, _JOBS, _COPY, _DAMAGED = "jobs.1.jsonl", "jobs.jsonl", "jobs.copy.jsonl", "jobs.damaged.jsonl"
_BEGINNING = b"{}\n"  # the first line: a file without it was damaged
_RANK = {jobs.QUEUED: 0, jobs.RUNNING: 1, jobs.SUSPENDED: 1, jobs.ENDED: 2}


class Address(NamedTuple):
    """Where a queue's server runs. `start` (ticks since boot) and `boot` distinguish its pid from a later one.

    `slots`: the processors of a machine's own queue, 0 in an allocation.
    """

    host: str
    boot: str
    pid: int
    start: int
    socket: str
    slots: int = 0

    @property
    def is_here(self) -> bool:
        """Return whether the server is one of this host, which may have been renamed since."""
        return self.boot == boot() and (self.host == os.uname().nodename or os.path.exists(self.socket))

    @property
    def lives(self) -> bool:
        """Return whether the server lives, if it is a server of this host."""
        return self.is_here and descendants.start_of(self.pid) == self.start


class Journal:
    """Appends the changes of jobs. `known`: the jobs of an earlier server.

    `durable`: every change is synced, and written twice. `damaged`: both files were, so jobs may be unknown.
    Raises OSError if the directory cannot be used.
    """

    def __init__(self, directory: str, durable: bool = False) -> None:
        self._directory, self._durable = directory, durable
        os.makedirs(directory, mode=0o700, exist_ok=True)
        paths = [_path(directory, name) for name in ((_JOBS, _COPY) if durable else (_JOBS,))]
        self._paths = paths
        self.known = read(directory)
        flawed = [path for path in paths if _is_flawed(path)]
        self.damaged = durable and flawed == paths and any(map(os.path.exists, paths))
        if self.damaged and os.path.exists(paths[0]):
            os.rename(paths[0], _path(directory, _DAMAGED))
        for path in flawed:
            self._replace(path, self.known.values())
        self._files = _opened(paths)

    def write(self, changed: List[jobs.Job], all_jobs: Dict[int, jobs.Job]) -> None:
        if not changed:
            return
        for file in self._files:
            file.write(_lines(changed))
            self._flush(file)
        if self._files[0].tell() > _LIMIT:
            self.close()
            os.rename(self._paths[0], _path(self._directory, _OLD))
            for path in self._paths:
                self._replace(path, all_jobs.values())
            self._files = _opened(self._paths)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _replace(self, path: str, rows: Iterable[jobs.Job]) -> None:
        with open(path + ".new", "wb") as file:
            file.write(_BEGINNING + _lines(rows))
            self._flush(file)
        os.rename(path + ".new", path)
        if self._durable:
            sync_directory(self._directory)

    def _flush(self, file: Any) -> None:
        file.flush()
        if self._durable:
            os.fsync(file.fileno())


def read(directory: str) -> Dict[int, jobs.Job]:
    """The last state of every job. A line that a crash cut off is skipped. Empty if there is no journal."""
    found: Dict[int, jobs.Job] = {}
    for name in (_OLD, _JOBS, _COPY):
        for row in _rows(_path(directory, name)):
            if row.id not in found or _RANK[row.state] >= _RANK[found[row.id].state]:
                found[row.id] = row
    return found


def read_address(directory: str) -> Optional[Address]:
    """The address of the last server; None if no server has ever run."""
    try:
        with open(_path(directory, "server.json")) as file:
            return Address(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def write_address(directory: str, socket: str, slots: int = 0) -> None:
    """State that this process is the queue's server."""
    pid = os.getpid()
    address = Address(os.uname().nodename, boot(), pid, descendants.start_of(pid) or 0, socket, slots)
    path = _path(directory, "server.json")
    with open(path + ".new", "w") as file:
        json.dump(address._asdict(), file)
    os.rename(path + ".new", path)


def show_life(directory: str) -> None:
    """Touch what `is_silent` looks at. Raises OSError if the directory is gone."""
    os.utime(_path(directory, "server.json"))


def is_silent(directory: str, now: float, limit_s: float) -> bool:
    """Return whether no server has shown life for so long, on whichever host."""
    try:
        return now > os.stat(_path(directory, "server.json")).st_mtime + limit_s
    except OSError:
        return True


def log_path(directory: str) -> str:
    return _path(directory, "server.log")


def boot() -> str:
    """Identify the boot of this host."""
    try:
        with open(_BOOT) as file:
            return file.read().strip()
    except OSError:
        return ""


def sync_directory(path: str) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(paths: List[str]) -> List[Any]:
    return [os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") for path in paths]


def _lines(rows: Iterable[jobs.Job]) -> bytes:
    return b"".join(json.dumps(row._asdict()).encode() + b"\n" for row in rows)


def _rows(path: str) -> Iterator[jobs.Job]:
    try:
        with open(path, "rb") as file:
            for line in file:
                row = _row(line)
                if row is not None:
                    yield row
    except OSError:
        return


def _row(line: bytes) -> Optional[jobs.Job]:
    try:
        row = jobs.job_of(json.loads(line.decode()))
        return row if row.state in _RANK else None
    except (ValueError, TypeError, RecursionError):
        return None


def _is_flawed(path: str) -> bool:
    """Return whether the file is missing, or not every line of it is whole."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return True
    return lines[:1] != [_BEGINNING.rstrip()] or lines[-1] != b"" or any(_row(line) is None for line in lines[1:-1])


def _path(directory: str, name: str) -> str:
    return os.path.join(directory, name)
