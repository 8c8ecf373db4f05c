"""The events of a transport to the relay. There are transports by TCP and by files; the contact knows neither."""

from typing import Any, Callable, NamedTuple


class TransportListener(NamedTuple):
    """`connected(address, patience)`: this one listens, and answers within so many microseconds or not at all.

    `unreachable()`: none of those that were tried. `arrived()`: the other side lives. `received(message as JSON)`.
    `broken()`: nothing comes or goes any more.
    """

    connected: Callable[[str, int], None]
    unreachable: Callable[[], None]
    arrived: Callable[[], None]
    received: Callable[[Any], None]
    broken: Callable[[], None]
