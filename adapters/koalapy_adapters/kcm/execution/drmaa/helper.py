"""The DRMAA helper: the library that it loads, and one run of it as a process that reads and writes JSON lines."""

import glob
import json
import os
import subprocess
import threading
from collections import deque
from concurrent import futures
from typing import IO, TYPE_CHECKING, Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence

from koalapy_adapters.kcm.execution.subprocess_runner import end_at_once

# Grid Engine's library brings a malloc that needs more room for thread-local data than a running process has left.
TUNABLES = "glibc.rtld.optional_static_tls=4096"

if TYPE_CHECKING:
    Answer = futures.Future[Dict[str, Any]]
else:
    Answer = futures.Future


class DrmaaRefused(Exception):
    """The batch system refused, in these words; nothing was done."""


class DrmaaLost(Exception):
    """The helper died, or did not answer: what it was asked may have been done."""


class HelperProcess:
    """Requests go to its stdin; answers and ends of jobs come from its stdout. It starts at once.

    `ended` is called with the id of a job that ended, `died` when its output ends: in a thread.

    Several threads may ask at a time. Requests wait in its input, so that it is never idle, and it answers them in
    order.
    """

    def __init__(
        self, command: List[str], library: str, ended: Callable[[str], None], died: Callable[[], None]
    ) -> None:
        environment = dict(os.environ, LC_ALL="C", GLIBC_TUNABLES=TUNABLES, DRMAA_LIBRARY_PATH=library)
        self._ended, self._died = ended, died
        self._asking = threading.Lock()
        self.greeting: Answer = futures.Future()  # it sends its first answer without a request
        self._expected: Deque[Answer] = deque([self.greeting])
        self.gone = False
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/", start_new_session=True
            )
        except OSError as error:
            raise DrmaaLost("The DRMAA helper cannot be started: %s." % error) from error
        self.pid = self._process.pid
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, request: Dict[str, Any]) -> Answer:
        """Send a request; returns what `answer` waits for. Raises DrmaaLost."""
        expected: Answer = futures.Future()
        with self._asking:
            if self.gone:
                raise DrmaaLost("The DRMAA helper died.")
            self._expected.append(expected)
            try:
                stdin = _pipe(self._process.stdin)
                stdin.write(json.dumps(request).encode() + b"\n")
                stdin.flush()
            except (OSError, ValueError) as error:  # ValueError: it was ended, and its input closed
                raise DrmaaLost("The DRMAA helper is gone: %s." % error) from error
        return expected

    def answer(self, expected: Answer, timeout: float) -> Dict[str, Any]:
        """Raises DrmaaRefused or DrmaaLost."""
        try:
            answer = expected.result(timeout)
        except futures.TimeoutError:
            raise DrmaaLost("The DRMAA helper did not answer in time.") from None
        if "refused" in answer:
            raise DrmaaRefused(str(answer["refused"]))
        return answer

    def end(self) -> None:
        """Kill the helper in any state: a library that hangs reacts to no request."""
        end_at_once(self._process)
        try:
            _pipe(self._process.stdin).close()
        except OSError:
            pass

    def _listen(self) -> None:
        with _pipe(self._process.stdout) as stdout:
            for line in stdout:
                try:
                    message = json.loads(line.decode())
                except ValueError:
                    continue
                if isinstance(message, dict):
                    self._receive(message)
        with self._asking:
            self.gone = True
            lost, self._expected = self._expected, deque()
        for each in lost:
            each.set_exception(DrmaaLost("The DRMAA helper died."))
        self._died()

    def _receive(self, message: Dict[str, Any]) -> None:
        if "ended" in message:
            self._ended(str(message["ended"]))
        elif self._expected:
            self._expected.popleft().set_result(message)


def _pipe(pipe: Optional[IO[bytes]]) -> IO[bytes]:
    assert pipe is not None
    return pipe


class Library(NamedTuple):
    """`family`: what the library must call its batch system, as a regular expression; "" for one that was named.

    `options` go with every submit, and `of_commands`, which the submit command knows, with none.
    """

    path: str
    family: str = ""
    options: Sequence[str] = ()
    of_commands: Sequence[str] = ()


def find_library(preferred: str, dialect: Any) -> Optional[Library]:
    """By the grid file's `drmaa`: off, auto or a path. None: the batch system's commands are used.

    `auto` takes the batch system's own library only, which its dialect describes as `drmaa`.
    """
    own = getattr(dialect, "drmaa", None)
    if preferred == "off" or (preferred == "auto" and own is None):
        return None
    options = (own.OPTIONS, own.OF_COMMANDS) if own is not None else ((), ())
    if preferred != "auto":
        return Library(preferred, "", *options)
    assert own is not None
    for pattern in own.libraries(os.environ):
        for path in sorted(glob.glob(pattern)):
            return Library(path, own.FAMILY, *options)
    return None
