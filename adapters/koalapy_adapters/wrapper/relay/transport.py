"""The transports to the relay. There are transports by TCP and by files; the contact knows neither."""

from typing import Any, Callable, List, NamedTuple

from koalapy_adapters.channel import Keys


class TransportListener(NamedTuple):
    """The events of a transport.

    `connected(address, patience)`: this one listens, and answers within so many microseconds or not at all.
    `unreachable()`: none of those that were tried. `arrived()`: the other side lives. `received(message as JSON)`.
    `broken()`: nothing comes or goes any more.
    """

    connected: Callable[[str, int], None]
    unreachable: Callable[[], None]
    arrived: Callable[[], None]
    received: Callable[[Any], None]
    broken: Callable[[], None]


class Transport:
    """At most one connection. The simulated world has a transport of its own in place of sockets."""

    def begin(self, first: List[Any]) -> None:
        """Send the first messages of the connection. -> broken if that fails"""
        raise NotImplementedError

    def secure(self, keys: Keys) -> None:
        """Seal what is sent from now on with these keys, and accept nothing else."""
        raise NotImplementedError

    def write(self, message: Any) -> None:
        """Send a message. -> broken if that fails"""
        raise NotImplementedError

    def drop(self) -> None:
        """Close what is connected or being tried. No event of it follows."""
        raise NotImplementedError


class SocketTransport(Transport):
    """A transport to a port."""

    def connect(self, addresses: List[str], port: int) -> None:
        """-> connected for the first that takes it, unreachable if none does"""
        raise NotImplementedError
