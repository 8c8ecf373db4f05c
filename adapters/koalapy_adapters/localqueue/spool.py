"""The local queue's files: one directory, one lock, one state file that is replaced whole, one history.

DIRECTORY/lock        held (flock) while the state is read and changed
          queue.json  the state
          N.script    a job's script, until it has ended
          ended.jsonl the jobs that ended, one a line, once they have left the state
          queue       starts a command on this queue, for those that know its path only
"""

import fcntl
import json
import os
import time
from typing import List, Optional

from koalapy_adapters.localqueue import jobs

_HISTORY_LIMIT = 1 << 20
_BOOT = "/proc/sys/kernel/random/boot_id"


class Spool:
    """The queue in a directory, locked from `__enter__` to `__exit__`. Raises OSError if it cannot be used."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        self._lock = -1

    def __enter__(self) -> "Spool":
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._lock = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        # Unlocked by name, since a keeper that was just forked still holds the descriptor.
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)

    def read(self) -> jobs.State:
        """The state; a new queue's if there is none."""
        try:
            with open(self._path("queue.json")) as file:
                return jobs.from_json(json.load(file))
        except FileNotFoundError:
            return jobs.State(os.cpu_count() or 1, boot())
        except (ValueError, TypeError, KeyError) as error:
            raise OSError("queue.json cannot be read (%s)" % error) from error

    def write(self, state: jobs.State) -> None:
        self._replace("queue.json", json.dumps(jobs.to_json(state)), 0o600)

    def script(self, number: int) -> str:
        return self._path("%d.script" % number)

    def write_script(self, number: int, text: str) -> None:
        self._replace("%d.script" % number, text, 0o700)

    def write_starter(self, command: List[str]) -> None:
        """Write `queue`, unless it says so already."""
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
            if os.path.getsize(path) > _HISTORY_LIMIT:
                os.rename(path, self._path("ended.1.jsonl"))

    def archived(self, name: str) -> Optional[jobs.Job]:
        """The newest job of this name that has left the state."""
        for file_name in ("ended.jsonl", "ended.1.jsonl"):
            try:
                with open(self._path(file_name)) as file:
                    found = [jobs.Job(**json.loads(line)) for line in file if json.dumps(name) in line]
            except FileNotFoundError:
                continue
            matching = [job for job in found if job.name == name]
            if matching:
                return matching[-1]
        return None

    def _replace(self, name: str, text: str, mode: int) -> None:
        temporary = self._path(".%s.new" % name)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            os.rename(temporary, self._path(name))
        except OSError:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def boot() -> str:
    """Names the time since the machine was started: process ids of an earlier one mean nothing."""
    with open(_BOOT) as file:
        return file.read().strip()


def now() -> jobs.Instant:
    return int(time.time() * 1e6)
