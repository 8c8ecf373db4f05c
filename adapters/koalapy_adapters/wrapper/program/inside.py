"""The part `inside`: process 1 of an isolated program on one node, parent of its processes.

Lines of JSON in: prepare, start, signal; lines out: ready, started, ended, failed. At the end of its input it ends, and
the kernel ends all else inside.
"""

import ctypes
import os
import selectors
from typing import Any, Callable, Dict, List

from koalapy_adapters import clock
from koalapy_adapters.host import descendants, json_lines, signals
from koalapy_adapters.host.event_loop import dispatch_ready
from koalapy_adapters.wrapper.program.processes import Plan, Prepared

Json = Dict[str, Any]

_PR_SET_DUMPABLE = 4
_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271}  # system calls
_EVERYTHING = -1  # for kill(2), all but the caller


def main(argv: List[str]) -> int:
    """Run the program that standard input describes. Returns 0 at its end of file, without one at once."""
    _close_off()
    return Inside().run()


class Inside:
    """The processes of one node, by their pid inside."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._reader = json_lines.LineReader()
        self._prepared: Any = None
        self._pids: Dict[int, int] = {}
        self._ended = False

    def run(self) -> int:
        noticed = signals.pipe()
        self._selector.register(noticed, selectors.EVENT_READ, lambda: signals.read(noticed))
        self._selector.register(0, selectors.EVENT_READ, self._read)
        while not self._ended:
            dispatch_ready(self._selector, None)
            for pid, status in descendants.reap():
                if pid in self._pids:
                    _send(event="ended", at=clock.now(), local=self._pids.pop(pid), status=status)
        return 0

    def _read(self) -> None:
        data = os.read(0, 1 << 16)
        self._ended = not data
        for text in self._reader.feed(data):
            message = json_lines.read(text)
            _DO[message.pop("do")](self, **message)

    def _prepare(self, plan: List[Any], files: List[List[int]]) -> None:
        """`files`: descriptors of standard output and errors, of each process."""
        for descriptor in [each for pair in files for each in pair]:
            os.set_inheritable(descriptor, False)
        try:
            self._prepared = Prepared(Plan(*plan), files)
        except OSError as error:
            _send(event="failed", why=str(error))
        else:
            _send(event="ready")

    def _start(self, first_rank: int, size: int) -> None:
        try:
            started = self._prepared.start(first_rank, size)
        except OSError as error:
            _send(event="failed", why=str(error))
            return
        self._pids = started.pids
        errors = [error.errno for error in started.errors]
        _send(event="started", at=started.at, errors=errors, locals=sorted(started.pids.values()))

    def _signal(self, number: int, everything: bool) -> None:
        descendants.send([_EVERYTHING] if everything else list(self._pids), number)


def _send(**message: Any) -> None:
    os.write(1, json_lines.line(message))


def _close_off() -> None:
    """Let no other process read this one's memory, and leave the user's keys in the kernel (keyctl(2)) behind."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        libc.syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None)


_DO: Dict[str, Callable[..., None]] = {"prepare": Inside._prepare, "start": Inside._start, "signal": Inside._signal}
