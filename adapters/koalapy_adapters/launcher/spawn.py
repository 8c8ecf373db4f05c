"""Start a program of a parameter, and try again for a moment if the node or the file passes through a bad one."""

import errno
import time
from typing import List, Mapping

from koalapy_adapters.host.start_program import start_program

_PASSES = (errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY)  # the node is full for a moment, or the file is being written
_PATIENCE_S, _PAUSE_S = 2.0, 0.05


def start(path: bytes, argv: List[bytes], environment: Mapping[bytes, bytes]) -> int:
    """Start a program. Returns its pid. Raises OSError if it cannot be started."""
    try:
        return start_program(path, argv, environment)
    except OSError as error:
        if error.errno not in _PASSES:
            raise
    return _start_patiently(path, argv, environment)


def _start_patiently(path: bytes, argv: List[bytes], environment: Mapping[bytes, bytes]) -> int:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        time.sleep(_PAUSE_S)
        try:
            return start_program(path, argv, environment)
        except OSError as error:
            if error.errno not in _PASSES or time.monotonic() >= deadline:
                raise
