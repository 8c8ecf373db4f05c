"""A simulated wrapper's sockets: a connection over the simulated network to the relay's port."""

from random import Random
from typing import Any

from koalapy_adapters.channel import Keys
from koalapy_adapters.streams import frame_to_json
from koalapy_adapters.wrapper.relay.contact import CONNECT_WITHIN
from koalapy_adapters.wrapper.relay.transport import SocketTransport, TransportListener

from koalapy.model.units import MILLISECOND, Duration
from koalapy.world.agenda import ScheduledCall
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.nodes import SimNode
from koalapy.world.network import End, Json, Pipe
from koalapy.world.processes import Process
from koalapy.world.random_streams import between

_LATENCY = Duration(MILLISECOND // 2), Duration(50 * MILLISECOND)


class SimSockets(SocketTransport):
    """The sockets of a `process` on this node."""

    def __init__(
        self, environment: Environment, process: Process, node: SimNode, rng: Random, listener: TransportListener
    ) -> None:
        self._environment, self._process, self._node, self._rng = environment, process, node, rng
        self._listener = listener
        self._dialing: ScheduledCall | None = None
        self._pipe: Pipe | None = None  # the newest, which may be closed
        self._end: End | None = None

    def connect(self, addresses: list[str], port: int) -> None:
        """Try the first address; an unreachable head node gives no answer."""
        if self._environment.reaches_relay and self._node.reachable:
            self._dialing = self._process.after(self._latency(), lambda: self._dial(addresses[0], port))

    def begin(self, first: list[Any]) -> None:
        for message in first:
            self.write(message)

    def secure(self, keys: Keys) -> None:
        """Do nothing: a simulated connection cannot be intercepted."""

    def write(self, message: Any) -> None:
        if self._end is not None:
            self._end.send(frame_to_json(message))

    def drop(self) -> None:
        self._environment.agenda.cancel(self._dialing)
        end, self._end = self._end, None
        if end is not None:
            end.close()

    def stall(self, duration: Duration) -> None:
        """Let nothing pass for a while; each side decides whether to give up."""
        if self._pipe is not None:
            self._pipe.stall(duration)

    def _dial(self, address: str, port: int) -> None:
        relay = self._environment.ports.get(port)
        if relay is None:
            self._listener.unreachable()
            return
        pipe = self._pipe = Pipe(self._environment.agenda, self._latency)
        self._node.keep(pipe)
        self._environment.head.keep(pipe)
        end = self._end = pipe.near
        end.on_message = lambda data: self._process.run(lambda: self._received(end, data))
        end.on_closed = lambda: self._process.run(lambda: self._closed(end))
        relay.accept(pipe.far, self._node.address)
        self._listener.connected(address, CONNECT_WITHIN)

    def _received(self, end: End, data: Json) -> None:
        if end is self._end:
            self._listener.arrived()
            self._listener.received(data)

    def _closed(self, end: End) -> None:
        if end is self._end:
            self._listener.broken()

    def _latency(self) -> Duration:
        return between(self._rng, *_LATENCY)
