"""The DRMAA helper: libdrmaa in a process that may crash alone. JSON lines on stdin ask, JSON lines on stdout answer.

    {"do": "submit", "script": PATH, "options": [...]}   -> {"batch_id": ID} or {"refused": WORDS}
    {"do": "cancel", "batch_id": ID}                     -> {} or {"refused": WORDS}

It begins with {"contact": SESSION}, and says {"ended": ID} whenever a job of this session has ended. The environment
names the library in DRMAA_LIBRARY_PATH. At the end of its input it exits; jobs do not notice.
"""

import json
import os
import shlex
import sys
import threading
import time
from typing import IO, Any, Dict, List

_NO_USAGE = "code 24:"
_WAIT = 60  # seconds that one wait for the end of a job lasts


def main(argv: List[str]) -> int:
    """Serve one session: that of the contact in `argv`, if it is named and still known, else a new one."""
    out = _guarded_stdout()
    import drmaa

    session = drmaa.Session()
    _initialize(drmaa, session, argv[0] if argv else "")
    helper = _Helper(drmaa, session, out)
    helper.say({"contact": session.contact})
    threading.Thread(target=helper.wait_for_jobs, daemon=True).start()
    for line in sys.stdin:
        helper.say(helper.answer(json.loads(line)))
    # Not session.exit(): it waits for the thread that waits, and the session is wanted again.
    os._exit(0)


def _initialize(drmaa: Any, session: Any, contact: str) -> None:
    if contact:
        try:
            session.initialize(contact)
            return
        except drmaa.errors.DrmaaException as error:
            sys.stderr.write("The DRMAA session %s is lost: %s\n" % (contact, error))
    session.initialize()


class _Helper:
    def __init__(self, drmaa: Any, session: Any, out: IO[str]) -> None:
        self._drmaa, self._session, self._out = drmaa, session, out
        self._writing = threading.Lock()
        self._submitted = threading.Event()

    def say(self, answer: Dict[str, Any]) -> None:
        with self._writing:
            self._out.write(json.dumps(answer) + "\n")
            self._out.flush()

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            if request["do"] == "submit":
                return {"batch_id": self._submit(request["script"], request["options"])}
            self._session.control(request["batch_id"], self._drmaa.JobControlAction.TERMINATE)
            return {}
        except Exception as error:  # the binding raises its own kinds, and for some codes a plain Exception
            return {"refused": str(error)}

    def _submit(self, script: str, options: List[str]) -> str:
        template = self._session.createJobTemplate()
        try:
            template.remoteCommand = script
            template.nativeSpecification = " ".join(shlex.quote(word) for word in ["-b", "n", *options])
            batch_id = str(self._session.runJob(template))
        finally:
            self._session.deleteJobTemplate(template)
        self._submitted.set()
        return batch_id

    def wait_for_jobs(self) -> None:
        """Tell of each job of this session as it ends."""
        while True:
            self._submitted.wait()
            self._submitted.clear()  # before the wait: a job that is submitted meanwhile sets it again
            try:
                info = self._session.wait(self._drmaa.Session.JOB_IDS_SESSION_ANY, _WAIT)
                self._submitted.set()
                self.say({"ended": str(info.jobId)})
            except self._drmaa.errors.InvalidJobException:
                continue  # none is left that could be waited for
            except self._drmaa.errors.ExitTimeoutException:
                self._submitted.set()
            except Exception as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Of a job that was deleted before it ran the library says only that it cannot tell: that is an end too."""
        if not str(error).startswith(_NO_USAGE):
            sys.stderr.write("wait: %s\n" % error)
            time.sleep(1)
        self._submitted.set()
        self.say({"ended": ""})


def _guarded_stdout() -> IO[str]:
    """stdout for answers alone: what the library prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out
