"""The commands that were sent over one session and are not confirmed yet."""

from koalapy.model.commands import CancelAttempt, ForgetAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.identity import AttemptId

ComponentCommand = SubmitAttempt | ReleaseAttempt | CancelAttempt | ForgetAttempt


class Outstanding:
    """By their numbers in the outbox, and those of an attempt together."""

    def __init__(self) -> None:
        self._commands: dict[int, ComponentCommand] = {}
        self._numbers: dict[AttemptId, list[int]] = {}

    def add(self, number: int, command: ComponentCommand) -> bool:
        """False if it is there already: over this session it was sent, and will be answered."""
        if number in self._commands:
            return False
        self._commands[number] = command
        self._numbers.setdefault(command.attempt, []).append(number)
        return True

    def get(self, number: int) -> ComponentCommand | None:
        return self._commands.get(number)

    def confirm(self, number: int) -> None:
        """Nothing happens for what is not there."""
        command = self._commands.pop(number, None)
        if command is None:
            return
        of_attempt = self._numbers[command.attempt]
        of_attempt.remove(number)
        if not of_attempt:
            del self._numbers[command.attempt]

    def confirm_gone(self, attempt: AttemptId) -> tuple[int, ...]:
        """Nothing of the attempt is left: its cancel is done, and what was asked before it has no object any more."""
        numbers = self._numbers.get(attempt, ())
        gone = tuple(number for number in numbers if not isinstance(self._commands[number], ForgetAttempt))
        for number in gone:
            self.confirm(number)
        return gone

    def is_wanted(self, number: int) -> bool:
        """Whether it is still to be done: not confirmed, nor cancelled with its attempt."""
        command = self._commands.get(number)
        return command is not None and not any(
            isinstance(self._commands[other], CancelAttempt) for other in self._numbers[command.attempt]
        )
