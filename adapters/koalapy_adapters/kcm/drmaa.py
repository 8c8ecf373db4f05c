"""Client of the DRMAA helper: a process of its own, since libdrmaa may crash or hang, and comes back if it does."""

import glob
import json
import os
import subprocess
import threading
import time
from typing import IO, Any, Callable, Dict, List, Optional

from koalapy_adapters.kcm.actions import Woken
from koalapy_adapters.kcm.pipes import log

TIMEOUT = 10.0  # seconds for one operation
MAX_CRASHES, CRASH_WINDOW = 3, 600.0  # so many within so many seconds: the dialect's commands do better
_LIBRARIES = (
    "/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0",
    "/usr/lib64/gridengine-drmaa/lib/libdrmaa.so.1.0",
    "/usr/lib/*/libdrmaa.so.1.0",
)
# Grid Engine's library brings a malloc that wants more room for thread-local data than a running process has left.
_OF_COMMANDS = ("-terse",)  # options of qsub that mean nothing to the library
TUNABLES = "glibc.rtld.optional_static_tls=4096"


class DrmaaRefused(Exception):
    """The batch system said no, in these words; nothing was done."""


class DrmaaLost(Exception):
    """The helper died, or did not answer: what it was asked may have been done."""


def find_library(wish: str) -> Optional[str]:
    """The library's path by the grid file's `drmaa`: off, auto or a path. None: use commands."""
    if wish == "off":
        return None
    if wish != "auto":
        return wish
    root = os.environ.get("SGE_ROOT")
    patterns = [os.path.join(root, "lib", "*", "libdrmaa.so*")] if root else []
    found = [path for pattern in patterns + list(_LIBRARIES) for path in sorted(glob.glob(pattern))]
    return found[0] if found else None


class Drmaa:
    """One DRMAA session, in a helper that is started when it is needed. Methods block and may run in any thread."""

    def __init__(self, command: List[str], library: str, tell: Callable[[Any], None]) -> None:
        self._command, self._library, self._tell = command, library, tell
        self._lock = threading.Lock()  # one operation at a time: the library has one session
        self._helper: Optional[_Helper] = None
        self._contact = ""
        self._crashes: List[float] = []
        self.usable = True

    def start(self) -> bool:
        """Whether there is a session; a helper that died is started again."""
        with self._lock:
            if not self.usable:
                return False
            try:
                self._running()
                return True
            except DrmaaLost:
                self._crashed()
                return False

    def submit(self, script: str, words: List[str]) -> str:
        """The batch id of this script, with the options that the submit command would have had."""
        options = [word for word in words if word not in (script, *_OF_COMMANDS)]
        return str(self._ask({"do": "submit", "script": script, "options": options})["batch_id"])

    def cancel(self, batch_id: str) -> bool:
        """Whether the library did it; if not, the dialect's command has to."""
        try:
            self._ask({"do": "cancel", "batch_id": batch_id})
            return True
        except (DrmaaRefused, DrmaaLost):
            return False  # a session knows its own jobs only

    def close(self) -> None:
        helper, self._helper, self.usable = self._helper, None, False
        if helper is not None:
            helper.end()

    def _ask(self, request: Dict[str, Any]) -> Dict[str, Any]:
        with self._lock:
            if not self.usable:
                raise DrmaaRefused("There is no DRMAA session any more.")
            try:
                return self._running().ask(request)
            except DrmaaLost:
                self._crashed()
                raise

    def _running(self) -> "_Helper":
        """One that died while nobody asked it anything is replaced before it is asked."""
        if self._helper is not None and self._helper.gone:
            self._crashed()
        if self._helper is None and not self.usable:
            raise DrmaaLost("The DRMAA helper dies again and again.")
        if self._helper is None:
            helper = _Helper([*self._command, self._contact], self._library, self._ended)
            self._helper = helper
            self._contact = helper.ready() or self._contact
        return self._helper

    def _ended(self, batch_id: str) -> None:
        self._tell(Woken())

    def _crashed(self) -> None:
        if self._helper is not None:
            self._helper.end()
            self._helper = None
        now = time.monotonic()
        self._crashes = [at for at in self._crashes if now - at < CRASH_WINDOW] + [now]
        if not self._contact or len(self._crashes) >= MAX_CRASHES:
            self.usable = False
            log("The DRMAA library %s fails; the batch system's commands are used" % self._library)


class _Helper:
    """One run of the helper process: JSON lines to its stdin, answers and endings of jobs from its stdout."""

    def __init__(self, command: List[str], library: str, ended: Callable[[str], None]) -> None:
        environment = dict(os.environ, LC_ALL="C", GLIBC_TUNABLES=TUNABLES, DRMAA_LIBRARY_PATH=library)
        self._ended = ended
        self._changed = threading.Condition()
        self._answers: List[Dict[str, Any]] = []
        self.gone = False
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/", start_new_session=True
            )
        except OSError as error:
            raise DrmaaLost("The DRMAA helper cannot be started: %s." % error) from error
        threading.Thread(target=self._listen, daemon=True).start()

    def ready(self) -> str:
        """The session's contact."""
        return str(self._answer()["contact"])

    def ask(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            stdin = _pipe(self._process.stdin)
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise DrmaaLost("The DRMAA helper is gone: %s." % error) from error
        answer = self._answer()
        if "refused" in answer:
            raise DrmaaRefused(str(answer["refused"]))
        return answer

    def end(self) -> None:
        """Whatever it does; a library that hangs heeds no plea."""
        try:
            self._process.kill()
        except OSError:
            pass
        self._process.wait()
        try:
            _pipe(self._process.stdin).close()
        except OSError:
            pass

    def _answer(self) -> Dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT
        with self._changed:
            while not self._answers and not self.gone and time.monotonic() < deadline:
                self._changed.wait(max(0.0, deadline - time.monotonic()))
            if self._answers:
                return self._answers.pop(0)
        raise DrmaaLost("The DRMAA helper died." if self.gone else "The DRMAA helper did not answer in time.")

    def _listen(self) -> None:
        with _pipe(self._process.stdout) as stdout:
            for line in stdout:
                try:
                    said = json.loads(line.decode())
                except ValueError:
                    continue
                if "ended" in said:
                    self._ended(str(said["ended"]))
                else:
                    self._put(said)
        with self._changed:
            self.gone = True
            self._changed.notify()

    def _put(self, answer: Dict[str, Any]) -> None:
        with self._changed:
            self._answers.append(answer)
            self._changed.notify()


def _pipe(pipe: Optional[IO[bytes]]) -> IO[bytes]:
    assert pipe is not None
    return pipe
