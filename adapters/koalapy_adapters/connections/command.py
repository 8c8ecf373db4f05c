"""`command:`: any pipe to the head node, such as the person's own OpenSSH with all that it can do."""

import shlex
from collections.abc import Sequence

from koalapy_adapters.connections.pipe import PipeChannel
from koalapy_adapters.connections.protocol import Channel, Lines
from koalapy_adapters.errors import ClusterError


class CommandConnection:
    """A program that takes the remote command as its last argument, as ssh does, and passes its streams through."""

    python = "python3"

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)

    @property
    def where(self) -> str:
        return f"`{shlex.join(self._argv)}`"

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        try:
            return PipeChannel([*self._argv, shell_command], stderr)
        except OSError as error:
            message = f"{self._argv[0]} cannot be started: {error.strerror}."
            raise ClusterError("no_command", message, "Correct `connect:` in the grid file.") from error
