"""The server of a queue: requests on a Unix socket in, jobs on nodes out.

It is no child of a KCM, so jobs outlive KCMs. The nodes are those of an allocation (`nodes`), or this machine itself
(`keepers`). The server ends itself when the allocation is over, or when nobody has used it for long.
"""

import json
import os
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Union

from koalapy_adapters import clock
from koalapy_adapters.allocation import jobs, journal, requests
from koalapy_adapters.allocation.outer_job import Outer, own_machine
from koalapy_adapters.errors import BatchError, ClusterError, UnreadableError
from koalapy_adapters.host import descendants, private_dir, signals
from koalapy_adapters.host.event_loop import dispatch_ready

if TYPE_CHECKING:
    from koalapy_adapters.allocation.keepers import Keepers
    from koalapy_adapters.allocation.nodes import Nodes

Json = Dict[str, Any]

IDLE_S = 600.0  # without a job and a request, after which the server leaves; the next request starts one
_ALONE_S = 2.0  # the same, in a machine's own queue, once the last KCM has left
_UNWATCHED_S = 10.0  # the same there, as long as no KCM has asked for news: some commands only look at the queue
_LIFE_S = 10.0  # between two signs of life
_MUCH = 4 << 20  # bytes of a request
_PASSED_OVER = 100000  # numbers that may have been given to jobs that a damaged journal does not show


class Server:
    """One queue. `command` starts the pushed file. Raises OSError if the directory cannot be used."""

    def __init__(self, directory: str, command: List[str], outer: Outer, path: str) -> None:
        """`path`: of the socket on which it listens."""
        self._directory, self._command, self._outer, self._socket = directory, command, outer, path
        own = outer.found.is_own
        self._journal = journal.Journal(directory, durable=own)
        known = self._journal.known
        if own:
            from koalapy_adapters.allocation import keepers

            known = keepers.recovered(directory, known, self._journal.damaged)
        unknown_to = max(known, default=0) + _PASSED_OVER if self._journal.damaged else 0
        nodes = {host.name: host.processors for host in outer.hosts}
        self.queue = jobs.Queue(nodes, outer.ends_s, known.values(), unknown_to)
        self._journal.write([job for job in known.values() if job != self._journal.known.get(job.id)], known)
        self._selector = selectors.DefaultSelector()
        self._runner: Union["Keepers", "Nodes"]
        self._waiting: List["_Client"] = []  # whose requests came before the nodes
        self._watchers: List["_Client"] = []  # which are sent a byte when jobs have ended
        self._life_at = self._forget_at = 0.0
        self._used_at = time.monotonic()
        self._idle_s = _UNWATCHED_S if own else IDLE_S
        self._sleep = clock.SleepWatch()
        self._stopping = False

    def run(self, listener: socket.socket) -> int:
        """Serve until the allocation is over, or nobody uses the queue. Returns 0."""
        noticed = signals.pipe()
        self._selector.register(noticed, selectors.EVENT_READ, lambda: self._on_signals(signals.read(noticed)))
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        descendants.become_subreaper()
        self._runner = self._begin()
        while not self._must_end():
            dispatch_ready(self._selector, self._timeout())
            self._advance()
        self._leave(listener)
        return 0

    def _begin(self) -> Union["Keepers", "Nodes"]:
        if self._outer.found.is_own:
            from koalapy_adapters.allocation.keepers import Keepers

            return Keepers(self.queue, self._outer, self._directory)
        from koalapy_adapters.allocation.nodes import Nodes

        return Nodes(self._selector, self.queue, self._outer, self._directory, self._command)

    # ---- requests

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        client = _Client(connection, self._selector, self._on_request)
        self._selector.register(connection, selectors.EVENT_READ, client.read)

    def _on_request(self, client: "_Client") -> None:
        self._used_at = time.monotonic()
        slots = client.request.get("slots")
        if slots and slots != self._outer.hosts[0].processors:
            self._resize(slots)
        if client.request.get("do") == "watch":
            self._watchers.append(client)
            client.await_end(lambda: self._leave_watcher(client))
            self._idle_s = IDLE_S
            return
        if self._runner.is_ready:
            self._answer(client)
        else:
            self._waiting.append(client)

    def _leave_watcher(self, client: "_Client") -> None:
        self._watchers.remove(client)
        if self._outer.found.is_own and not self._watchers:
            self._idle_s = _ALONE_S

    def _resize(self, slots: int) -> None:
        """Give the queue of this machine so many processors."""
        host = self._outer.hosts[0]._replace(processors=slots)
        self._outer = self._outer._replace(hosts=[host])
        self.queue.resize(host.name, slots)
        journal.write_address(self._directory, self._socket, slots)

    def _answer(self, client: "_Client") -> None:
        try:
            refusal = self._runner.refusal()
            if refusal is not None:
                raise refusal
            answer, sent = requests.handle(self.queue, self._directory, client.request, clock.seconds())
            for each in sent:
                self._runner.signal(each)
        except BatchError as error:
            answer = requests.refusal(error)
        except (KeyError, TypeError, ValueError) as error:
            answer = requests.refusal(UnreadableError("bad_request", "The request is not understood: %r." % error))
        self._progress()  # written down before it is answered
        client.answer(answer)

    # ---- time

    def _timeout(self) -> float:
        due = self.queue.next_due()
        soon = 1.0 if due is None else min(1.0, max(0.0, due - clock.seconds()))
        return 0.02 if self._runner.hurries else soon

    def _advance(self) -> None:
        if time.monotonic() >= self._life_at:
            self._life_at = time.monotonic() + _LIFE_S
            self._show_life()
        asleep = self._sleep.look()
        if asleep and self._outer.found.is_own:
            self.queue.slept(asleep / clock.SECOND)
        self._runner.advance()
        if self._waiting and self._runner.is_ready:
            waiting, self._waiting = self._waiting, []
            for client in waiting:
                self._answer(client)
        self._progress()

    def _progress(self) -> None:
        """Let go on and start what fits, after it was written down, and write down every change."""
        now = clock.seconds()
        due = self.queue.next_due()
        if now >= self._forget_at or (due is not None and now >= due):
            self._forget_at = now + 5.0
            for each in self.queue.due(now):
                self._runner.signal(each)
        going_on = self.queue.go_on(now)
        started = self.queue.start(now)
        changed, self.queue.changed = self.queue.changed, []
        self._journal.write(changed, self.queue.jobs)
        self._runner.written()
        if any(job.state == jobs.ENDED for job in changed):
            for client in self._watchers:
                client.wake()
        for each in going_on:
            self._runner.signal(each)
        for job in started:
            self._runner.start(job)

    def _show_life(self) -> None:
        """Leave if the queue was removed, or another server has it since this one could not be reached."""
        try:
            journal.show_life(self._directory)
        except OSError:
            self._stopping = True
        address = journal.read_address(self._directory)
        if address is None or address.socket != self._socket or not os.path.exists(self._socket):
            self._stopping = True

    def _on_signals(self, numbers: bytes) -> None:
        if signals.stop_requested(numbers):
            self._stopping = True

    def _must_end(self) -> bool:
        idle = not self.queue.running() and not self.queue.waiting() and not self._waiting
        return self._stopping or self._runner.has_ended or (idle and time.monotonic() >= self._used_at + self._idle_s)

    def _leave(self, listener: socket.socket) -> None:
        listener.close()
        self._runner.leave()
        self._journal.write(self.queue.changed, self.queue.jobs)
        self._journal.close()
        for client in self._waiting:
            client.answer(requests.refusal(_queue_ended()))


