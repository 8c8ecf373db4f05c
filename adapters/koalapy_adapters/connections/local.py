"""`local:` connection: the batch system of this machine, by a child process under the user's login shell."""

import os
import pwd
import sys

from koalapy_adapters.connections.pipe import PipeChannel
from koalapy_adapters.connections.protocol import Channel, Lines
from koalapy_adapters.errors import ClusterError


class LocalConnection:
    """A connection to this machine. Its interpreter is koalapy's own."""

    where = "this machine"
    python = sys.executable

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        """Start the command under the login shell; see Connection.open.

        Raises ClusterError if the shell cannot be started.
        """
        shell = os.environ.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
        try:
            return PipeChannel([shell, "-c", shell_command], stderr, {**os.environ, "SHELL": shell})
        except OSError as error:
            message = f"The login shell {shell} cannot be started: {error.strerror}."
            raise ClusterError("no_shell", message, "Name another in $SHELL.") from error
