"""Equivalent head nodes of one cluster: if one cannot be reached, the next one is tried."""

from collections.abc import Sequence

from koalapy_adapters.connections.protocol import Channel, Lines, Remembering
from koalapy_adapters.errors import TransientError


class FailoverConnection:
    """Connections to the head nodes of one cluster, at least one. That of the last login comes first, since it worked.

    Exit records are in the shared directory. Therefore it makes no difference to jobs on which head node the next KCM
    runs.
    """

    def __init__(self, ways: Sequence[Remembering]) -> None:
        self._ways = list(ways)

    @property
    def where(self) -> str:
        return self._ways[0].where

    @property
    def python(self) -> str:
        return self._ways[0].python

    @property
    def asked(self) -> bool:
        return self._ways[0].asked

    def reachable(self, timeout_s: float) -> bool | None:
        return self._ways[0].reachable(timeout_s)

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        """Open the first connection that can be opened. Raises TransientError if none can.

        A ClusterError is raised at once: a person must correct its cause, which the next head node would hide.
        """
        failures: list[TransientError] = []
        for way in list(self._ways):
            try:
                channel = way.open(shell_command, stderr)
            except TransientError as error:
                failures.append(error)
                continue
            self._ways.remove(way)
            self._ways.insert(0, way)
            return channel
        message = " ".join(each.message for each in failures)
        raise TransientError(failures[0].code, message, failures[0].advice)
