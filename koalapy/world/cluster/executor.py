"""The executor of a simulated KCM: each real action takes effect at one instant and is reported at a later one."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from koalapy_adapters.errors import Result
from koalapy_adapters.kcm.execution.batch_system import TIMEOUT
from koalapy_adapters.kcm.execution.executor import COMMANDS, FILES, SUBMITS
from koalapy_adapters.kcm.execution.operations import Operations
from koalapy_adapters.kcm.execution.subprocess_runner import Handle
from koalapy_adapters.kcm.state import actions as do

from koalapy.model.units import MILLISECOND, SECOND, Duration
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.shell import Shell, SubmitCommand
from koalapy.world.processes import Process

_TIMEOUT = Duration(round(TIMEOUT * SECOND))
_COMMANDS = (do.Look, do.CancelJob, do.SuspendJob, do.CheckJobs, do.ListTags, do.Measure)


class Limit:
    """A bound on actions that run at the same time; the others wait in line."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting: deque[Callable[[], None]] = deque()

    def enter(self, call: Callable[[], None]) -> None:
        if self._room:
            self._room -= 1
            call()
        else:
            self._waiting.append(call)

    def leave(self) -> None:
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._room += 1


class SimExecutor:
    """`report` receives every outcome."""

    def __init__(
        self,
        kcm: Process,
        environment: Environment,
        rng: Random,
        operations: Operations,
        shell: Shell,
        report: Callable[[Any], None],
    ) -> None:
        self._kcm, self._environment, self._rng = kcm, environment, rng
        self._operations, self._shell, self._report = operations, shell, report
        self._handles: dict[str, Handle] = {}
        self._running: dict[str, SubmitCommand] = {}
        self._submits, self._commands, self._files = Limit(SUBMITS), Limit(COMMANDS), Limit(FILES)

    def perform(self, action: Any) -> None:
        if isinstance(action, do.SubmitJob):
            self._handles[action.tag] = Handle()
            self._submits.enter(lambda: self._submit(action))
        elif isinstance(action, do.Measure):
            self._begin(action, lambda: None)
        else:
            limit = self._commands if isinstance(action, _COMMANDS) else self._files
            limit.enter(lambda: self._begin(action, limit.leave))

    def end_submit(self, tag: str) -> None:
        handle = self._handles.get(tag)
        if handle is not None:
            handle.end()
        command = self._running.get(tag)
        if command is not None:
            self._shell.end(command)

    def end_submits(self) -> None:
        for tag in list(self._handles):
            self.end_submit(tag)

    def _begin(self, action: Any, leave: Callable[[], None]) -> None:
        """Let the action take effect after one delay, and be reported after another."""
        self._kcm.after(self._delay(action), lambda: self._do(action, leave))

    def _do(self, action: Any, leave: Callable[[], None]) -> None:
        self._kcm.step()
        if isinstance(action, do.Look):
            self._environment.observer.looking(self._kcm, action.tag)
        outcome = self._operations.perform(action)
        self._kcm.after(self._delay(action), lambda: self._finish(outcome, leave))

    def _finish(self, outcome: Any, leave: Callable[[], None]) -> None:
        leave()
        self._report(outcome)

    def _delay(self, action: Any) -> Duration:
        if isinstance(action, _COMMANDS):
            return self._shell.delay()
        return self._environment.file_latency(self._rng)

    def _submit(self, action: do.SubmitJob) -> None:
        self._kcm.step()
        handle = self._handles[action.tag]
        if not handle.begin():  # ended while it waited in line
            self._kcm.after(MILLISECOND, lambda: self._submitted(action, Result(["submit"], None, "", "")))
            return
        self._environment.observer.submitting(self._kcm, action.tag)
        job = self._operations.prepared(action.tag)
        done = lambda result: self._kcm.run(lambda: self._submitted(action, result))  # noqa: E731
        command = self._running[action.tag] = self._shell.submit(job, f"{job.directory}/script", done)
        self._kcm.after(_TIMEOUT, lambda: self._shell.end(command) if command.running else None)

    def _submitted(self, action: do.SubmitJob, result: Result) -> None:
        self._running.pop(action.tag, None)
        handle = self._handles.pop(action.tag)
        self._shell.comes_to(action.tag, result)
        outcome = self._operations.submit(action, handle)
        self._submits.leave()
        self._report(outcome)
