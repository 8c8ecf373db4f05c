"""The commands that were sent over one session and are not confirmed yet."""

from koalapy.model.commands import CancelAttempt, ForgetAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.identity import AttemptId

ComponentCommand = SubmitAttempt | ReleaseAttempt | CancelAttempt | ForgetAttempt


class Outstanding:
    """The commands by their numbers in the outbox, and the numbers by attempt."""

    def __init__(self) -> None:
        self._commands: dict[int, ComponentCommand] = {}
        self._numbers: dict[AttemptId, list[int]] = {}

    def add(self, number: int, command: ComponentCommand) -> bool:
        """Add a command. Returns False if it was sent over this session before, where it will be answered."""
        if number in self._commands:
            return False
        self._commands[number] = command
        self._numbers.setdefault(command.attempt, []).append(number)
        return True

    def get(self, number: int) -> ComponentCommand | None:
        return self._commands.get(number)

    def confirm(self, number: int) -> None:
        """Remove a command; without it nothing happens."""
        command = self._commands.pop(number, None)
        if command is None:
            return
        of_attempt = self._numbers[command.attempt]
        of_attempt.remove(number)
        if not of_attempt:
            del self._numbers[command.attempt]

    def confirm_gone(self, attempt: AttemptId) -> tuple[int, ...]:
        """Remove and return the numbers of an attempt of which nothing is left, except its ForgetAttempt.

        Its cancel is complete, and the commands before the cancel are without an object.
        """
        numbers = self._numbers.get(attempt, ())
        gone = tuple(number for number in numbers if not isinstance(self._commands[number], ForgetAttempt))
        for number in gone:
            self.confirm(number)
        return gone

    def is_wanted(self, number: int) -> bool:
        """Return whether the command is still to be carried out: neither confirmed, nor cancelled with its attempt."""
        command = self._commands.get(number)
        return command is not None and not any(
            isinstance(self._commands[other], CancelAttempt) for other in self._numbers[command.attempt]
        )
