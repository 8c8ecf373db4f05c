"""Gives the agents on the other nodes of a PBS job their standard input and output: PBS's launchers carry neither.

    pbs-bridge HOSTS AGENT…           on the wrapper's node: starts a far end on each host, and passes everything on
    pbs-bridge --end MEETING AGENT…   on another node, started by PBS: connects, and becomes the agent
    pbs-bridge --ends MEETING AGENT…  the same, where PBS starts it on all nodes of the job, the wrapper's too

All agents read what the bridge reads, and their lines come out of it whole. The agents' command ends with their nodes'
names; of one that never came, or went away, the bridge says that it is lost, as its guard would, but not that it is
sure: processes may still be there.

PBS signals every process of the job on the wrapper's node. The wrapper then ends all agents, for which it needs the
bridge: so the bridge, and the launchers that it starts, ignore what tells to stop, and end when the agents have.
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
    """Never returns but on a node that is to have no agent."""
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
    pbs_meeting.write(path, meeting)
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
    """The wrapper's end. `names` are those of all agents, by which they number themselves; `hosts` are ours of them."""

    def __init__(
        self, listener: socket.socket, token: str, names: List[str], hosts: List[str], launchers: Launchers
    ) -> None:
        self._listener, self._token = listener, token
        self._names = names
        self._ends: Dict[int, _End] = {names.index(host): _End() for host in hosts}
        self._launchers = launchers
        self._input = True

    def gather(self) -> None:
        """Until each agent is there, or was given up; meanwhile those that are there are served."""
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
        """Until the last agent has ended."""
        while self._ends:
            self._turn([], None)

    def leave(self) -> int:
        """PBS's launchers end after their agents."""
        deadline = time.monotonic() + LEAVES_S
        while self._launchers.running and time.monotonic() < deadline:
            if not self._launchers.ended():
                time.sleep(_TURN_S)
        self._launchers.kill()
        return 0

    def _missing(self) -> List[int]:
        return [number for number, end in self._ends.items() if end.connection is None]

    def _let_in(self) -> None:
        guest = self._listener.accept()[0]
        number = pbs_meeting.admit(guest, self._token)
        if number is None:
            return
        if number in self._missing():
            guest.setblocking(False)
            self._ends[number].connection = guest
        else:
            guest.close()

    def _lose(self, number: int, why: str) -> None:
        sys.stderr.write("koala bridge: the agent of node %s %s.\n" % (self._names[number], why))
        self._drop(number)

    def _drop(self, number: int) -> None:
        from koalapy_adapters.host import json_lines  # late: only when an agent is gone

        end = self._ends.pop(number)
        if end.connection is not None:
            end.connection.close()
        _write(json_lines.pieces(number, {"said": "lost", "sure": False}))

    def _turn(self, others: List[Any], timeout_s: Optional[float]) -> bool:
        """Wait, and pass on what there is; whether one of the others has something."""
        there = {end.fileno(): number for number, end in self._ends.items() if end.connection is not None}
        reading = [*others, *there]
        if self._input and all(len(end.outgoing) < _MUCH for end in self._ends.values()):
            reading.append(_INPUT)
        full = [end for end in self._ends.values() if end.connection is not None and end.outgoing]
        ready = _readable(reading, timeout_s, [end.fileno() for end in full])
        if _INPUT in ready:
            self._hear_wrapper()
        for end in full:
            end.send()
        for descriptor, number in there.items():
            if descriptor in ready and not self._ends[number].receive():
                self._drop(number)
        return any(other.fileno() in ready for other in others)

    def _hear_wrapper(self) -> None:
        data = os.read(_INPUT, 1 << 16)
        self._input = bool(data)
        for end in self._ends.values():
            end.outgoing += data
            end.closing = not data
            end.send()


class _End:
    """The connection to one agent: what is to go there, and the beginning of a line that came from there."""

    def __init__(self) -> None:
        self.connection: Optional[socket.socket] = None
        self.outgoing = bytearray()
        self.line = b""
        self.closing = False  # as soon as all has gone

    def fileno(self) -> int:
        return self.connection.fileno() if self.connection is not None else -1

    def send(self) -> None:
        """What the other node takes now; that it is gone is noticed by reading."""
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
        """Pass on the lines that have come; whether there may be more. A half line of a dead agent is dropped."""
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
    """The descriptors that can be read now, however many there are; also over if one of `writing` takes more."""
    poll = select.poll()
    for each in reading:
        poll.register(each, select.POLLIN)
    for descriptor in writing:
        poll.register(descriptor, select.POLLIN | select.POLLOUT)
    found = poll.poll(None if timeout_s is None else int(1000 * timeout_s))
    return {descriptor for descriptor, events in found if events & ~select.POLLOUT}


def _write(data: bytes) -> None:
    """To the wrapper."""
    while data:
        data = data[os.write(1, data) :]
