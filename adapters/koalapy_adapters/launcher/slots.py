"""The Launcher's side of its slots: it starts them, reads their results, and notices their ends."""

import json
import os
import selectors
import signal
import sys
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn

from koalapy_adapters import layout
from koalapy_adapters.host import descendants, json_lines, signals
from koalapy_adapters.launcher.events import Row
from koalapy_adapters.launcher.journal import Journal
from koalapy_adapters.launcher.program import Program
from koalapy_adapters.launcher.queue import Puller, Queue
from koalapy_adapters.launcher.shared_page import At, Pages
from koalapy_adapters.launcher.slot import LOOSE, Limits, Slot, serve

_BROKEN = 70  # EX_SOFTWARE


class SlotBroken(Exception):
    """No slot can work here, so the Launcher can only end."""


class Setting(NamedTuple):
    """The settings that all slots share."""

    attempt: str
    work: str
    host: str
    program: Program
    limits: Limits


class Slots:
    """The slots. `report(rows, loose)` is called with their results, `lost(index, at)` when one was killed."""

    def __init__(
        self,
        count: int,
        setting: Setting,
        selector: selectors.BaseSelector,
        report: Callable[[List[Row], List[Row]], None],
        lost: Callable[[int, At], None],
    ) -> None:
        self._count, self._setting, self._selector = count, setting, selector
        self._report, self._lost = report, lost
        self.queue = Queue()
        self.pages = Pages(count)
        self._running: Dict[int, "_Process"] = {}  # by index
        self._stopping = False

    def start(self) -> None:
        for index in range(self._count):
            self._start(index)

    def stop(self) -> None:
        """Send SIGTERM to all slots, which then end."""
        self._stopping = True
        descendants.send(self.pids, signal.SIGTERM)
        self.queue.close()

    def kill(self) -> None:
        descendants.send(self.pids, signal.SIGKILL)

    @property
    def pids(self) -> List[int]:
        return [process.pid for process in self._running.values()]

    def reap(self) -> None:
        """Handle the slots that have ended. Processes that a killed slot has left behind are killed."""
        ended = dict(descendants.reap())
        for index, process in list(self._running.items()):
            if process.pid in ended:
                self._check(ended[process.pid])
                self._ended(index, process)

    def sweep(self) -> bool:
        """Kill processes that killed slots have left behind. Returns True when none is left."""
        return descendants.sweep(self.pids)

    def _check(self, status: int) -> None:
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _BROKEN and not self._stopping:
            raise SlotBroken("a slot cannot work; the reason is on the Launcher's standard error")

    def _ended(self, index: int, process: "_Process") -> None:
        self._read(process)
        process.close(self._selector)
        del self._running[index]
        if self._stopping:
            return
        at = self.pages.at(index)
        self.pages.runs(index, 0, 0)
        self.sweep()
        self._start(index)
        self._lost(index, at)

    def _start(self, index: int) -> None:
        """Fork the process of a slot. Signals are blocked until it handles them."""
        reading, writing = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*signals.STOPPING, signal.SIGALRM))
        pid = os.fork()
        if pid == 0:
            self._be(index, writing)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writing)
        process = _Process(pid, reading)
        self._running[index] = process
        self._selector.register(reading, selectors.EVENT_READ, lambda: self._read(process))

    def _read(self, process: "_Process") -> None:
        rows: List[Row] = []
        loose: List[Row] = []
        for line in process.lines():
            if line.startswith(LOOSE):
                loose.append(json.loads(line[1:].decode()))
            else:
                rows.append(json.loads(line.decode()))
        if rows or loose:
            self._report(rows, loose)

    def _be(self, index: int, results: int) -> NoReturn:
        """Run the slot in the fork. It has no open file of the Launcher, and does not outlive the Launcher."""
        status = _BROKEN
        try:
            signal.set_wakeup_fd(-1)
            errors = _own_errors()
            _close_but({0, 1, 2, errors, results, self.queue.reading})
            slot, puller = _furnish(index, self._setting, self.pages, results, self.queue.reading)
            serve(slot, puller)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)


class _Process:
    """The process of one slot, and the pipe for its results."""

    def __init__(self, pid: int, results: int) -> None:
        self.pid = pid
        self._results = results
        self._reader = json_lines.LineReader()
        os.set_blocking(results, False)

    def lines(self) -> List[bytes]:
        """The lines that can be read now."""
        found: List[bytes] = []
        while True:
            try:
                data = os.read(self._results, 1 << 16)
            except BlockingIOError:
                return found
            if not data:
                return found
            found += self._reader.feed(data)

    def close(self, selector: selectors.BaseSelector) -> None:
        selector.unregister(self._results)
        os.close(self._results)


def _furnish(index: int, setting: Setting, pages: Pages, results: int, queue: int) -> Any:
    parent = os.getppid()
    descendants.become_subreaper()
    descendants.die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(0)
    os.chdir(setting.work)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, kind in ((1, "out"), (2, "err")):
        name = layout.slot_file(setting.attempt, index, kind)
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
    journal = Journal(setting.attempt)
    slot = Slot(index, setting.host, setting.program, setting.limits, pages, journal, results)
    return slot, Puller(queue)


def _own_errors() -> int:
    """A descriptor for the slot's own errors, which go to the Launcher's output, not to the program's."""
    errors = os.dup(2)
    sys.stderr = os.fdopen(errors, "w", 1)
    return errors


def _close_but(kept: Any) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the descriptor of the listing itself
