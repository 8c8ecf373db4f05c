"""Submits to Slurm by its API, in a long-lived process, where that is the same as sbatch: see docs/slurm.md. What
submits can also list which jobs wait, for a fraction of what squeue takes.
"""

import os
import pkgutil
import re
import resource
import socket
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError, ClusterError
from koalapy_adapters.kcm.execution.slurm_api.filters import hindrance
from koalapy_adapters.kcm.execution.slurm_api.process import SubmitAnswer, SubmitterLost, SubmitterProcess
from koalapy_adapters.kcm.execution.subprocess_runner import run
from koalapy_adapters.kcm.koalad_streams import log

OFF, AUTO, REQUIRED = "off", "auto", "required"  # values of `slurm_api`
TIMEOUT = 30.0  # seconds for one submit
BEGIN = 10.0  # seconds for its start
IDLE = 60.0  # seconds without a question after which it is ended
AGE = 300.0  # seconds after which it is replaced, and what may hinder it is looked at again: a cluster changes
REST = 60.0  # seconds for which sbatch is used after it was lost, or cannot be used
MEMORY = 256 << 20  # bytes of one that is replaced

_PERL = "/usr/bin/perl"  # for which Slurm's module is built; another one on the PATH would not have it
SERVED = 500  # microseconds that a question has the controller and munge take, beyond kcm.account.SERVERS
# setrlimit(2), by the names of slurm.conf(5)
_LIMITS = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")


class Waiting(NamedTuple):
    """Jobs that wait, as the API's program writes them, and what it took to know, in microseconds of CPU time."""

    jobs: List[str]
    cost: int


