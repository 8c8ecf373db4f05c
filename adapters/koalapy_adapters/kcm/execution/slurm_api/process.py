"""One run of the program that calls Slurm by its API: a line to its stdin, a line from its stdout."""

import os
import resource
import select
import subprocess
import time
from typing import IO, Dict, Iterable, List, NamedTuple, Optional, TypeVar
from urllib.parse import quote, unquote

from koalapy_adapters.kcm.execution.subprocess_runner import command_environment, end_at_once

ADDRESS_SPACE = 1 << 30  # bytes that it may map, far above what it needs: a leak ends in it
_LINE = 1 << 20  # bytes of the longest answer that is one


Answer = TypeVar("Answer")


class SubmitterLost(Exception):
    """It died, did not answer in time, or not in its own words: what it was asked may have been done."""


class SubmitAnswer(NamedTuple):
    """An answer: the id of the new job, or why there is none; and `cost`, CPU time so far in microseconds."""

    batch_id: str
    errno: int
    words: str
    cost: int


class WaitingJobs(NamedTuple):
    """Waiting jobs, as the program writes them; None if they have not changed. `cost` as in SubmitAnswer."""

    jobs: Optional[List[str]]
    cost: int


class SubmitterProcess:
    """Starts at once. One thread at a time. After SubmitterLost nothing more can be asked of it: `end` it."""

    def __init__(self, command: List[str], environment: Dict[str, str]) -> None:
        self._number = 0
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(command_environment(), **environment),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SubmitterLost("%s cannot be started: %s." % (command[0], error.strerror)) from error
        _bound_memory(self._process.pid)

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None

    @property
    def resident(self) -> int:
        """Bytes; 0 if that is unknown."""
        try:
            with open("/proc/%d/statm" % self._process.pid) as statm:
                return int(statm.read().split()[1]) * resource.getpagesize()
        except (OSError, ValueError, IndexError):
            return 0

    def greeting(self, timeout: float) -> int:
        """Wait for the number of its library's interface. `timeout` in seconds. Raises SubmitterLost."""
        words = self._answer(timeout)
        if len(words) != 2 or words[0] != "ready" or not words[1].isdigit():
            raise SubmitterLost("It did not begin as it should.")
        return int(words[1])

    def submit(self, wishes: Dict[str, str], timeout: float) -> SubmitAnswer:
        """Submit a job. `timeout` in seconds. Raises SubmitterLost."""
        return _understood(_submit_answer(self._answered(map(_word, wishes.items()), timeout)))

    def waiting(self, timeout: float) -> WaitingJobs:
        return _understood(_waiting_jobs(self._answered([b"waiting"], timeout)))

    def end(self) -> None:
        """Kill the process in any state."""
        end_at_once(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                _pipe(pipe).close()
            except OSError:
                pass

    def _answered(self, words: Iterable[bytes], timeout: float) -> List[str]:
        """Its answer bears the number of the question: that to another one would be another job's."""
        self._number += 1
        self._ask(b" ".join([b"%d" % self._number, *words]) + b"\n")
        number, *answer = self._answer(timeout)
        return answer if number == str(self._number) else []

    def _ask(self, line: bytes) -> None:
        stdin = _pipe(self._process.stdin)
        try:
            stdin.write(line)
            stdin.flush()
        except OSError as error:
            raise SubmitterLost("It is gone: %s." % error.strerror) from error

    def _answer(self, timeout: float) -> List[str]:
        """The words of the one line that it prints."""
        stdout, deadline, read = _pipe(self._process.stdout).fileno(), time.monotonic() + timeout, b""
        while not read.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([stdout], [], [], left)[0]:
                raise SubmitterLost("It did not answer within %d s." % timeout)
            more = os.read(stdout, _LINE)
            read += more
            if not more or len(read) > _LINE:
                raise SubmitterLost("It died." if not more else "It printed too much.")
        return read[:-1].decode("ascii", "replace").split(" ")


def _word(wish: "tuple[str, str]") -> bytes:
    name, value = wish
    return b"%s=%s" % (name.encode(), quote(os.fsencode(value), safe="/,:").encode())


def _submit_answer(words: List[str]) -> Optional[SubmitAnswer]:
    """Parse the answer to a submit; None if it is not one."""
    if len(words) < 3 or not all(word.isdigit() for word in words[1:3]):
        return None
    number, cost = int(words[1]), 1000 * int(words[2])
    if words[0] == "ok" and len(words) == 3 and number:
        return SubmitAnswer(words[1], 0, "", cost)
    if words[0] == "no" and len(words) == 4:
        return SubmitAnswer("", number, unquote(words[3], errors="replace"), cost)
    return None


def _waiting_jobs(words: List[str]) -> Optional[WaitingJobs]:
    """Parse the answer about waiting jobs; None if it is not one."""
    if len(words) < 3 or not all(word.isdigit() for word in words[1:3]):
        return None
    number, cost, jobs = int(words[1]), 1000 * int(words[2]), words[3:]
    if words[0] == "ok" and len(jobs) == number:
        return WaitingJobs(jobs, cost)
    return WaitingJobs(None, cost) if words[0] == "same" else None


def _understood(answer: "Optional[Answer]") -> "Answer":
    if answer is None:
        raise SubmitterLost("It did not answer in its own words.")
    return answer


def _bound_memory(pid: int) -> None:
    try:
        resource.prlimit(pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    except (OSError, ValueError, AttributeError):
        pass  # the cluster's own limit is lower, or the process gone


def _pipe(pipe: Optional[IO[bytes]]) -> IO[bytes]:
    assert pipe is not None
    return pipe
