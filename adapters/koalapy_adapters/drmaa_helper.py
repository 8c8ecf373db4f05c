"""The DRMAA helper: libdrmaa in a process that may crash alone. Requests come on stdin, answers go to stdout.

    {"do": "submit", "script": PATH, "options": [...]}        -> {"batch_id": ID} or {"refused": WORDS}
    {"do": "control", "batch_id": ID, "action": "terminate"}  -> {} or {"refused": WORDS}
    {"do": "ping"}                                            -> {"rss": BYTES, "waiting": SECONDS}

Other actions are hold, release, suspend and resume. The first line is {"contact": SESSION, "drms": WHAT} or
{"refused": WORDS}. The line {"ended": ID} reports the end of a job of this session; ID is empty if the library does not
name the job. The environment variable DRMAA_LIBRARY_PATH names the library. The helper exits at the end of its input;
this does not affect jobs.
"""

import json
import os
import resource
import shlex
import sys
import threading
import time
from typing import IO, Any, Dict, List

ADDRESS_SPACE = 4 << 30  # bytes that the library may map; far above what threads and allocators reserve and never use
_NO_USAGE = "code 24:"
_WAIT = 60  # seconds that one wait for the end of a job lasts


def main(argv: List[str]) -> int:
    """Serve one session: that of the contact `argv[0]` if it is still known, else a new one.

    Returns 1 if none can be opened; else the process exits at the end of its input.
    """
    _bound_memory()
    out = _guarded_stdout()
    import drmaa

    session = drmaa.Session()
    helper = _Helper(drmaa, session, out)
    try:
        resumed = _initialize(drmaa, session, argv[0] if argv else "")
    except Exception as error:  # the binding raises its own kinds, and for some codes a plain Exception
        helper.write_line({"refused": str(error)})
        sys.stderr.write("%s\n" % error)
        return 1
    helper.write_line({"contact": session.contact, "drms": str(session.drmsInfo)})
    if resumed:
        helper.write_line({"ended": ""})  # while nobody waited, the ends of its jobs went by
        helper.expect()
    threading.Thread(target=helper.wait_for_jobs, daemon=True).start()
    for line in sys.stdin:
        helper.write_line(helper.answer(json.loads(line)))
    # Not session.exit(): it waits for the thread that waits, and the session is wanted again.
    os._exit(0)


def _initialize(drmaa: Any, session: Any, contact: str) -> bool:
    """Open the session of that contact, else a new one. Returns whether it is the contact's."""
    if contact:
        try:
            session.initialize(contact)
            return True
        except drmaa.errors.DrmaaException as error:
            sys.stderr.write("The DRMAA session %s is lost: %s\n" % (contact, error))
    session.initialize()
    return False


class _Helper:
    """One DRMAA session, served by the main thread and the thread that waits for ends of jobs."""

    def __init__(self, drmaa: Any, session: Any, out: IO[str]) -> None:
        self._drmaa, self._session, self._out = drmaa, session, out
        self._writing = threading.Lock()
        self._expected = threading.Event()
        self._waiting_since = 0.0  # since when the library has been waiting; 0 while it does not

    def write_line(self, answer: Dict[str, Any]) -> None:
        """Write one JSON line to stdout. Any thread may call it."""
        with self._writing:
            self._out.write(json.dumps(answer) + "\n")
            self._out.flush()

    def expect(self) -> None:
        """Let the waiting thread wait once more: there may be jobs whose end can be waited for."""
        self._expected.set()

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            if request["do"] == "submit":
                return {"batch_id": self._submit(request["script"], request["options"])}
            if request["do"] == "ping":
                return {"rss": _resident(), "waiting": self._waited()}
            action = getattr(self._drmaa.JobControlAction, request["action"].upper())
            self._session.control(request["batch_id"], action)
            return {}
        except Exception as error:  # see main
            return {"refused": str(error)}

    def _submit(self, script: str, options: List[str]) -> str:
        template = self._session.createJobTemplate()
        try:
            template.remoteCommand = script
            template.nativeSpecification = " ".join(shlex.quote(word) for word in options)
            batch_id = str(self._session.runJob(template))
        finally:
            self._session.deleteJobTemplate(template)
        self.expect()
        return batch_id

    def wait_for_jobs(self) -> None:
        """Write an `ended` line for each job of this session when it ends. Never returns."""
        while True:
            self._expected.wait()
            self._expected.clear()  # before the wait: a job that is submitted meanwhile sets it again
            self._waiting_since = time.monotonic()
            try:
                info = self._session.wait(self._drmaa.Session.JOB_IDS_SESSION_ANY, _WAIT)
                self.expect()
                self.write_line({"ended": str(info.jobId)})
            except self._drmaa.errors.InvalidJobException:
                continue  # none is left that could be waited for
            except self._drmaa.errors.ExitTimeoutException:
                self.expect()
            except Exception as error:
                self._failed(error)
            finally:
                self._waiting_since = 0.0

    def _failed(self, error: Exception) -> None:
        """Write an `ended` line without an id: a job may have ended.

        Code 24 means one that was deleted before it ran.
        """
        if not str(error).startswith(_NO_USAGE):
            sys.stderr.write("wait: %s\n" % error)
            time.sleep(1)
        self.expect()
        self.write_line({"ended": ""})

    def _waited(self) -> float:
        """Seconds by which the current wait exceeds _WAIT, else 0.0. A value above 0 means that the library hangs."""
        since = self._waiting_since
        return max(0.0, time.monotonic() - since - _WAIT) if since else 0.0


def _bound_memory() -> None:
    """Limit the address space, so that a leak ends this process. The KCM replaces a growing helper long before that."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (OSError, ValueError):
        pass  # the cluster's own limit is lower


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def _guarded_stdout() -> IO[str]:
    """Return a stream to stdout for answers alone. Text that the library prints to stdout goes to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out
