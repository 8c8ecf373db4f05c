"""The jobs of a machine's own queue. Each has a keeper: the parent of its first process, which outlives the server.

A keeper makes the file runs/N of its job N, which only one process can do, and appends how the job has ended. So a job
whose start was recorded is never started again, and the end of one is known, whenever the server was killed. A job
whose keeper was killed is lost: nobody can know how it ended.
"""

import gc
import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from koalapy_adapters import clock
from koalapy_adapters.allocation import first_process, jobs, journal, requests
from koalapy_adapters.allocation.outer_job import Outer
from koalapy_adapters.errors import BatchError
from koalapy_adapters.host import descendants

_FORWARDED = {signal.SIGTERM, signal.SIGTSTP, signal.SIGCONT}
_HELD = _FORWARDED | {signal.SIGCHLD}
_LATE_S = 60.0  # after its walltime, a job is ended by its keeper if there is no server
_LOST = "the process that kept this job was killed, or the machine restarted"


class Process(NamedTuple):
    """A keeper: its pid, and its start in ticks since boot."""

    pid: int
    start: int

    @property
    def lives(self) -> bool:
        return self.pid > 0 and descendants.start_of(self.pid) == self.start


class Run(NamedTuple):
    """The contents of runs/N. `keeper` has pid 0 after a restart of the machine. `end`: status, and if by a signal."""

    job: jobs.Job
    keeper: Process
    end: Optional[Tuple[int, bool]]


class Keepers:
    """The jobs that run on this machine."""

    hurries = has_ended = False
    is_ready = True

    def __init__(self, queue: jobs.Queue, outer: Outer, directory: str) -> None:
        self._queue, self._outer, self._directory = queue, outer, directory
        self._name = outer.hosts[0].name
        self._base = first_process.environment(self._name)
        self._keepers = {number: run.keeper for number, run in _runs(directory).items()}
        self._children: Dict[int, int] = {}  # jobs by their keepers' pids
        self._ended: List[int] = []  # jobs whose end is not in the journal yet
        self._is_warm = False
        queue.memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        queue.up[self._name] = True

    def refusal(self) -> Optional[BatchError]:
        return None

    def start(self, job: jobs.Job) -> None:
        variables = dict(self._base, **requests.environment_of(job, self._directory, self._outer))
        message: Dict[str, Any] = {"command": job.command, "directory": job.directory, "output": job.output}
        message["forks"] = _is_own_python(job.command[0])
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        try:
            pid = os.fork()
            if pid == 0:
                _keep(self._directory, job, message, variables)
        except OSError as error:
            self._queue.lose(job.id, clock.seconds(), "no process for it: %s" % error.strerror, sure=True)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._keepers[job.id] = Process(pid, descendants.start_of(pid) or 0)
        self._children[pid] = job.id

    def signal(self, each: jobs.Signal) -> None:
        keeper = self._keepers.get(each.job.id)
        if keeper is not None and keeper.lives:
            pids = descendants.descendants(keeper.pid) if each.number == signal.SIGKILL else [keeper.pid]
            descendants.send(pids, each.number)

    def advance(self) -> None:
        """Notice what has ended."""
        ended = {self._children.pop(pid) for pid, _ in descendants.reap() if pid in self._children}
        own = set(self._children.values())
        ended.update(number for number, keeper in self._keepers.items() if number not in own and not keeper.lives)
        for number in ended:
            self._on_end(number)
        if not self._is_warm:
            self._is_warm = True
            _warm_up()

    def written(self) -> None:
        """Forget the runs of jobs whose end is in the journal now."""
        while self._ended:
            _remove(self._directory, self._ended.pop())

    def leave(self) -> None:
        """Do nothing: the jobs go on."""

    def _on_end(self, number: int) -> None:
        run = _read(self._directory, number)
        if run is not None and run.keeper.lives:
            self._keepers[number] = run.keeper  # that of an earlier server, which was first
            return
        del self._keepers[number]
        self._ended.append(number)
        if run is not None and run.end is not None:
            self._queue.ended(number, *run.end, clock.seconds())
            return
        for _ in range(100):
            if not first_process.end_programs_of(self._directory, number):
                break
            time.sleep(0.01)
        self._queue.lose(number, clock.seconds(), _LOST, sure=False)


def recovered(directory: str, known: Dict[int, jobs.Job], damaged: bool) -> Dict[int, jobs.Job]:
    """The jobs of an earlier server, by its journal and by what has begun. `damaged`: the journal lacks some changes.

    A job that has not begun is queued; or lost, if the journal is damaged: it may have ended. Raises OSError.
    """
    os.makedirs(os.path.join(directory, "runs"), mode=0o700, exist_ok=True)
    runs = _runs(directory)
    found = {}
    for number, job in known.items():
        if job.state == jobs.ENDED or number in runs:
            found[number] = job
        elif damaged:
            found[number] = job._replace(
                state=jobs.ENDED, ended_at=clock.seconds(), ending="lost", reason=requests.DAMAGED, suspended_at=None
            )
        else:
            found[number] = job._replace(state=jobs.QUEUED, hosts=[], started_at=None, suspended_at=None)
    for number, run in runs.items():
        if number not in found or found[number].state == jobs.QUEUED:
            found[number] = run.job
        elif found[number].state == jobs.ENDED and not run.keeper.lives:
            _remove(directory, number)
    return found


