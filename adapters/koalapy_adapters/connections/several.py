"""Head nodes that stand in for each other: the next one is tried where one cannot be reached."""

from collections.abc import Sequence

from koalapy_adapters.connections.protocol import Channel, Lines, Remembering
from koalapy_adapters.errors import TransientError


class SeveralConnections:
    """One cluster's, at least one. The head node of the last login comes first, since it worked.

    Records are in the shared directory: which head node the next KCM runs on makes no difference to jobs.
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
        """What a person has to mend on one head node is not passed over by going to the next."""
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
