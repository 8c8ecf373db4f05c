"""koalad's ends of the byte streams over the link to one simulated cluster."""

from collections.abc import Callable
from random import Random
from typing import Any

from koalapy_adapters.messages.streams import OpenStream
from koalapy_adapters.streams import StreamEnd, StreamName, unknown_stream

from koalapy.model.units import Duration, Instant
from koalapy.world.agenda import ScheduledCall
from koalapy.world.streams import NEAR, PATIENCE, StreamLog, StreamUser

_PORT = 8000


class SimStreams:
    """All streams of one link. `send` sends a frame if the cluster is connected, else drops it."""

    def __init__(
        self,
        now: Callable[[], Instant],
        after: Callable[[Duration, Callable[[], None]], ScheduledCall],
        send: Callable[[Any], None],
    ) -> None:
        self._now, self._after, self._send = now, after, send
        self._users: dict[int, StreamUser] = {}

    def open(self, log: StreamLog, tag: str, rank: int, rng: Random) -> None:
        """Open a stream to a process of this rank of an attempt."""
        stream = log.begin()
        opening = OpenStream(tag, stream.number, rank, _PORT, PATIENCE)
        end = StreamEnd(self._now(), StreamName(tag, stream.number, PATIENCE), opening)
        user = self._users[stream.number] = StreamUser(log, stream, NEAR, end, rng, self._now, self._after, self._send)
        user.do(lambda end, now: end.open(now))

    def received(self, frame: Any) -> None:
        """Take a frame of the cluster."""
        user = self._users.get(frame.stream)
        if user is not None:
            user.do(lambda end, now: end.received(now, frame))
            return
        for answer in unknown_stream(frame):
            self._send(answer)

    def resume(self) -> None:
        """Find out what every stream lost: the cluster is connected again."""
        for user in self._users.values():
            user.do(lambda end, now: end.resume(now))

    def close(self) -> None:
        """Reset all streams: koalad has no link to this cluster any more."""
        for user in self._users.values():
            user.do(lambda end, now: end.reset("link_ended", "koalad has ended its link to the cluster."))

    def lose(self) -> None:
        """End with koalad."""
        for user in self._users.values():
            user.lose()
