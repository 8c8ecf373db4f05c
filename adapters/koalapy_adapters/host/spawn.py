"""Start a helper process of the wrapper (a launcher, the login shell) without importing `subprocess`."""

import os
import signal
from typing import List, Mapping, Optional, Sequence

_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NOT_FOUND = 127


def spawn(
    argv: Sequence[str],
    environment: Mapping[str, str],
    standard: Sequence[int],
    directory: Optional[str] = None,
    more: Optional[Mapping[int, int]] = None,
    ignored: Sequence[int] = (),
) -> int:
    """Start a process; returns its pid. `standard`: descriptors of input, output and errors; `more`: others.

    `ignored`: signals that it ignores.
    """
    words = [encoded(word) for word in argv]
    variables = {encoded(name): encoded(value) for name, value in environment.items()}
    pid = os.fork()
    if pid == 0:
        _become(words, variables, standard, directory, more or {}, ignored)
    return pid


def encoded(text: str) -> bytes:
    """The bytes of a user's text, whatever the locale of this node is."""
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _become(
    argv: List[bytes],
    environment: Mapping[bytes, bytes],
    standard: Sequence[int],
    directory: Optional[str],
    more: Mapping[int, int],
    ignored: Sequence[int],
) -> None:
    """Execute the program in the child. Never returns. On a failure the child writes the error and exits with 127."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        for each in ignored:
            signal.signal(each, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for target, descriptor in (*enumerate(standard), *more.items()):
            if target == descriptor:
                os.set_inheritable(descriptor, True)
            else:
                os.dup2(descriptor, target)
        if directory is not None:
            os.chdir(directory)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, b"%s: %s\n" % (argv[0], str(error).encode("utf-8", "replace")))
    finally:
        os._exit(_NOT_FOUND)
