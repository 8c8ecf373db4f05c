"""An isolated program on one node, as its node agent starts it: a process inside, and the pipes to and from it."""

import os
import signal
from typing import Any, Dict, List, NamedTuple, Sequence

from koalapy_adapters import clock
from koalapy_adapters.host import json_lines, signals
from koalapy_adapters.host.spawn import spawn
from koalapy_adapters.host.start_program import os_error
from koalapy_adapters.isolation.sandbox import Sandbox
from koalapy_adapters.wrapper.program.processes import Plan, Started

Json = Dict[str, Any]


class Ended(NamedTuple):
    """The end of a process: its rank on this node, the instant, and the status of waitpid(2)."""

    local: int
    at: int
    status: int


class Isolated:
    """The program on this node, from its preparation on. `answers` is readable when there is something to `read`."""

    def __init__(self, sandbox: Sandbox, plan: Plan, files: Sequence[Sequence[int]]) -> None:
        """Raises OSError if nothing can be prepared."""
        self._sandbox = sandbox
        self._reader = json_lines.LineReader()
        self._unread: List[Json] = []
        self.left: List[int] = []  # the processes that run, by their rank on this node
        reading, self._commands = os.pipe()
        self.answers, writing = os.pipe()
        passed = {each: each for pair in files for each in pair}
        argv, standard = sandbox.argv([*sandbox.own, "inside"]), [reading, writing, 2]
        # The signals with which a batch system ends a job reach the program by way of the agent, which gives it time.
        spawn(argv, sandbox.variables(), standard, "/", more=passed, ignored=tuple(signals.STOPPING))
        os.close(reading)
        os.close(writing)
        plan = plan._replace(environment=sandbox.inside(plan.environment))
        self._order(do="prepare", plan=list(plan), files=[list(pair) for pair in files])
        self._await("ready")

    def start(self, first_rank: int, size: int, hosts: str) -> Started:
        """Start every process; `hosts` is the text of KOALA_HOSTS. Raises OSError if none can be started.

        Call `read` afterwards: some may have ended.
        """
        self._sandbox.write_hosts(hosts)
        self._order(do="start", first_rank=first_rank, size=size)
        message = self._await("started")
        self.left = message["locals"]
        return Started({}, message["at"], [os_error(number) for number in message["errors"]])

    def signal(self, number: int, everything: bool) -> None:
        """Send a signal to the program's first processes, or to all inside."""
        self._order(do="signal", number=number, everything=everything)

    def read(self) -> List[Ended]:
        """Return the processes that have ended since. If process 1 itself has, those that were left were killed."""
        os.set_blocking(self.answers, False)
        ended = [Ended(each["local"], each["at"], each["status"]) for each in self._read()]
        if self.answers < 0:
            ended += [Ended(local, clock.now(), signal.SIGKILL) for local in self.left]
        self.left = [local for local in self.left if local not in [each.local for each in ended]]
        return ended

    def _read(self) -> List[Json]:
        """Return the messages that are there; at the end of file, close `answers`."""
        found, self._unread = self._unread, []
        try:
            data = os.read(self.answers, 1 << 16) if self.answers >= 0 else b""
        except BlockingIOError:
            return found
        if not data and self.answers >= 0:
            os.close(self.answers)
            self.answers = -1
        return found + [json_lines.read(text) for text in self._reader.feed(data)]

    def _await(self, awaited: str) -> Json:
        """Return the next message. Raises OSError for another, or none."""
        os.set_blocking(self.answers, True)
        while not self._unread and self.answers >= 0:
            self._unread = self._read()
        if not self._unread:
            raise OSError("the isolation by %s failed; look at batch.out" % self._sandbox.options.method)
        message = self._unread.pop(0)
        if message["event"] != awaited:
            raise OSError(message["why"])
        return message

    def _order(self, **message: Any) -> None:
        data = json_lines.line(message)
        try:
            while data:
                data = data[os.write(self._commands, data) :]
        except BrokenPipeError:
            pass  # the end of its answers shows that it has ended
