"""A Launcher of the simulated world: the real machine over simulated slots, as the process that a node agent starts."""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from koalapy_adapters import messages
from koalapy_adapters.launcher import events as e
from koalapy_adapters.launcher import journal
from koalapy_adapters.launcher.machine import AT_ONCE, Machine, Settings
from koalapy_adapters.launcher.space import Compiled
from koalapy_adapters.messages import relay
from koalapy_adapters.wrapper.attempt import Attempt

from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import ScheduledCall
from koalapy.world.behaviour import Behaviour, behaviour_of
from koalapy.world.cluster.agent import SimAgent
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.files import Mount
from koalapy.world.cluster.nodes import SimNode
from koalapy.world.random_streams import between

_BEGIN = Duration(MILLISECOND // 2), Duration(3 * MILLISECOND)  # from the queue to the program's first instruction
_TIME_TO_END = MILLISECOND, Duration(500 * MILLISECOND)  # from SIGTERM to the end of a program that handles it
_DRAIN_S = 5.0


@dataclass
class _Running:
    """A parameter in a slot; `end` is the next thing that happens to it."""

    number: int
    began: Instant
    behaviour: Behaviour
    end: ScheduledCall | None = None


class SimLauncher(SimAgent):
    """`send` sends its machine's messages to the KCM; the wrapper calls `connected`, `disconnected` and `receive`."""

    def __init__(
        self,
        environment: Environment,
        node: SimNode,
        start: str,
        attempt: Attempt,
        notify: Callable[[Any], None],
        send: Callable[[Any], None],
    ) -> None:
        super().__init__(environment, node, 1, start, attempt.directory, notify)
        self._attempt, self._send_message = attempt, send
        self._sweep: dict[str, Any] = attempt.program["sweep"]
        self._arguments = Compiled(self._sweep["space"], attempt.program["arguments"])
        self._machine: Machine | None = None
        self._slots: list[_Running | None] = [None] * self._sweep["slots"]
        self._queue: deque[int] = deque()
        self._on_trial, self._stopping, self._is_connected = True, False, False
        self._rows: list[list[Any]] = []  # of its journal; so many of them are written
        self._safe = 0
        self._files = Mount(environment.shared, f"{node.name}.{start}", lambda: None, lambda: node.reachable)
        self._pending: deque[Any] = deque()
        self._handling = False
        self._timer: ScheduledCall | None = None

    # ---- as the program of its attempt

    def release(self, clusters: int) -> None:
        super().release(clusters)
        if not self.running or self._machine is not None:
            return
        self._environment.agenda.cancel(self._end)  # it ends when it has nothing to do any more
        self._machine = Machine(self._settings(), self.node.clock())
        if self._is_connected:
            self._handle(e.Connected())
        self._set_timer()

    def stop(self, grace: Duration) -> None:
        """Stop the slots, which have a little less than its own grace."""
        if not self.alive or self._has_ended or not self.running:
            super().stop(grace)
        elif grace <= 0:
            self._exit(137)
        elif self._kill_at is None:
            self._kill_at = self._environment.agenda.after(grace, lambda: self._exit(137))
            self._handle(e.Signalled())

    def _settings(self) -> Settings:
        program = self._attempt.program
        drain_s = self._sweep.get("drain_s")
        grace = float(program["grace"])
        return Settings(
            host=self.node.name,
            slots=len(self._slots),
            orphan_timeout=_duration(self._attempt.orphan_timeout),
            grace=_duration(grace - min(1.0, grace / 4)),
            ends_at=self.node.clock() + _duration(program["walltime"]),
            drain=_duration(_DRAIN_S if drain_s is None else drain_s),
        )

    def _stop_running(self, exit_status: int) -> None:
        for slot, running in enumerate(self._slots):
            if running is not None:
                self._environment.agenda.cancel(running.end)
                self._free(slot)
        self._environment.agenda.cancel(self._timer)
        super()._stop_running(exit_status)

    # ---- its line to the KCM

    def connected(self) -> None:
        self._is_connected = True
        self._happened(e.Connected())

    def disconnected(self) -> None:
        self._is_connected = False
        self._happened(e.Disconnected())

    def receive(self, body: dict[str, Any]) -> None:
        self._happened(e.Received(messages.from_json(body)))

    def _happened(self, event: Any) -> None:
        if self.running and self._machine is not None:
            self._handle(event)

    # ---- its machine

    def _handle(self, event: Any) -> None:
        """Pass an event to the machine, and carry out its commands; their outcomes come later."""
        self._pending.append(event)
        if self._handling:
            return
        self._handling = True
        while self._pending and self.running:
            assert self._machine is not None
            self._do(self._machine.handle(self.node.clock(), self._pending.popleft()))
        self._handling = False
        self._set_timer()

    def _set_timer(self) -> None:
        self._environment.agenda.cancel(self._timer)
        if self.running and self._machine is not None:
            wait = max(0, self._machine.next_wakeup() - self.node.clock())
            self._timer = self._environment.agenda.after(Duration(wait), self._tick)

    def _tick(self) -> None:
        if self.running and self._machine is not None:
            self._do(self._machine.tick(self.node.clock()))
            self._set_timer()

    def _do(self, commands: list[Any]) -> None:
        for command in commands:
            if self.running:
                _DOING[type(command)](self, command)

    def _send_to_kcm(self, command: e.Send) -> None:
        self._send_message(relay.FromLauncher(messages.to_json(command.message)))

    def _put(self, command: e.Queue) -> None:
        self._queue.extend(command.numbers)
        self._fill()

    def _take_back(self, command: e.TakeBack) -> None:
        numbers = list(self._queue)
        self._queue.clear()
        self._handle(e.TakenBack(numbers))

    def _look(self, command: e.Look) -> None:
        began = [running.began for running in self._slots if running is not None]
        self._handle(e.Looked(len(began), len(self._queue), max(began, default=0)))

    def _end_trial(self, command: e.EndTrial) -> None:
        self._on_trial = False

    def _write_journal(self, command: e.WriteJournal) -> None:
        for row in command.rows:
            self._write(row)

    def _leave(self, command: e.Leave) -> None:
        self._exit(0)

    # ---- its slots

    def _fill(self) -> None:
        for slot, running in enumerate(self._slots):
            if running is None and self._queue and not self._stopping:
                self._begin(slot, self._queue.popleft())

    def _begin(self, slot: int, number: int) -> None:
        behaviour = behaviour_of([word.decode() for word in self._arguments.of(number)])
        began = Instant(self.node.clock())
        running = self._slots[slot] = _Running(number, began, behaviour)
        self._environment.program_log.parameters.began(
            self._sweep["sweep"], number, self._tag, self._environment.agenda.now
        )
        wait = Duration(behaviour.runs + between(self._rng, *_BEGIN))
        running.end = self._environment.agenda.after(wait, lambda: self._ended(slot, running))

    def _ended(self, slot: int, running: _Running) -> None:
        """Write the result of a program that ended by itself into the journal, before the slot begins another one."""
        now, status = self.node.clock(), running.behaviour.exit_status
        row = [running.number, status, journal.EXITED, self.node.name, slot, running.began, now, 0, 0, 0, 0]
        loose = self._on_trial and status != 0 and now - running.began < AT_ONCE
        self._free(slot)
        if not loose:
            self._write(row)
        self._handle(e.Finished([], [row]) if loose else e.Finished([row], []))
        self._fill()
        if self._stopping:
            self._stopped()

    def _free(self, slot: int) -> None:
        running, self._slots[slot] = self._slots[slot], None
        if running is not None:
            now = self._environment.agenda.now
            self._environment.program_log.parameters.ended(self._sweep["sweep"], running.number, self._tag, now)

    def _write(self, row: list[Any]) -> None:
        """Write a line, or if there is no room, with the next one. What is written is done, whatever comes."""
        self._rows.append(row)
        lines = [json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in self._rows]
        try:
            self._files.write(journal.path(self._directory), b"".join(lines))
        except OSError:
            return
        for number, *_ in self._rows[self._safe :]:
            self._environment.program_log.parameters.done(self._sweep["sweep"], number, self._tag)
        self._safe = len(self._rows)

    def _stop_slots(self, command: e.StopSlots) -> None:
        self._stopping = True
        self._begun = [running.number for running in self._slots if running is not None]
        for slot, running in enumerate(self._slots):
            if running is not None:
                self._environment.agenda.cancel(running.end)
                wait = self._time_to_end(running, Duration(command.grace))
                running.end = self._environment.agenda.after(wait, lambda slot=slot: self._stop_slot(slot))  # type: ignore[misc]
        self._stopped()

    def _time_to_end(self, running: _Running, grace: Duration) -> Duration:
        return grace if running.behaviour.deaf else Duration(min(grace, between(self._rng, *_TIME_TO_END)))

    def _stop_slot(self, slot: int) -> None:
        self._free(slot)
        self._stopped()

    def _stopped(self) -> None:
        if not any(self._slots):
            self._handle(e.SlotsStopped(self._begun))


def _duration(seconds: float) -> int:
    return round(seconds * SECOND)


_DOING: dict[type[Any], Callable[[SimLauncher, Any], None]] = {
    e.Send: SimLauncher._send_to_kcm,
    e.Queue: SimLauncher._put,
    e.TakeBack: SimLauncher._take_back,
    e.Look: SimLauncher._look,
    e.EndTrial: SimLauncher._end_trial,
    e.WriteJournal: SimLauncher._write_journal,
    e.StopSlots: SimLauncher._stop_slots,
    e.Leave: SimLauncher._leave,
}