def _keep(directory: str, job: jobs.Job, message: Dict[str, Any], variables: Dict[str, str]) -> None:
    """In a forked child, with signals held: be the keeper of the job. Never returns."""
    try:
        server = os.getppid()
        os.setsid()
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(null, standard)
        os.closerange(3, 1 + max(map(int, os.listdir("/proc/self/fd"))))
        if _begin(directory, job):
            descendants.become_subreaper()
            child = os.fork()
            if child == 0:
                first_process.become(message, variables)
            status, signalled = first_process.exit_of(_await(child, job.walltime_s + _LATE_S, server))
            _end(directory, job.id, b"%d %d\n" % (status, signalled))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _begin(directory: str, job: jobs.Job) -> bool:
    """Make the file of the job durably. Returns False if another process has, which then runs it. Raises OSError."""
    path = _path(directory, job.id)
    new = "%s.%d" % (path, os.getpid())
    keeper = [os.getpid(), descendants.start_of(os.getpid()), journal.boot()]
    try:
        with open(new, "w") as file:
            file.write(json.dumps([job._asdict(), *keeper]) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
    except FileExistsError:
        return False
    finally:
        if os.path.exists(new):
            os.unlink(new)
    journal.sync_directory(os.path.dirname(path))
    return True


def _await(child: int, limit_s: float, server: int) -> int:
    """Wait until the child has ended, and kill all that is left. Returns its status, as waitpid(2) does."""
    late = time.monotonic() + limit_s
    ended: Optional[int] = None
    while ended is None or not descendants.sweep():
        received = signal.sigtimedwait(_HELD, 0.05 if ended is not None else max(1.0, late - time.monotonic()))
        for pid, status in descendants.reap():
            if pid == child:
                ended = status
        if ended is not None:
            continue
        if received is None and time.monotonic() >= late and os.getppid() != server:
            descendants.send(descendants.descendants(os.getpid()), signal.SIGKILL)
        elif received is not None and received.si_signo == signal.SIGTERM:
            _send_group(child)
        elif received is not None and received.si_signo in _FORWARDED:
            descendants.send([child], received.si_signo)
    return ended


def _send_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGTERM)
    except ProcessLookupError:
        descendants.send([leader], signal.SIGTERM)  # it does not lead its own group yet


def _end(directory: str, number: int, text: bytes) -> None:
    """Record the end. While the disk is full, this waits, and the slots stay in use."""
    while True:
        try:
            descriptor = os.open(_path(directory, number), os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, text)
            os.close(descriptor)
            return
        except FileNotFoundError:
            return  # the queue's directory is gone, so nobody can query the job
        except OSError:
            time.sleep(1.0)


def _runs(directory: str) -> Dict[int, Run]:
    names = os.listdir(os.path.join(directory, "runs"))
    found = ((int(name), _read(directory, int(name))) for name in names if name.isdigit())
    return {number: run for number, run in found if run is not None}


def _read(directory: str, number: int) -> Optional[Run]:
    """The run of a job; None if it has not begun."""
    try:
        with open(_path(directory, number)) as file:
            first, _, end = file.read().partition("\n")
        row, pid, start, boot = json.loads(first)
        status, signalled = map(int, end.split()) if end.endswith("\n") else (-1, 0)
        here = Process(pid, start) if boot == journal.boot() else Process(0, 0)
        return Run(jobs.job_of(row), here, None if status < 0 else (status, bool(signalled)))
    except (OSError, ValueError, TypeError):
        return None


def _remove(directory: str, number: int) -> None:
    try:
        os.unlink(_path(directory, number))
    except OSError:
        pass


def _path(directory: str, number: int) -> str:
    return os.path.join(directory, "runs", str(number))


def _is_own_python(command: str) -> bool:
    """Return whether a wrapper may be a fork of this process: `python` in the grid file may be a script."""
    return os.path.realpath(shutil.which(command) or command) == os.path.realpath(sys.executable)


def _warm_up() -> None:
    """Import once what every wrapper needs, since wrappers are forks of this process."""
    from koalapy_adapters.batch import local  # noqa: F401
    from koalapy_adapters.wrapper import run, start  # noqa: F401
    from koalapy_adapters.wrapper.agent import node_agent  # noqa: F401
    from koalapy_adapters.wrapper.program import environment, prepare_workdir  # noqa: F401

    gc.collect()
    getattr(gc, "freeze", gc.collect)()  # a fork must not collect these: their descriptors have other uses there
