"""The DRMAA sessions of a cluster: each in a helper process, since libdrmaa may crash, hang or leak."""

import re
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from koalapy_adapters.kcm.execution.drmaa.helper import Answer, DrmaaLost, DrmaaRefused, HelperProcess, Library
from koalapy_adapters.kcm.koalad_streams import log
from koalapy_adapters.kcm.state.actions import Woken

TIMEOUT = 10.0  # seconds for one operation
PING = 15.0  # seconds between two looks at a helper that nobody asks anything
OVERDUE = 30.0  # seconds that a wait for the end of a job may last beyond its own time
MEMORY = 256 << 20  # bytes of a helper that is replaced before the head node feels it
MAX_CRASHES, CRASH_WINDOW = 3, 600.0  # so many within so many seconds: for as long the dialect's commands do better
REST = 60.0  # seconds until a session that could not be begun is tried again
SESSIONS = 2  # each is an event client of Grid Engine's qmaster, which has room for 99, or as configured


class DrmaaClient:
    """One session, in a helper that is started when it is needed, and replaced at once when it dies, hangs or grows.

    Methods block and may run in any thread. The session's contact outlives the helper: Grid Engine keeps a session's
    jobs, so that the next helper receives their ends too. `report` is called once if there may be ends in between.
    """

    def __init__(self, command: List[str], library: Library, notify: Callable[[Any], None]) -> None:
        self._command, self._library, self._notify = command, library, notify
        self._lock = threading.Lock()  # of what is done to the helper, not of what it is asked
        self._helper: Optional[HelperProcess] = None
        self._contact = ""
        self._crashes: List[float] = []
        self._resting_until = 0.0
        self._closed = False
        self._look = threading.Event()
        self._watcher: Optional[threading.Thread] = None

    @property
    def usable(self) -> bool:
        """Not while the batch system's commands do better."""
        return not self._closed and time.monotonic() >= self._resting_until

    def start(self) -> bool:
        """Return whether there is a session; a helper that died is started again."""
        with self._lock:
            try:
                self._running()
                return True
            except (DrmaaLost, DrmaaRefused):
                return False

    def submit(self, script: str, words: List[str]) -> str:
        """The batch id of this script, with the options that the submit command would have had."""
        meant = [word for word in words if word not in (script, *self._library.of_commands)]
        request = {"do": "submit", "script": script, "options": [*self._library.options, *meant]}
        return str(self._ask(request)["batch_id"])

    def control(self, batch_id: str, action: str) -> bool:
        """hold, release, suspend, resume or terminate. Whether the library did it; if not, a command has to."""
        try:
            self._ask({"do": "control", "batch_id": batch_id, "action": action})
            return True
        except (DrmaaRefused, DrmaaLost):
            return False

    def close(self) -> None:
        self._closed = True
        self._look.set()
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.end()

    def look_after(self) -> None:
        """See to it that there is a helper, and that it is well; replace one that died, hangs or grew."""
        with self._lock:
            health = self._health()
            if health.get("waiting", 0.0) > OVERDUE:
                self._crashed()
            elif health.get("rss", 0) > MEMORY:
                log("The DRMAA helper has grown to %d MB and is replaced" % (health["rss"] >> 20))
                self._end()
            self._replace()

    def _ask(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Behind what others have asked of the helper; with it is lost whatever it had not answered."""
        with self._lock:
            helper, expected = self._sent(request)
        try:
            return helper.answer(expected, TIMEOUT)
        except DrmaaLost:
            with self._lock:
                if self._helper is helper:
                    self._crashed()
            self._look.set()
            raise

    def _sent(self, request: Dict[str, Any]) -> Tuple[HelperProcess, Answer]:
        helper = self._running()
        try:
            return helper, helper.send(request)
        except DrmaaLost:
            self._crashed()
            self._look.set()
            raise

    def _health(self) -> Dict[str, Any]:
        """Ask the helper for its state, after all its earlier answers; empty if it does not answer."""
        try:
            helper, expected = self._sent({"do": "ping"})
        except (DrmaaLost, DrmaaRefused):
            return {}
        try:
            return helper.answer(expected, TIMEOUT)
        except DrmaaLost:
            self._crashed()
            return {}

    def _running(self) -> HelperProcess:
        """One that died while nobody asked it anything is replaced before it is asked."""
        if self._helper is not None and self._helper.gone:
            self._crashed()
        if not self.usable:
            raise DrmaaRefused("There is no DRMAA session now.")
        if self._helper is None:
            command = [*self._command, self._contact]
            self._helper = HelperProcess(command, self._library.path, self._ended, self._look.set)
            self._begin(self._helper)
        return self._helper

    def _begin(self, helper: HelperProcess) -> None:
        try:
            opened = helper.answer(helper.greeting, TIMEOUT)
            family = str(opened.get("drms", ""))
            if self._library.family and not re.search(self._library.family, family):
                raise DrmaaRefused("%s is the library of %s" % (self._library.path, family or "no batch system"))
        except (DrmaaLost, DrmaaRefused) as error:
            self._end()
            self._rest(REST, str(error))
            raise
        self._contact = str(opened["contact"])
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        while not self._closed:
            self._look.wait(PING)
            self._look.clear()
            if self.usable:
                self.look_after()

    def _replace(self) -> None:
        """Start the helper again, so that ends of jobs are noticed again."""
        try:
            self._running()
        except (DrmaaLost, DrmaaRefused):
            pass

    def _ended(self, batch_id: str) -> None:
        self._notify(Woken())

    def _end(self) -> None:
        if self._helper is not None:
            self._helper.end()
            self._helper = None

    def _crashed(self) -> None:
        self._end()
        now = time.monotonic()
        self._crashes = [at for at in self._crashes if now - at < CRASH_WINDOW] + [now]
        if len(self._crashes) >= MAX_CRASHES:
            self._crashes = []
            self._rest(CRASH_WINDOW, "it has failed %d times" % MAX_CRASHES)

    def _rest(self, seconds: float, why: str) -> None:
        self._resting_until = time.monotonic() + seconds
        log("For %d s commands are used, not %s: %s" % (seconds, self._library.path, why))


class DrmaaSessions:
    """Two sessions: the second is used once the first has more to do than one thing. Methods may run in any thread.

    Of some three hundred answers Grid Engine's library notices one only after a second, in which it does nothing: its
    thread that waits for events, and the one that waits for the answer, share a condition, and the wrong one of them is
    woken. More threads in one process make that more frequent; another process has a library of its own.
    """

    def __init__(self, command: List[str], library: Library, notify: Callable[[Any], None]) -> None:
        self._sessions = [DrmaaClient(command, library, notify) for _ in range(SESSIONS)]
        self._asked = [0] * SESSIONS
        self._lock = threading.Lock()

    @property
    def usable(self) -> bool:
        """Not while the batch system's commands do better."""
        return self._sessions[0].usable

    def start(self) -> bool:
        """Return whether there is a session; a helper that died is started again."""
        return self._sessions[0].start()

    def submit(self, script: str, words: List[str]) -> str:
        """See Drmaa.submit."""
        with self._least_asked() as session:
            return session.submit(script, words)

    def control(self, batch_id: str, action: str) -> bool:
        """See Drmaa.control."""
        with self._least_asked() as session:
            return session.control(batch_id, action)

    def close(self) -> None:
        for session in self._sessions:
            session.close()

    @contextmanager
    def _least_asked(self) -> Iterator[DrmaaClient]:
        """The first of them, if nobody waits for it; or if the other cannot be begun."""
        with self._lock:
            number = self._asked.index(min(self._asked))
            self._asked[number] += 1
        try:
            session = self._sessions[number]
            yield session if number == 0 or session.start() else self._sessions[0]
        finally:
            with self._lock:
                self._asked[number] -= 1
