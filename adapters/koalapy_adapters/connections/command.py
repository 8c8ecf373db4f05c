"""`command:` connection: a program that leads to the head node, such as the user's own OpenSSH."""

import shlex
from collections.abc import Sequence

from koalapy_adapters.connections.pipe import PipeChannel
from koalapy_adapters.connections.protocol import Channel, Lines
from koalapy_adapters.errors import ClusterError


class CommandConnection:
    """A connection by a program that passes its standard streams through.

    The program takes the remote command as its last argument, as ssh does.
    """

    python = "python3"

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)

    @property
    def where(self) -> str:
        return f"`{shlex.join(self._argv)}`"

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        """Start the program; see Connection.open. Raises ClusterError if it cannot be started."""
        try:
            return PipeChannel([*self._argv, shell_command], stderr)
        except OSError as error:
            message = f"{self._argv[0]} cannot be started: {error.strerror}."
            raise ClusterError("no_command", message, "Correct `connect:` in the grid file.") from error
