"""The bridge gives the agents on the other nodes of a PBS job their standard input and output.

PBS's launchers carry neither.

    pbs-bridge HOSTS AGENT…           on the wrapper's node: starts a far end on each host, and passes everything on;
                                      its working directory is one that the nodes share, for the meeting
    pbs-bridge --end MEETING AGENT…   on another node, started by PBS: connects, and becomes the agent
    pbs-bridge --ends MEETING AGENT…  the same, where PBS starts it on all nodes of the job, the wrapper's too

All agents read the bridge's standard input, and the bridge prints their lines whole. The last argument of the agents'
command has the names of their nodes. If an agent never comes, or its connection ends, the bridge reports the agent as
lost, as the agent's guard would. The bridge adds that this is not sure, because processes may still be there.

PBS signals every process of the job on the wrapper's node. The wrapper then ends all agents, for which it needs the
bridge. Therefore the bridge and the launchers that it starts ignore these signals, and end after the agents.
"""

import os
import select
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Set

from koalapy_adapters.batch import pbs_meeting
from koalapy_adapters.batch.pbs_meeting import Unmet
from koalapy_adapters.batch.pbs_starting import Launchers, NoLauncher, starters
from koalapy_adapters.host import signals

PATIENCE_S = 120.0  # with a node whose agent does not come
LEAVES_S = 10.0  # for PBS's launchers, after all agents have ended
_TURN_S = 0.25
_MUCH = 4 << 20  # bytes that a slow node may lag behind before all wait for it
_INPUT = 0
_FAILED = 1


def main(argv: List[str]) -> int:
    if len(argv) < 3:
        sys.stderr.write("usage: pbs-bridge HOSTS AGENT...\n")
        return 2
    try:
        if argv[0] == "--ends" and os.environ.get("PBS_NODENUM") == "0":
            return 0
        if argv[0] in ("--end", "--ends"):
            return _far(argv[1], argv[2:])
        return _near(argv[0].split(","), argv[1:])
    except (NoLauncher, Unmet, OSError) as error:
        sys.stderr.write("koala bridge: %s\n" % error)
        return _FAILED


def _far(path: str, agent: List[str]) -> int:
    """Connect to the near end, and become the agent. Returns only on a node that is to have no agent, with 0."""
    from koalapy_adapters.host import node_identity

    number = node_identity.own_index(agent[-1].split(","))
    if number is None:
        return 0
    near = pbs_meeting.connect(pbs_meeting.read(path), number)
    os.dup2(near.fileno(), 0)
    os.dup2(near.fileno(), 1)
    near.close()
    os.execvp(agent[0], agent)


def _near(hosts: List[str], agent: List[str]) -> int:
    signals.ignore()
    launchers, listener = Launchers(), pbs_meeting.listen()
    meeting = pbs_meeting.arrange(listener)
    path = os.path.join(os.getcwd(), ".bridge-%s" % os.urandom(8).hex())
    started = starters(hosts, os.environ)
    try:
        pbs_meeting.write(path, meeting)
    except OSError as error:
        raise Unmet("%s cannot be written to: %s" % (os.getcwd(), error.strerror)) from error
    try:
        for starter in started:
            launchers.start(starter, [*agent[:-2], "pbs-bridge", starter.end, path, *agent])
        bridge = Bridge(listener, meeting.token, agent[-1].split(","), hosts, launchers)
        bridge.gather()
    finally:
        listener.close()
        os.unlink(path)
    bridge.pass_on()
    return bridge.leave()


