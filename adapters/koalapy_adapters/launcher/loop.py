"""The Launcher's loop: it passes events to the machine and executes the machine's commands."""

import json
import selectors
from typing import Any, Callable, Dict, List, Type

from koalapy_adapters import clock
from koalapy_adapters.host import signals
from koalapy_adapters.host.event_loop import EventPump, dispatch_ready
from koalapy_adapters.launcher import events as e
from koalapy_adapters.launcher.journal import Journal
from koalapy_adapters.launcher.machine import Machine, Settings
from koalapy_adapters.launcher.relay_line import Line
from koalapy_adapters.launcher.shared_page import At
from koalapy_adapters.launcher.slots import Setting, Slots
from koalapy_adapters.launcher.suspension import Suspension

_AGAIN = clock.SECOND // 50  # while leftover processes are being killed
_LEAVE_S = 2.0


class Loop:
    """The loop around one machine. It runs until the machine has left."""

    def __init__(self, settings: Settings, setting: Setting, socket_path: str) -> None:
        self._machine = Machine(settings, clock.now())
        self._pump = EventPump(self._machine, lambda command: _DOING[type(command)](self, command))
        self._journal = Journal(setting.attempt)
        self._selector = selectors.DefaultSelector()
        self._slots = Slots(settings.slots, setting, self._selector, self._on_results, self._on_lost)
        self._line = Line(
            socket_path,
            self._selector,
            lambda message: self._pump.feed(e.Received(message)),
            lambda: self._pump.feed(e.Connected()),
            lambda: self._pump.feed(e.Disconnected()),
        )
        self._suspension = Suspension(lambda: self._slots.pids)
        self._sleep = clock.SleepWatch()
        self._stopping = False
        self._sweeping = False
        self._left = False

    def run(self) -> None:
        """Run until the machine has left. Raises SlotBroken."""
        noticed = signals.pipe()
        self._selector.register(noticed, selectors.EVENT_READ, lambda: self._handle_signals(noticed))
        self._slots.start()
        while not self._left:
            self._handle_signals(noticed)  # before time counts, most of which it may have stood still
            self._tick()
            self._line.flush()
            if not self._left:
                dispatch_ready(self._selector, self._timeout())
        self._line.leave(_LEAVE_S)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._suspension.tick(clock.now()):
            self._pump.feed(e.Resumed())
        now = clock.now()
        self._line.tick(now)
        self._slots.queue.flush()
        if self._sweeping:
            self._slots.reap()
            self._sweeping = not self._slots.sweep()
        if not self._left:
            self._pump.tick(now)
        if self._stopping and not self._slots.pids and not self._left:
            self._pump.feed(e.SlotsStopped([at.number for at in self._slots.pages.all() if at.number]))

    def _timeout(self) -> float:
        now = clock.now()
        due = min(self._machine.next_wakeup(), self._line.next_wakeup(), self._suspension.next_wakeup())
        if self._sweeping:
            due = min(due, now + _AGAIN)
        return max(0, due - now) / clock.SECOND

    def _handle_signals(self, noticed: int) -> None:
        slept = self._sleep.look()
        if slept:
            self._pump.feed(e.Resumed(slept))
        numbers = signals.read(noticed)
        if numbers:
            self._on_signals(numbers)

    def _on_signals(self, numbers: bytes) -> None:
        """React to signals. After a signal to stop, no ended slot counts as lost: the signal was sent to all."""
        if signals.resumed(numbers):
            self._pump.feed(e.Resumed())
        if signals.stop_requested(numbers):
            self._pump.feed(e.Signalled())
        self._slots.reap()

    def _on_results(self, rows: List[e.Row], loose: List[e.Row]) -> None:
        self._pump.feed(e.Finished(rows, loose))

    def _on_lost(self, index: int, at: At) -> None:
        self._sweeping = True
        self._pump.feed(e.SlotLost(index, at.number, at.since))

    # ---- what is to be done ------------------------------------------------------------------------------------------

    def _send(self, command: e.Send) -> None:
        self._line.send(command.message)

    def _queue(self, command: e.Queue) -> None:
        self._slots.queue.put(command.numbers)

    def _take_back(self, command: e.TakeBack) -> None:
        self._pump.feed(e.TakenBack(self._slots.queue.take_back()))

    def _look(self, command: e.Look) -> None:
        running = [at for at in self._slots.pages.all() if at.number]
        newest = max((at.since for at in running), default=0)
        self._pump.feed(e.Looked(len(running), len(self._slots.queue), newest))

    def _end_trial(self, command: e.EndTrial) -> None:
        self._slots.pages.end_trial()

    def _write_journal(self, command: e.WriteJournal) -> None:
        lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in command.rows]
        self._journal.write("".join(lines).encode())

    def _stop_slots(self, command: e.StopSlots) -> None:
        self._stopping = True
        self._slots.stop()

    def _leave(self, command: e.Leave) -> None:
        self._left = True


_DOING: Dict[Type[Any], Callable[[Loop, Any], None]] = {
    e.Send: Loop._send,
    e.Queue: Loop._queue,
    e.TakeBack: Loop._take_back,
    e.Look: Loop._look,
    e.EndTrial: Loop._end_trial,
    e.WriteJournal: Loop._write_journal,
    e.StopSlots: Loop._stop_slots,
    e.Leave: Loop._leave,
}
