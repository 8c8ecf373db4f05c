"""The byte streams that end on the nodes of a simulated wrapper, each at a process of its program."""

from collections.abc import Callable
from typing import Any

from koalapy_adapters.messages.streams import OpenStream, StreamReset
from koalapy_adapters.streams import MOST_STREAMS, StreamEnd, StreamName, unknown_stream

from koalapy.world.cluster.environment import Environment
from koalapy.world.processes import Process
from koalapy.world.streams import FAR, StreamUser


class SimNodeStreams:
    """All streams of one node. `send` passes a frame towards koalad. `runs`: whether the program runs on the node."""

    def __init__(
        self,
        environment: Environment,
        wrapper: Process,
        clock: Callable[[], int],
        send: Callable[[Any], None],
        runs: Callable[[], bool],
    ) -> None:
        self._environment, self._wrapper, self._clock, self._send, self._runs = environment, wrapper, clock, send, runs
        self._users: dict[int, StreamUser] = {}

    def received(self, frame: Any) -> None:
        """React to a frame of koalad."""
        user = self._users.get(frame.stream)
        if user is not None:
            user.do(lambda end, now: end.received(now, frame))
        elif isinstance(frame, OpenStream):
            self._open(frame)
        else:
            for answer in unknown_stream(frame):
                self._send(answer)

    def resume(self) -> None:
        """Find out what was lost: the wrapper's connection to the relay is a new one."""
        for user in self._users.values():
            if user.end.is_open:
                user.do(lambda end, now: end.resume(now))

    def lose(self) -> None:
        """End with the wrapper."""
        for user in self._users.values():
            user.lose()

    def _open(self, frame: OpenStream) -> None:
        if sum(not user.end.is_closed for user in self._users.values()) >= MOST_STREAMS:
            self._send(StreamReset(frame.tag, frame.stream, "too_many_streams", "The node has too many connections."))
            return
        log = self._environment.streams
        end = StreamEnd(self._clock(), StreamName(frame.tag, frame.stream, frame.patience))
        user = self._users[frame.stream] = StreamUser(
            log, log.streams[frame.stream], FAR, end, self._environment.rng(f"stream/{frame.stream}"), self._clock,
            self._wrapper.after, self._send, self._runs,
        )  # fmt: skip
        if self._runs():
            user.do(lambda end, now: end.accept(now))
        else:
            user.do(lambda end, now: end.reset("refused", "Nothing takes connections there."))
