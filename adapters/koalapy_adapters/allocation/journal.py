"""The files of an allocation's queue, in one directory of the shared directory.

DIRECTORY/jobs.jsonl    every change of a job, one a line; the last line of a job is its state
          jobs.1.jsonl  the older half, once the first has grown too large
          server.json   where the queue's server runs, and its socket
          server.log    what the server and the launchers of its node servers print

Nothing is synced: if the node of the server loses its power, the allocation is over as well.
"""

import json
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from koalapy_adapters.allocation import jobs
from koalapy_adapters.host import descendants

_LIMIT = 16 << 20
_BOOT = "/proc/sys/kernel/random/boot_id"
_HISTORIES = ("jobs.1.jsonl", "jobs.jsonl")


class Address(NamedTuple):
    """Where a queue's server runs. `start` (ticks since boot) and `boot` distinguish its pid from a later one."""

    host: str
    boot: str
    pid: int
    start: int
    socket: str

    @property
    def is_here(self) -> bool:
        return (self.host, self.boot) == (os.uname().nodename, boot())

    @property
    def lives(self) -> bool:
        """Return whether the server lives, if it is a server of this host."""
        return self.is_here and descendants.start_of(self.pid) == self.start


class Journal:
    """Appends the changes of jobs. Raises OSError if the directory cannot be used."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._file = self._open()

    def write(self, changed: List[jobs.Job], all_jobs: Dict[int, jobs.Job]) -> None:
        if not changed:
            return
        self._append(changed)
        if self._file.tell() > _LIMIT:
            self._file.close()
            os.rename(_path(self._directory, _HISTORIES[1]), _path(self._directory, _HISTORIES[0]))
            self._file = self._open()
            self._append(list(all_jobs.values()))

    def close(self) -> None:
        self._file.close()

    def _append(self, rows: List[jobs.Job]) -> None:
        self._file.write(b"".join(json.dumps(row._asdict()).encode() + b"\n" for row in rows))
        self._file.flush()

    def _open(self) -> Any:
        return open(_path(self._directory, _HISTORIES[1]), "ab")


def read(directory: str) -> Dict[int, jobs.Job]:
    """The last state of every job. A line that a crash cut off is skipped. Empty if there is no journal."""
    found: Dict[int, jobs.Job] = {}
    for name in _HISTORIES:
        for row in _rows(_path(directory, name)):
            found[row.id] = row
    return found


def read_address(directory: str) -> Optional[Address]:
    """The address of the last server; None if no server has ever run."""
    try:
        with open(_path(directory, "server.json")) as file:
            return Address(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def write_address(directory: str, socket: str) -> None:
    """State that this process is the queue's server."""
    pid = os.getpid()
    address = Address(os.uname().nodename, boot(), pid, descendants.start_of(pid) or 0, socket)
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


def _rows(path: str) -> Iterator[jobs.Job]:
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    yield jobs.job_of(json.loads(line.decode()))
                except (ValueError, TypeError):
                    continue
    except OSError:
        return


def _path(directory: str, name: str) -> str:
    return os.path.join(directory, name)
