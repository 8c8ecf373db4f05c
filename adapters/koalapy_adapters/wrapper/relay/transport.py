"""What a line to the relay tells of itself; there are lines of sockets and of files, and the contact knows neither."""

from typing import Any, Callable, NamedTuple


class Listener(NamedTuple):
    """`connected(address, patience)`: this one listens, and answers within so many microseconds or not at all.

    `unreachable()`: none of those that were tried. `arrived()`: the other side lives. `heard(message as JSON)`.
    `broken()`: nothing comes or goes any more.
    """

    connected: Callable[[str, int], None]
    unreachable: Callable[[], None]
    arrived: Callable[[], None]
    heard: Callable[[Any], None]
    broken: Callable[[], None]
