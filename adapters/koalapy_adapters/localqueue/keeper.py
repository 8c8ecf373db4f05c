"""The keeper of one running job: its parent process, which enforces its walltime and records its exit status."""

import os
import pwd
import signal
import time
from typing import Dict, NamedTuple

from koalapy_adapters.host import descendants
from koalapy_adapters.localqueue import jobs, scheduling
from koalapy_adapters.localqueue.recovery import state_of
from koalapy_adapters.localqueue.spool import Spool, now

KILL_WAIT_S = 30.0  # between SIGTERM and SIGKILL, as Slurm's KillWait
_PASSED_ON = ("HOME", "LANG", "TZ")  # not LC_ALL: it is C, for the sake of our own commands
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_CANNOT_START = 126


class Outcome(NamedTuple):
    exit_status: int
    ending: str


def keep(directory: str, job: jobs.Job) -> None:
    """Run the job to its end, record the end, and start the next job. SIGTERM and SIGCHLD must be blocked."""
    descendants.become_subreaper()
    spool = Spool(directory)
    child = os.fork()
    if child == 0:
        _run(spool, job)
    outcome = _await_end(child, time.monotonic() + job.walltime_s)
    _end_all()
    _record(spool, job, outcome)


def _run(spool: Spool, job: jobs.Job) -> None:
    """Execute the job's script in the child process. Never returns."""
    try:
        os.setsid()
        os.chdir(job.directory)
        descriptor = os.open(job.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve("/bin/sh", ["sh", spool.script(job.id)], _environment(spool, job))
    except OSError as error:
        os.write(2, ("local-queue: the job could not be started: %s\n" % error).encode("utf-8", "replace"))
    finally:
        os._exit(_CANNOT_START)


def _environment(spool: Spool, job: jobs.Job) -> Dict[str, str]:
    """A clean environment. It has only home, language and time zone of the submitting process."""
    user = pwd.getpwuid(os.getuid())
    environment = {"HOME": user.pw_dir}
    environment.update((name, os.environ[name]) for name in _PASSED_ON if name in os.environ)
    environment.update(
        USER=user.pw_name,
        LOGNAME=user.pw_name,
        SHELL=user.pw_shell or "/bin/sh",
        PATH=_PATH,
        KOALA_LOCAL_HOST=os.uname().nodename,
        KOALA_LOCAL_PROCESSORS=str(job.processors),
    )
    environment[scheduling.MARK] = scheduling.mark(spool, job)
    return environment


def _await_end(child: int, deadline: float) -> Outcome:
    """Wait for the job's first process, which is ended at the walltime or by SIGTERM, and killed KILL_WAIT_S later."""
    stopping = ""
    while True:
        for pid, status in descendants.reap():
            if pid == child:
                return _outcome(status, stopping)
        received = signal.sigtimedwait({signal.SIGTERM, signal.SIGCHLD}, max(0.0, deadline - time.monotonic()))
        if received is not None and received.si_signo == signal.SIGCHLD:
            continue
        if received is not None and stopping:
            continue
        if received is None and stopping:
            descendants.send([child, *descendants.descendants(child)], signal.SIGKILL)
        else:
            stopping = "cancelled" if received is not None else "walltime"
            _send_group(child, signal.SIGTERM)
        deadline = time.monotonic() + KILL_WAIT_S


def _outcome(status: int, stopping: str) -> Outcome:
    if os.WIFSIGNALED(status):
        return Outcome(128 + os.WTERMSIG(status), stopping or "killed")
    return Outcome(os.WEXITSTATUS(status), stopping or "exited")


def _send_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        descendants.send([leader], number)  # it does not lead its own group yet


def _end_all() -> None:
    """Kill all that the job has left behind, until this process has no descendant."""
    while not descendants.sweep():
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)
        descendants.reap()


def _record(spool: Spool, job: jobs.Job, outcome: Outcome) -> None:
    """Record the end and start the jobs that fit now. While the disk is full, this waits, and the slots stay in use."""
    while True:
        try:
            with spool:
                state = state_of(spool)
                current = state.jobs.get(job.id, job)
                state = jobs.with_job(state, jobs.ended(current, now(), outcome.ending, outcome.exit_status))
                scheduling.remove_script(spool, job)
                scheduling.start_jobs(spool, scheduling.mend(spool, state), keep)
            return
        except FileNotFoundError:
            return  # the queue's directory is gone, so nobody can query the job
        except OSError:
            time.sleep(1.0)
