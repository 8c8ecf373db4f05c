"""One run of the DRMAA helper, as a process: JSON lines to its stdin, answers and ends of jobs from its stdout."""

import json
import os
import subprocess
import threading
import time
from typing import IO, Any, Callable, Dict, List, Optional

# Grid Engine's library brings a malloc that wants more room for thread-local data than a running process has left.
TUNABLES = "glibc.rtld.optional_static_tls=4096"


class DrmaaRefused(Exception):
    """The batch system said no, in these words; nothing was done."""


class DrmaaLost(Exception):
    """The helper died, or did not answer: what it was asked may have been done."""


class HelperProcess:
    """Starts at once. `ended` is called with the id of a job that ended, `died` when its output ends: in a thread."""

    def __init__(
        self, command: List[str], library: str, ended: Callable[[str], None], died: Callable[[], None]
    ) -> None:
        environment = dict(os.environ, LC_ALL="C", GLIBC_TUNABLES=TUNABLES, DRMAA_LIBRARY_PATH=library)
        self._ended, self._died = ended, died
        self._changed = threading.Condition()
        self._answers: List[Dict[str, Any]] = []
        self.gone = False
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/", start_new_session=True
            )
        except OSError as error:
            raise DrmaaLost("The DRMAA helper cannot be started: %s." % error) from error
        self.pid = self._process.pid
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, request: Dict[str, Any], timeout: float) -> Dict[str, Any]:
        """Raises DrmaaRefused or DrmaaLost."""
        try:
            stdin = _pipe(self._process.stdin)
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise DrmaaLost("The DRMAA helper is gone: %s." % error) from error
        return self.answer(timeout)

    def answer(self, timeout: float) -> Dict[str, Any]:
        """The next; its first comes unasked."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self._answers and not self.gone and time.monotonic() < deadline:
                self._changed.wait(max(0.0, deadline - time.monotonic()))
            answer = self._answers.pop(0) if self._answers else None
        if answer is None:
            raise DrmaaLost("The DRMAA helper died." if self.gone else "The DRMAA helper did not answer in time.")
        if "refused" in answer:
            raise DrmaaRefused(str(answer["refused"]))
        return answer

    def end(self) -> None:
        """Whatever it does; a library that hangs heeds no plea."""
        try:
            self._process.kill()
            self._process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            pass  # a file system that hangs may hold it; it can do nothing any more
        try:
            _pipe(self._process.stdin).close()
        except OSError:
            pass

    def _listen(self) -> None:
        with _pipe(self._process.stdout) as stdout:
            for line in stdout:
                try:
                    said = json.loads(line.decode())
                except ValueError:
                    continue
                if isinstance(said, dict):
                    self._heard(said)
        with self._changed:
            self.gone = True
            self._changed.notify()
        self._died()

    def _heard(self, said: Dict[str, Any]) -> None:
        if "ended" in said:
            self._ended(str(said["ended"]))
            return
        with self._changed:
            self._answers.append(said)
            self._changed.notify()


def _pipe(pipe: Optional[IO[bytes]]) -> IO[bytes]:
    assert pipe is not None
    return pipe
