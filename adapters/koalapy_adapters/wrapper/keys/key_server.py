"""The node's end of KOALA_RENDEZVOUS: a Unix socket that only this user can reach; a line of JSON in, a line out.

    {"put": KEY, "value": VALUE} -> {}     {"get": KEY} -> {"value": VALUE}     {"barrier": NAME, "count": N} -> {}
    {"start": HOST, "command": TEXT} -> {"exit_status": STATUS, "words": TEXT}, see remote_starts

A key counts once the wrapper has handed it back, so that all nodes of the component agree on the first value.
"""

import json
import os
import selectors
import socket
from typing import Any, Callable, Dict, List, Tuple

from koalapy_adapters.host.json_lines import LineReader
from koalapy_adapters.wrapper.keys import key_space

NAME = "rendezvous"
_MAX_REQUEST = 1 << 20  # a value of escaped characters is six times as long
_BACKLOG = 1024

Json = Dict[str, Any]


class BadRequest(ValueError):
    """Its words go to the requester."""


class KeyServer:
    """Serves the clients on one node.

    `publish` is called with every key that a client puts, `asking` when some client begins to wait, and when none does.
    `start` is called with a request to start a command on another node, and how it is answered.
    """

    def __init__(
        self,
        directory: str,
        selector: selectors.BaseSelector,
        publish: Callable[[str, str], None],
        asking: Callable[[bool], None],
        start: Callable[[Json, Callable[[Json], None]], None],
    ) -> None:
        self.path = os.path.join(directory, NAME)
        self._selector = selector
        self._publish = publish
        self._report_asking = asking
        self._start = start
        self._asking = False
        self._keys = key_space.KeySpace()
        self._awaited: Dict[str, List[Callable[[], None]]] = {}  # a key; what to do when it is there
        self._barriers: Dict[str, List[Tuple[int, "_Client"]]] = {}  # a barrier; (arrivals wanted, who waits)
        self._arrivals = 0
        self._unique = os.urandom(8).hex()
        self._listener = _listener(self.path)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def learn(self, key: str, value: str) -> None:
        """A key from the wrapper."""
        if not self._keys.put(key, value):
            return
        for act in self._awaited.pop(key, []):
            act()
        if key.startswith(key_space.ARRIVALS):
            self._let_through(key_space.barrier_of(key))
        self._note_asking()

    def close(self) -> None:
        self._selector.unregister(self._listener)
        self._listener.close()
        os.unlink(self.path)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it left again, or this node is out of descriptors: it sees that
        client = _Client(connection, self._selector, self._answer)
        self._selector.register(connection, selectors.EVENT_READ, client.readable)

    def _answer(self, client: "_Client", request: Json) -> None:
        if "put" in request:
            self._put(request["put"], request["value"], client.done)
        elif "get" in request:
            key = request["get"]
            self._when_known(key, lambda: client.reply({"value": self._keys.get(key)}))
        elif "start" in request:
            self._start(request, client.reply)
        else:
            self._arrive(client, request["barrier"], int(request["count"]))
        self._note_asking()

    def _note_asking(self) -> None:
        asking = bool(self._awaited) or any(self._barriers.values())
        if asking != self._asking:
            self._asking = asking
            self._report_asking(asking)

    def _put(self, key: str, value: str, then: Callable[[], None]) -> None:
        if self._keys.size + len(key) + len(value) > key_space.MAX_TOTAL:
            raise BadRequest("The rendezvous holds 64 MiB already. Pass large data by files or by the network.")
        if self._keys.get(key) is None:
            self._publish(key, value)
        self._when_known(key, then)

    def _when_known(self, key: str, then: Callable[[], None]) -> None:
        if self._keys.get(key) is not None:
            then()
        else:
            self._awaited.setdefault(key, []).append(then)

    def _arrive(self, client: "_Client", barrier: str, count: int) -> None:
        self._arrivals += 1
        key = key_space.arrival(barrier, "%s.%d" % (self._unique, self._arrivals))

        def arrived() -> None:
            wanted = key_space.goal(self._keys.arrivals(barrier), count)
            self._barriers.setdefault(barrier, []).append((wanted, client))

        self._put(key, "", arrived)

    def _let_through(self, barrier: str) -> None:
        arrived = self._keys.arrivals(barrier)
        waiting = self._barriers.pop(barrier, [])
        self._barriers[barrier] = [(wanted, client) for wanted, client in waiting if wanted > arrived]
        for wanted, client in waiting:
            if wanted <= arrived:
                client.done()


class _Client:
    """One connection, which asks once."""

    def __init__(
        self, connection: socket.socket, selector: selectors.BaseSelector, answer: Callable[["_Client", Json], None]
    ) -> None:
        self._connection = connection
        self._selector = selector
        self._answer = answer
        self._reader = LineReader()
        self._received = 0
        self._open = True
        connection.setblocking(False)

    def readable(self) -> None:
        try:
            data = self._connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += len(data)
        if not data or self._received > _MAX_REQUEST:
            self._close()
            return
        for line in self._reader.feed(data):
            self._ask(line)

    def done(self) -> None:
        self.reply({})

    def reply(self, answer: Json) -> None:
        """The answer is the last of the connection; a client that left does not get it."""
        if not self._open:
            return
        try:
            self._connection.setblocking(True)  # a value is larger than the socket's buffer may be
            self._connection.settimeout(5.0)
            self._connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass
        self._close()

    def _ask(self, line: bytes) -> None:
        try:
            self._answer(self, json.loads(line.decode()))
        except BadRequest as error:
            self.reply({"error": str(error)})
        except (ValueError, KeyError, TypeError, AttributeError):
            self.reply({"error": "This is not a request of KOALA_RENDEZVOUS. Use the program that the variable names."})

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._selector.unregister(self._connection)
            self._connection.close()


def _listener(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