class _Client:
    """One connection, with one request and its answer, each a line of JSON."""

    def __init__(
        self, connection: socket.socket, selector: selectors.BaseSelector, asked: Callable[["_Client"], None]
    ) -> None:
        self._connection, self._selector, self._asked = connection, selector, asked
        self._data = b""
        self.request: Json = {}

    def read(self) -> None:
        try:
            data = self._connection.recv(1 << 16)
        except OSError:
            data = b""
        self._data += data
        if not data or len(self._data) > _MUCH:
            self._close()
        elif self._data.endswith(b"\n"):
            try:
                self.request = dict(json.loads(self._data.decode()))
            except (ValueError, TypeError):
                self._close()
                return
            self._selector.unregister(self._connection)
            self._asked(self)

    def answer(self, answer: Json) -> None:
        """Send the answer and hang up. A client that does not read it within a few seconds loses it."""
        try:
            self._connection.settimeout(5.0)
            self._connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass
        self._connection.close()

    def await_end(self, ended: Callable[[], None]) -> None:
        """Call `ended` once the client has hung up."""

        def read() -> None:
            try:
                hung_up = not self._connection.recv(1 << 10)
            except OSError:
                hung_up = True
            if hung_up:
                self._close()
                ended()

        self._selector.register(self._connection, selectors.EVENT_READ, read)

    def wake(self) -> None:
        """Send a byte."""
        try:
            self._connection.send(b".")
        except OSError:
            pass  # many bytes wait to be read, or the client has hung up

    def _close(self) -> None:
        self._selector.unregister(self._connection)
        self._connection.close()


def serve(
    directory: str, slots: Optional[int], command: List[str], answered: Callable[[Optional[BatchError]], None]
) -> int:
    """Be the server of the queue in this directory. `answered` is called once requests can be sent, or with an error.

    `slots`: the processors of this machine, if the queue is its own; 0: as before. Returns the exit status.
    """
    try:
        outer = _examined(directory, slots)
        private = private_dir.make()
        path = os.path.join(private, "socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(128)
        listener.setblocking(False)
        server = Server(directory, command, outer, path)
        journal.write_address(directory, path, 0 if slots is None else outer.hosts[0].processors)
    except BatchError as error:
        answered(error)
        return 1
    except OSError as error:
        answered(requests.unusable(directory, error))
        return 1
    answered(None)
    try:
        return server.run(listener)
    finally:
        private_dir.remove(private)


def _examined(directory: str, slots: Optional[int]) -> Outer:
    if slots is None:
        from koalapy_adapters.allocation import nodes

        return nodes.examined(os.environ)
    before = journal.read_address(directory)
    return own_machine(slots or (before.slots if before is not None else 0))


def _queue_ended() -> BatchError:
    return ClusterError("queue_ended", "The queue's server leaves.", "Try again, unless the allocation is over.")