class Submitter:
    """`api` is the dialect's account of its batch system's API. Methods block and may run in any thread.

    The process is started when it is needed, and ended when nobody needs it.
    """

    def __init__(self, wish: str, api: Any, command: Optional[List[str]] = None) -> None:
        """`command` instead of perl with the API's program."""
        self._wish, self._api = wish, api
        self._command = command or [_PERL, "-e", _program(api.PROGRAM)]
        self._lock = threading.Lock()  # one submit at a time: it takes a fraction of what it saves
        self._process: Optional[SubmitterProcess] = None
        self._begun_at = self._used_at = self._resting_until = 0.0
        self._cost = 0  # microseconds, of the process that runs
        self._waiting: Optional[List[str]] = None  # its last output
        self._closed = threading.Event()
        self.spent = 0  # microseconds of CPU time so far
        self.hindrance = ""  # why sbatch is used

    def start(self) -> bool:
        """Whether jobs go by it now."""
        with self._lock:
            return self._running() is not None

    def way(self) -> str:
        """By what jobs are submitted now, in words. Raises ClusterError if the API is required and cannot be used."""
        if self.start():
            return "Slurm's API"
        if self._wish == REQUIRED:
            raise _unusable(self.hindrance)
        return "%s, since %s" % (self._api.COMMAND, self.hindrance)

    def submit(self, job: BatchJob, path: str, begin: Callable[[], bool]) -> Optional[str]:
        """The batch id; None if the command has to find it: for a job that the API cannot describe, and for one that
        the controller refused, so that the refusal is the command's.

        `begin` returns whether it may be done still. Raises SubmitterLost if the job may have been submitted, and
        ClusterError if the API is required and cannot be used.
        """
        wishes = self._api.submit_fields(job, path)
        if wishes is None:
            return None
        with self._lock:
            process = self._running()
            if process is None and self._wish == REQUIRED:
                raise _unusable(self.hindrance)
            if process is None or not begin():
                return None
            return self._judged(self._asked(process, wishes))

    def waiting(self) -> Optional[Waiting]:
        """Ask the process for the waiting jobs; None if the command has to do it."""
        with self._lock:
            spent, process = self.spent, self._running()
            if process is None:
                return None
            try:
                answer = process.waiting(TIMEOUT)
                self._paid(answer.cost)
                self._waiting = answer.jobs if answer.jobs is not None else self._waiting
            except SubmitterLost as error:
                self._rest(str(error))
            return None if self._waiting is None else Waiting(self._waiting, self.spent - spent + SERVED)

    def close(self) -> None:
        """Ends it, whatever it does."""
        self._closed.set()
        process = self._process
        if process is not None:
            process.end()

    def _asked(self, process: SubmitterProcess, wishes: Dict[str, str]) -> SubmitAnswer:
        try:
            reply = process.submit(wishes, TIMEOUT)
        except SubmitterLost as error:
            self._rest(str(error))
            raise
        self._paid(reply.cost)
        return reply

    def _paid(self, cost: int) -> None:
        """It has answered, and taken this much so far."""
        self._used_at = time.monotonic()
        self.spent += max(0, cost - self._cost)
        self._cost = cost

    def _judged(self, reply: SubmitAnswer) -> Optional[str]:
        if reply.batch_id or self._api.refused(reply.errno):
            return reply.batch_id or None
        words = "Slurm's API replied: %s" % (reply.words or "error %d" % reply.errno)
        self._rest(words)
        raise SubmitterLost(words.rstrip(".") + ".")

    def _running(self) -> Optional[SubmitterProcess]:
        """One that died by itself, grew or is old is replaced before the next request."""
        now = time.monotonic()
        process = self._process
        if process is not None and (process.gone or process.resident > MEMORY or now - self._begun_at > AGE):
            self._end()
        if self._process is None and now >= self._resting_until and not self._closed.is_set():
            why = self._begin()
            if why:
                self._rest(why)
        return self._process

    def _begin(self) -> str:
        """Why it cannot be used; "" if it is there."""
        try:
            settings = self._settings()
            why = self._api.other_release(settings) or hindrance(settings, os.environ, self._api.COMMAND)
            return why or self._greeted(settings)
        except SubmitterLost:
            return "perl has no module Slurm that loads (libslurm-perl, slurm-perlapi)"
        except BatchError as error:
            return error.message.rstrip(".")

    def _settings(self) -> Dict[str, str]:
        result, cost = run(["scontrol", "show", "config"], BEGIN)
        self.spent += cost
        if result.exit_status != 0:
            raise ClusterError("batch_system_unreachable", "The controller does not report its configuration.")
        return dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", result.stdout, re.MULTILINE))

    def _greeted(self, settings: Dict[str, str]) -> str:
        process = SubmitterProcess(self._command, self._environment(settings))
        try:
            why: str = self._api.other_release(settings, process.greeting(BEGIN))
        except SubmitterLost:
            process.end()
            raise
        if why:
            process.end()
            return why
        self._process, self._cost, self.hindrance = process, 0, ""
        self._begun_at = self._used_at = time.monotonic()
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        return ""

    def _environment(self, settings: Dict[str, str]) -> Dict[str, str]:
        limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[0] for name in _LIMITS}
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        added: Dict[str, str] = self._api.environment(settings, limits, socket.gethostname(), _umask(), nice)
        return added

    def _watch(self, process: SubmitterProcess) -> None:
        """Until nobody has used it for a while."""
        while not self._closed.wait(IDLE):
            with self._lock:
                if self._process is not process:
                    return
                if time.monotonic() - self._used_at >= IDLE:
                    self._end()
                    return

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = self._waiting = None

    def _rest(self, why: str) -> None:
        self._end()
        self._resting_until = time.monotonic() + REST
        if why != self.hindrance:
            log("Jobs are submitted by %s, not by Slurm's API: %s" % (self._api.COMMAND, why.rstrip(".")))
        self.hindrance = why


def find_submitter(wish: str, dialect: Any) -> Optional[Submitter]:
    """By the grid file's `slurm_api`. None: the batch system's command submits."""
    api = getattr(dialect, "api", None)
    return Submitter(wish, api) if api is not None and wish != OFF else None


def _unusable(why: str) -> ClusterError:
    return ClusterError(
        "no_slurm_api",
        "Jobs cannot be submitted by Slurm's API: %s." % why,
        "Set `slurm_api: auto` for this cluster in the grid file; then sbatch does it.",
    )


def _program(name: str) -> str:
    text = pkgutil.get_data("koalapy_adapters.batch", name)
    assert text is not None
    return text.decode()


def _umask() -> int:
    """Read the umask of this process from the kernel: the call to ask sets it, which another thread might see."""
    with open("/proc/self/status") as status:
        found = re.search(r"^Umask:\s*(\d+)", status.read(), re.MULTILINE)
    return int(found.group(1), 8) if found else 0o22
