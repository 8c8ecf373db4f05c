"""The first process of a job on its node: its environment, its start as a fork, and the end of what it leaves behind.

A process that has imported the wrapper once forks a job's wrapper without a new interpreter.
"""

import os
import pwd
import signal
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

from koalapy_adapters import layout
from koalapy_adapters.host import descendants, node_identity, private_dir, signals

Json = Dict[str, Any]

CANNOT_START = 126
_PASSED_ON = ("HOME", "LANG", "TZ", "TMPDIR", private_dir.VARIABLE)
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def end_programs_of(directory: str, number: Optional[int] = None) -> bool:
    """Kill the programs on this node that a killed process of this queue has left: of one job, or of all of them.

    Returns whether there were any. Their jobs are lost.
    """
    own = ("%s=" % node_identity.ALLOCATION_JOB).encode()
    begin, end = own + (b"" if number is None else b"%d@" % number), b"@" + os.fsencode(directory)
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                if any(each.startswith(begin) and each.endswith(end) for each in file.read().split(b"\0")):
                    found.append(pid)
        except OSError:
            continue  # it belongs to another user, or has ended
    descendants.send(found, signal.SIGKILL)
    return bool(found)


def environment(name: str) -> Dict[str, str]:
    """A clean environment of a node, which shows nothing of the batch job around it but its GPUs and its TMPDIR."""
    user = pwd.getpwuid(os.getuid())
    base = {"HOME": user.pw_dir}
    base.update((each, os.environ[each]) for each in _PASSED_ON if each in os.environ)
    base.update((each, value) for each, value in os.environ.items() if each.startswith(node_identity.GPU_PREFIXES))
    base.update(USER=user.pw_name, LOGNAME=user.pw_name, SHELL=user.pw_shell or "/bin/sh", PATH=_PATH)
    base["KOALA_ALLOCATION_NODE"] = name
    return base


def become(message: Json, variables: Mapping[str, str]) -> None:
    """In a forked child: become the first process of the job that the message describes. Never returns."""
    status = CANNOT_START
    try:
        os.setsid()
        descendants.die_with_parent(signal.SIGTERM)
        signal.set_wakeup_fd(-1)
        for number in (
            *signals.STOPPING,
            signal.SIGCHLD,
            signal.SIGCONT,
            signal.SIGPIPE,
            signal.SIGHUP,
            signal.SIGUSR1,
        ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(message["directory"])
        out = os.open(message["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, descriptor in ((0, null), (1, out), (2, out)):
            os.dup2(descriptor, target)
        os.closerange(3, 1 + max(map(int, os.listdir("/proc/self/fd"))))
        os.environ.clear()
        os.environ.update(variables)
        command = message["command"]
        if message.get("forks", True) and _is_own_wrapper(command):
            from koalapy_adapters.wrapper import start  # late: not every job is a wrapper

            status = start.main(command[5:])
            sys.stdout.flush()
        else:
            os.execvpe(command[0], command, dict(variables))
    except OSError as error:
        os.write(2, ("koala queue: the job could not be started: %s\n" % error).encode("utf-8", "replace"))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _is_own_wrapper(command: List[str]) -> bool:
    """Return whether the command starts the wrapper of this pushed file, or of its compiled copy."""
    if command[1:3] != ["-I", "-S"] or command[4:5] != ["wrapper"]:
        return False
    return layout.pushed_hash(command[3]) == layout.pushed_hash(sys.argv[0])


def exit_of(status: int) -> Tuple[int, bool]:
    """Exit status (128 + N for signal N) and whether it was a signal, of the status of waitpid(2)."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), True
    return os.WEXITSTATUS(status), False
