"""The local queue's files: one directory, one lock, one state file that is replaced whole, one history.

DIRECTORY/lock        held (flock) while the state is read and changed
          queue.json  the state
          queue.json.copy  a copy, which is written first, and is read if queue.json is damaged
          queue.json.damaged  a state that could not be read in either; kept for an examination
          N.script    a job's script, until it has ended
          ended.jsonl the jobs that ended, one a line, once they have left the state
          queue       starts a command on this queue, for those that know its path only
"""

import fcntl
import json
import os
import time
from typing import Iterator, List, Optional

from koalapy_adapters.localqueue import jobs

_HISTORY_LIMIT = 1 << 20
_STATE, _COPY, _DAMAGED = "queue.json", "queue.json.copy", "queue.json.damaged"
_HISTORIES = ("ended.jsonl", "ended.1.jsonl")
_BOOT = "/proc/sys/kernel/random/boot_id"


class Spool:
    """The queue in a directory, locked from `__enter__` to `__exit__`. Raises OSError if it cannot be used."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        self._lock = -1
        self._written: Optional[jobs.State] = None  # the contents of the files, as far as they are known

    def __enter__(self) -> "Spool":
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._lock = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        # An explicit unlock: a keeper that was just forked still has the descriptor.
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)

    def read(self) -> Optional[jobs.State]:
        """The state, if necessary that of the copy. None if neither file exists or can be read."""
        self._written = self._read(_STATE)
        return self._written or self._read(_COPY)

    def write(self, state: jobs.State) -> None:
        """Replace the state durably, unless the files have it already. A crash leaves one of the two files whole."""
        if state == self._written:
            return
        text = json.dumps(jobs.to_json(state))
        self._replace(_COPY, text, 0o600)
        self._replace(_STATE, text, 0o600)
        self._written = state

    def set_aside(self) -> bool:
        """Rename a state that cannot be read. Returns False if there is none."""
        try:
            os.rename(self._path(_STATE), self._path(_DAMAGED))
        except FileNotFoundError:
            return False
        return True

    def cores(self) -> int:
        """The slots of a queue whose number of slots was never set: the cores of this machine."""
        return os.cpu_count() or 1

    def scripts(self) -> List[int]:
        """The jobs that have a script: those that have not ended, or ended just now."""
        names = [name[: -len(".script")] for name in os.listdir(self.directory) if name.endswith(".script")]
        return sorted(int(name) for name in names if name.isdigit())

    def read_script(self, number: int) -> str:
        with open(self.script(number), "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")

    def script(self, number: int) -> str:
        return self._path("%d.script" % number)

    def write_script(self, number: int, text: str) -> None:
        self._replace("%d.script" % number, text, 0o700)

    def write_starter(self, command: List[str]) -> None:
        """Write the file `queue`, unless it is up to date."""
        words = " ".join("'%s'" % word.replace("'", "'\\''") for word in command)
        own = "'%s'" % self.directory.replace("'", "'\\''")
        text = '#!/bin/sh\nexec %s local-queue --directory %s "$@"\n' % (words, own)
        try:
            with open(self._path("queue")) as file:
                if file.read() == text:
                    return
        except FileNotFoundError:
            pass
        self._replace("queue", text, 0o700)

    def archive(self, old: List[jobs.Job]) -> None:
        """Move jobs into the history, and drop the history's older half when it has grown too large."""
        path = self._path("ended.jsonl")
        if old:
            with open(path, "a") as file:
                file.writelines(json.dumps(job._asdict()) + "\n" for job in old)
                file.flush()
                os.fsync(file.fileno())
            if os.path.getsize(path) > _HISTORY_LIMIT:
                os.rename(path, self._path("ended.1.jsonl"))

    def archived(self, name: str) -> Optional[jobs.Job]:
        """The newest job of this name that has left the state."""
        for file_name in _HISTORIES:
            matching = [job for job in self._archived_in(file_name, json.dumps(name)) if job.name == name]
            if matching:
                return matching[-1]
        return None

    def last_archived(self) -> int:
        """The highest id in the history; 0 if it is empty."""
        return max([job.id for file_name in _HISTORIES for job in self._archived_in(file_name, "")] or [0])

    def _archived_in(self, file_name: str, words: str) -> Iterator[jobs.Job]:
        """The jobs of the lines with these words. A line that a crash cut off is skipped."""
        try:
            with open(self._path(file_name)) as file:
                for line in file:
                    if words in line:
                        try:
                            yield jobs.job_of(json.loads(line))
                        except (ValueError, TypeError):
                            continue
        except FileNotFoundError:
            return

    def _read(self, name: str) -> Optional[jobs.State]:
        """The state in this file; None if the file is missing or holds no state."""
        try:
            with open(self._path(name)) as file:
                return jobs.from_json(json.load(file))
        except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def _replace(self, name: str, text: str, mode: int) -> None:
        temporary = self._path(".%s.new" % name)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, self._path(name))
            self._sync_directory()
        except OSError:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise

    def _sync_directory(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def boot() -> str:
    """Identify the boot of the machine: process ids of an earlier boot are meaningless."""
    with open(_BOOT) as file:
        return file.read().strip()


def now() -> jobs.Instant:
    return int(time.time() * 1e6)