class Bridge:
    """The bridge's end on the wrapper's node.

    `names` are the nodes of all agents; an agent's number is its index there. `hosts` are the nodes of this bridge's
    agents.
    """

    def __init__(
        self, listener: socket.socket, token: str, names: List[str], hosts: List[str], launchers: Launchers
    ) -> None:
        self._listener, self._token = listener, token
        self._names = names
        self._ends: Dict[int, _End] = {names.index(host): _End() for host in hosts}
        self._launchers = launchers
        self._input = True

    def gather(self) -> None:
        """Wait until each agent has connected or was given up. Meanwhile, serve those that have connected."""
        deadline = time.monotonic() + PATIENCE_S
        while self._missing():
            given_up = self._launchers.ended()
            if self._turn([self._listener], _TURN_S):
                self._let_in()
            while given_up and _readable([self._listener], 0):
                self._let_in()  # an agent that came has knocked before its launcher ended
            for number in self._missing():
                if self._names[number] in given_up:
                    self._lose(number, "could not be started: PBS's launcher ended")
                elif time.monotonic() >= deadline or not self._input:
                    self._lose(number, "did not come")

    def pass_on(self) -> None:
        """Pass data on until the last agent has ended."""
        while self._ends:
            self._turn([], None)

    def leave(self) -> int:
        """Wait for PBS's launchers, which end after their agents, and kill those that need more than LEAVES_S. Returns
        0.
        """
        deadline = time.monotonic() + LEAVES_S
        while self._launchers.running and time.monotonic() < deadline:
            if not self._launchers.ended():
                time.sleep(_TURN_S)
        self._launchers.kill()
        return 0

    def _missing(self) -> List[int]:
        return [number for number, end in self._ends.items() if end.connection is None]

    def _let_in(self) -> None:
        connection = self._listener.accept()[0]
        number = pbs_meeting.admit(connection, self._token)
        if number is None:
            return
        if number in self._missing():
            connection.setblocking(False)
            self._ends[number].connection = connection
        else:
            connection.close()

    def _lose(self, number: int, why: str) -> None:
        sys.stderr.write("koala bridge: the agent of node %s %s.\n" % (self._names[number], why))
        self._drop(number)

    def _drop(self, number: int) -> None:
        from koalapy_adapters.host import json_lines  # late: only when an agent is gone

        end = self._ends.pop(number)
        if end.connection is not None:
            end.connection.close()
        _write(json_lines.pieces(number, {"event": "lost", "sure": False}))

    def _turn(self, others: List[Any], timeout_s: Optional[float]) -> bool:
        """Wait up to `timeout_s`, and pass on the data that is there. Returns whether one of `others` can be read."""
        there = {end.fileno(): number for number, end in self._ends.items() if end.connection is not None}
        reading = [*others, *there]
        if self._input and all(len(end.outgoing) < _MUCH for end in self._ends.values()):
            reading.append(_INPUT)
        full = [end for end in self._ends.values() if end.connection is not None and end.outgoing]
        ready = _readable(reading, timeout_s, [end.fileno() for end in full])
        if _INPUT in ready:
            self._read_wrapper()
        for end in full:
            end.send()
        for descriptor, number in there.items():
            if descriptor in ready and not self._ends[number].receive():
                self._drop(number)
        return any(other.fileno() in ready for other in others)

    def _read_wrapper(self) -> None:
        data = os.read(_INPUT, 1 << 16)
        self._input = bool(data)
        for end in self._ends.values():
            end.outgoing += data
            end.closing = not data
            end.send()


class _End:
    """The connection to one agent, with the data still to be sent there and the beginning of a line received from
    there.
    """

    def __init__(self) -> None:
        self.connection: Optional[socket.socket] = None
        self.outgoing = bytearray()
        self.line = b""
        self.closing = False  # as soon as all has gone

    def fileno(self) -> int:
        return self.connection.fileno() if self.connection is not None else -1

    def send(self) -> None:
        """Send as much as the other node takes now. An error drops the data; `receive` finds the lost connection."""
        if self.connection is None:
            return
        try:
            while self.outgoing:
                del self.outgoing[: self.connection.send(self.outgoing)]
            if self.closing:
                self.connection.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            del self.outgoing[:]

    def receive(self) -> bool:
        """Pass on the lines that have come. Returns False at the end of the connection. A half line of a dead agent is
        dropped.
        """
        assert self.connection is not None
        try:
            data = self.connection.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        whole, mark, rest = (self.line + data).rpartition(b"\n")
        _write(whole + mark)
        self.line = rest
        return bool(data)


def _readable(reading: Sequence[Any], timeout_s: Optional[float], writing: Sequence[int] = ()) -> Set[int]:
    """The descriptors that can be read now, without a limit on their number.

    It waits up to `timeout_s`, or until one of `writing` takes more.
    """
    poll = select.poll()
    for each in reading:
        poll.register(each, select.POLLIN)
    for descriptor in writing:
        poll.register(descriptor, select.POLLIN | select.POLLOUT)
    found = poll.poll(None if timeout_s is None else int(1000 * timeout_s))
    return {descriptor for descriptor, events in found if events & ~select.POLLOUT}


def _write(data: bytes) -> None:
    """Write all of the data to the wrapper, on standard output."""
    while data:
        data = data[os.write(1, data) :]
