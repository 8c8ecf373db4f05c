"""The commands that were sent over one session and are not confirmed yet."""

import threading
from collections.abc import Callable

from koalapy.model.commands import CancelComponent, ForgetComponent, ReleaseComponent, SubmitComponent
from koalapy.model.identity import AttemptId

ComponentCommand = SubmitComponent | ReleaseComponent | CancelComponent | ForgetComponent


class Outstanding:
    """By their numbers in the outbox. Safe to use from any thread; what is called back must not block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commands: dict[int, ComponentCommand] = {}

    def add(self, number: int, command: ComponentCommand) -> bool:
        """False if it is there already: over this session it was sent, and will be answered."""
        with self._lock:
            if number in self._commands:
                return False
            self._commands[number] = command
            return True

    def get(self, number: int) -> ComponentCommand | None:
        with self._lock:
            return self._commands.get(number)

    def confirm(self, number: int) -> None:
        with self._lock:
            self._commands.pop(number, None)

    def confirm_gone(self, attempt: AttemptId) -> tuple[int, ...]:
        """Nothing of the attempt is left: its cancel is done, and what was asked before it has no object any more."""
        with self._lock:
            gone = [number for number, command in self._commands.items() if _ends(command, attempt)]
            for number in gone:
                del self._commands[number]
            return tuple(gone)

    def unless_cancelled(self, number: int, send: Callable[[], None]) -> None:
        """Send what took a while to prepare, if it is still wanted: never after its attempt's cancel."""
        with self._lock:
            command = self._commands.get(number)
            if command is not None and not self._is_cancelled(command.attempt):
                send()

    def _is_cancelled(self, attempt: AttemptId) -> bool:
        commands = self._commands.values()
        return any(isinstance(each, CancelComponent) and each.attempt == attempt for each in commands)


def _ends(command: ComponentCommand, attempt: AttemptId) -> bool:
    return not isinstance(command, ForgetComponent) and command.attempt == attempt
