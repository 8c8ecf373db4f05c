"""The repair of the queue and the start of jobs, by every command and every keeper at its end, under the lock."""

import os
import signal
import time
from typing import Callable, List, Tuple

from koalapy_adapters.host import descendants
from koalapy_adapters.localqueue import jobs
from koalapy_adapters.localqueue.spool import Spool, boot, now

MARK = "KOALA_LOCAL_JOB"  # in the environment of every process of a job: ID@DIRECTORY
_REMEMBERED_US = 600 * 1000000  # microseconds for which an ended job stays in the state

Keep = Callable[[str, jobs.Job], None]  # see keeper.keep


def mend(spool: Spool, state: jobs.State) -> jobs.State:
    """Record the ends of jobs whose keeper was killed, and archive jobs that ended long ago."""
    here = boot()
    for job in jobs.orphans(state, here, descendants.start_of):
        if state.boot == here:
            _kill_marked(mark(spool, job))
        reason = "the process that kept this job was killed, or the machine restarted"
        state = jobs.with_job(state, jobs.ended(job, now(), "lost", reason=reason))
        remove_script(spool, job)
    state, old = jobs.without_old(state, now() - _REMEMBERED_US)
    spool.archive(old)
    return state._replace(boot=here)


def start_jobs(spool: Spool, state: jobs.State, keep: Keep) -> jobs.State:
    """Start the jobs that fit now, each under a keeper process of its own.

    The state is written before any of them runs, so that no job can be started twice.
    """
    started: List[int] = []
    try:
        for job in jobs.startable(state):
            keeper, go = _fork_keeper(spool, job, keep)
            started.append(go)
            state = jobs.with_job(state, _running(job, keeper))
        spool.write(state)
        for go in started:
            os.write(go, b"g")
    finally:
        for go in started:
            os.close(go)
    return state


def mark(spool: Spool, job: jobs.Job) -> str:
    return "%d@%s" % (job.id, spool.directory)


def marked(mark_value: str) -> List[int]:
    """The processes of a job, wherever they are in the process tree."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _bears(pid, mark_value)]


def remove_script(spool: Spool, job: jobs.Job) -> None:
    try:
        os.unlink(spool.script(job.id))
    except FileNotFoundError:
        pass


def _running(job: jobs.Job, keeper: int) -> jobs.Job:
    start = descendants.start_of(keeper) or 0
    return job._replace(state=jobs.RUNNING, keeper=keeper, keeper_start=start, started_at=now())


def _fork_keeper(spool: Spool, job: jobs.Job, keep: Keep) -> Tuple[int, int]:
    """Fork a keeper. Returns its pid and a pipe: after a byte from it the keeper runs the job, at its end it exits."""
    waiting, go = os.pipe()
    # It is blocked until the keeper waits for it: an early cancel must not kill the keeper itself.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    try:
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                if _may_go(waiting):
                    keep(spool.directory, job)
            finally:
                os._exit(0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(waiting)
    return pid, go


def _may_go(waiting: int) -> bool:
    """Close all descriptors of the forking process, and wait for its byte. Returns True if the byte is `g`."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.dup2(waiting, 3)
    os.closerange(4, 1 + max(map(int, os.listdir("/proc/self/fd"))))
    may_start = os.read(3, 1) == b"g"
    os.close(3)
    return may_start


def _kill_marked(mark_value: str) -> None:
    """Kill the processes of a dead keeper's job, wherever they are in the process tree. Takes a second at most."""
    for _ in range(100):
        pids = marked(mark_value)
        if not pids:
            return
        descendants.send(pids, signal.SIGKILL)
        time.sleep(0.01)


def _bears(pid: int, mark_value: str) -> bool:
    wanted = ("%s=%s" % (MARK, mark_value)).encode("utf-8", "surrogateescape")
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return wanted in file.read().split(b"\0") and descendants.start_of(pid) is not None
    except OSError:
        return False  # it belongs to another user, or has ended
