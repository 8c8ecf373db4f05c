"""Start a program as cheaply as this Python can: by posix_spawn(3) since Python 3.8, else by a fork.

The program leads a process group of its own, so that its `kill 0` reaches nobody else. It inherits the caller's
standard streams. The signals that Python or the Launcher handle in their own way are reset.
"""

import errno
import os
import signal
import time
from typing import Any, List, Mapping

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
_PASSES = (errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY)  # the node is full for a moment, or the file is being written
_PATIENCE_S, _PAUSE_S = 2.0, 0.05

_posix_spawn: Any = getattr(os, "posix_spawn", None)


def start(path: bytes, argv: List[bytes], environment: Mapping[bytes, bytes]) -> int:
    """Start a program. Returns its pid. Raises OSError if it cannot be started."""
    try:
        return start_now(path, argv, environment)
    except OSError as error:
        if error.errno not in _PASSES:
            raise
    return _start_patiently(path, argv, environment)


def _start_patiently(path: bytes, argv: List[bytes], environment: Mapping[bytes, bytes]) -> int:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        time.sleep(_PAUSE_S)
        try:
            return start_now(path, argv, environment)
        except OSError as error:
            if error.errno not in _PASSES or time.monotonic() >= deadline:
                raise


def _spawn(path: bytes, argv: List[bytes], environment: Mapping[bytes, bytes]) -> int:
    pid: int = _posix_spawn(path, argv, environment, setpgroup=0, setsigmask=(), setsigdef=_RESET)
    return pid


def _fork(path: bytes, argv: List[bytes], environment: Mapping[bytes, bytes]) -> int:
    """Start a program by a fork. The end of a pipe shows that it was executed; else the pipe carries the error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(path, argv, environment, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        failed = pipe.read()
    if failed:
        os.waitpid(pid, 0)
        raise OSError(int(failed), os.strerror(int(failed)))
    return pid


def _become(path: bytes, argv: List[bytes], environment: Mapping[bytes, bytes], failed: int) -> None:
    try:
        os.setpgid(0, 0)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(path, argv, environment)
    except OSError as error:
        os.write(failed, b"%d" % (error.errno or 0))
    finally:
        os._exit(127)


start_now = _fork if _posix_spawn is None else _spawn
