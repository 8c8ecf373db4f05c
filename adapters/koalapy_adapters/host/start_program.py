"""Start a program as cheaply as this Python can: by posix_spawn(3) since Python 3.8, else by a fork.

posix_spawn copies neither page tables nor the pages that a forked Python would write to. The program leads a process
group of its own, so that its `kill 0` reaches nobody else. The signals that Python, the wrapper or the Launcher handle
in their own way are reset.
"""

import os
import signal
from typing import Any, Callable, List, Mapping, Sequence

_RESET = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)

_posix_spawn: Any = getattr(os, "posix_spawn", None)
_DUP2: Any = getattr(os, "POSIX_SPAWN_DUP2", None)


def _spawn(path: bytes, argv: List[bytes], environment: Mapping[bytes, bytes], standard: Sequence[int] = ()) -> int:
    actions = [(_DUP2, descriptor, target) for target, descriptor in enumerate(standard)]
    pid: int = _posix_spawn(path, argv, environment, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_RESET)
    return pid


def _lead_group() -> None:
    os.setpgid(0, 0)


def by_fork(
    path: bytes,
    argv: List[bytes],
    environment: Mapping[bytes, bytes],
    standard: Sequence[int] = (),
    lead: Callable[[], None] = _lead_group,
) -> int:
    """Start a program by a fork; see start_program. `lead` is called in the child, and may raise OSError too.

    The end of a pipe shows that the program was executed; else the pipe carries the error. Raises OSError.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(path, argv, environment, standard, writing, lead)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        failed = pipe.read()
    if failed:
        os.waitpid(pid, 0)
        raise os_error(int(failed))
    return pid


def _become(
    path: bytes,
    argv: List[bytes],
    environment: Mapping[bytes, bytes],
    standard: Sequence[int],
    failed: int,
    lead: Callable[[], None],
) -> None:
    """Execute the program in the child. Never returns. On a failure the child writes the errno, and exits with 127."""
    try:
        lead()
        for target, descriptor in enumerate(standard):
            os.dup2(descriptor, target)
        signal.set_wakeup_fd(-1)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(path, argv, environment)
    except OSError as error:
        os.write(failed, b"%d" % (error.errno or 0))
    finally:
        os._exit(127)


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


# (path, argv, environment, standard) -> pid. `standard`: descriptors that become the program's standard input, output
# and errors, each above 2; without any it inherits those of the caller. Raises OSError if it cannot be started.
start_program = by_fork if _posix_spawn is None else _spawn
