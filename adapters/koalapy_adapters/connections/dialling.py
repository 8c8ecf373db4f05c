"""Connect by TCP to a host of one or several addresses, as RFC 8305 describes: the first that answers is taken."""

import errno
import os
import selectors
import socket
import time
from collections.abc import Sequence
from typing import Any

STAGGER_S = 1.0  # without an answer, before the next is tried beside it
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}

Address = tuple[socket.AddressFamily, Any]  # as getaddrinfo has them


def addresses(host: str, port: int, family: str = "any") -> list[Address]:
    """Return all addresses of a host in the resolver's order, which may rotate.

    Blocks. Raises OSError or UnicodeError.
    """
    found = socket.getaddrinfo(host, port, _FAMILIES.get(family, socket.AF_UNSPEC), socket.SOCK_STREAM)
    return list(dict.fromkeys((each[0], each[4]) for each in found))


def dial(choice: Sequence[Address], timeout_s: float) -> tuple[socket.socket, Address]:
    """Return a connected socket and its address. Raises OSError; TimeoutError if nothing answers within the time.

    After an address that refuses, the next one is tried at once. A silent address is tried again in its turn, one try a
    second, beside the older tries. The kernel's own repetitions become ever rarer, and would delay the connection when
    a network is back.
    """
    with _Dialling(list(choice)) as dialling:
        return dialling.until(time.monotonic() + timeout_s)


class _Dialling:
    def __init__(self, left: list[Address]) -> None:
        self._left = left  # in turn; those that have not failed
        self._selector = selectors.DefaultSelector()
        self._failure = OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))

    def __enter__(self) -> "_Dialling":
        return self

    def __exit__(self, *exception: object) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def until(self, deadline: float) -> tuple[socket.socket, Address]:
        due = time.monotonic()
        while self._left:
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            if now >= due:
                self._start()
                due = now + STAGGER_S
            for key, _ in self._selector.select(min(due, deadline) - now):
                if (found := self._ended(key)) is not None:
                    return found
                due = now
        raise self._failure

    def _start(self) -> None:
        """Begin to connect to the next address in turn."""
        address = self._left.pop(0)
        self._left.append(address)
        plug = socket.socket(address[0], socket.SOCK_STREAM)
        plug.setblocking(False)
        self._selector.register(plug, selectors.EVENT_WRITE, address)
        if (number := plug.connect_ex(address[1])) not in (0, errno.EINPROGRESS):
            self._failed(plug, address, number)

    def _ended(self, key: selectors.SelectorKey) -> tuple[socket.socket, Address] | None:
        """Return the socket and its address if it is connected; None if the connection failed."""
        plug, address = key.fileobj, key.data
        assert isinstance(plug, socket.socket)
        if number := plug.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._failed(plug, address, number)
            return None
        self._selector.unregister(plug)
        plug.setblocking(True)
        return plug, address

    def _failed(self, plug: socket.socket, address: Address, number: int) -> None:
        self._failure = OSError(number, os.strerror(number))
        self._selector.unregister(plug)
        plug.close()
        if address in self._left:
            self._left.remove(address)
