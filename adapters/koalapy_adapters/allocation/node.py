"""The node server of an allocation: parent of the first processes of jobs on one node, for as long as the queue lives.

It obeys messages on its standard input (begin, start, signal, ping). End of file or silence there means that the
queue's server is gone; it then ends its jobs, as it does when the batch system ends the allocation. It has imported the
wrapper once, so that a job's wrapper is a fork of it and needs no new interpreter.
"""

import gc
import os
import selectors
import signal
import sys
import time
from typing import Any, Dict, List, Optional

from koalapy_adapters.allocation import first_process
from koalapy_adapters.host import descendants, json_lines, node_identity, private_dir, signals
from koalapy_adapters.host.event_loop import dispatch_ready
from koalapy_adapters.wrapper.agent import agent_guard, node_agent  # noqa: F401
from koalapy_adapters.wrapper.program import environment, prepare_workdir  # noqa: F401

Json = Dict[str, Any]

SILENCE_S = 60.0  # without a message, after which the queue's server is gone
GRACE_S = 10.0  # for jobs that end because it is
_AGAIN_S = 0.02


def main(argv: List[str]) -> int:
    """`allocation-node NODE,NODE…`: the nodes of this launcher. Returns when the queue's server has left."""
    index = node_identity.own_index(argv[0].split(","))
    if index is None:
        sys.stderr.write("koala allocation: this node, %s, is none of %s.\n" % (os.uname().nodename, argv[0]))
        return 1
    from koalapy_adapters.batch import allocation  # noqa: F401  # for the wrappers, which are forks
    from koalapy_adapters.wrapper import run, start  # noqa: F401

    return agent_guard.run(
        index, lambda directory: NodeServer(index or 0, argv[0].split(",")[index or 0], directory).run()
    )


class NodeServer:
    """One node's jobs, by the pid of their first process."""

    def __init__(self, index: int, name: str, private: str) -> None:
        """`private`: a directory on this node that only this user can enter."""
        self._index, self._private = index, private
        self._selector = selectors.DefaultSelector()
        self._out = json_lines.Writer(1, self._selector)
        self._reader = json_lines.LineReader()
        self._jobs: Dict[int, int] = {}
        self._ended: List[Json] = []  # ended jobs of which something may be left
        self._received_at = time.monotonic()
        self._kill_at: Optional[float] = None  # once the queue's server or the allocation is gone
        self._gone = self._begun = False
        self._base = first_process.environment(name)
        self._login = environment.EnvironmentCapture(self._selector)

    def run(self) -> int:
        """Serve until the queue's server has left and no job is left here. Returns 0."""
        descendants.become_subreaper()
        noticed = signals.pipe()
        os.set_blocking(0, False)
        self._selector.register(noticed, selectors.EVENT_READ, lambda: self._on_signals(signals.read(noticed)))
        self._selector.register(0, selectors.EVENT_READ, self._read)
        os.environ.clear()
        os.environ.update(self._base)
        self._capture_login()
        gc.collect()
        getattr(gc, "freeze", gc.collect)()  # a fork must not collect these: their descriptors have other uses there
        while not (self._gone and not self._jobs and not self._ended):
            dispatch_ready(self._selector, self._timeout())
            self._advance()
        return 0

    def _timeout(self) -> float:
        return _AGAIN_S if self._ended or (self._gone and self._jobs) else 1.0

    def _advance(self) -> None:
        now = time.monotonic()
        if not self._gone and now >= self._received_at + SILENCE_S:
            self._leave()
        for pid, status in descendants.reap():
            number = self._jobs.pop(pid, None)
            if pid in self._login.pids:
                self._captured_login(status)
            elif number is not None:
                code, signalled = first_process.exit_of(status)
                self._ended.append({"job": number, "status": code, "signalled": signalled})
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + 1.0
            self._signal_all(signal.SIGKILL)
        if self._ended and descendants.sweep([*self._jobs, *self._login.pids]):
            for ended in self._ended:
                self._send("ended", **ended)
            self._ended = []

    def _on_signals(self, numbers: bytes) -> None:
        if signals.stop_requested(numbers):
            self._end_jobs()

    def _read(self) -> None:
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(0)
            self._leave()
            return
        if time.monotonic() < self._received_at + SILENCE_S:
            self._received_at = time.monotonic()
        for line in self._reader.feed(data):
            message = json_lines.read(line)
            if message["do"] == "begin" and not self._begun:
                self._begun = True
                first_process.end_programs_of(message["directory"])
                self._send("here", **self._offer(message.get("isolation")))
            elif message.get("node") == self._index and not self._gone:
                if message["do"] == "start":
                    self._start(message)
                elif message["do"] == "signal":
                    self._signal(message["job"], message["number"])

    def _offer(self, isolation: Optional[List[Any]]) -> Json:
        """Return how programs can be isolated here, as the options `isolation` allow; None: nothing is probed."""
        if isolation is None:
            return {}
        from koalapy_adapters.isolation.options import Isolation
        from koalapy_adapters.isolation.probe import probe  # late: few allocations need it

        own = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0])]
        result = probe(Isolation(*isolation), own, self._private)
        return {"methods": result.methods, "refused": result.why}

    def _capture_login(self) -> None:
        """Start a login shell in place of those of the wrappers. A wrapper starts its own while this one is at work."""
        try:
            self._login.begin(environment.Capture([], self._base["HOME"], self._private))
        except OSError as error:
            sys.stderr.write("koala allocation: the login shell cannot be started: %s.\n" % error)

    def _captured_login(self, status: int) -> None:
        try:
            environment.keep_login(self._login.finish(status))
        except environment.SetupError as error:
            sys.stderr.write("koala allocation: the login shell failed: %s.\n" % error)

    def _start(self, message: Json) -> None:
        private_dir.sweep(self._private, time.time())  # so that the wrappers, which are forks, need not
        if environment.login_is_old() and not self._login.pids:
            self._capture_login()
        try:
            pid = os.fork()
        except OSError as error:
            sys.stderr.write("koala allocation: no process for job %s: %s.\n" % (message["job"], error.strerror))
            self._send("ended", job=message["job"], status=first_process.CANNOT_START, signalled=False)
            return
        if pid == 0:
            first_process.become(message, dict(self._base, **message["environment"]))
        self._jobs[pid] = message["job"]

    def _signal(self, number: int, what: int) -> None:
        for pid in [pid for pid, job in self._jobs.items() if job == number]:
            if what == signal.SIGKILL:
                descendants.send([pid, *descendants.descendants(pid)], what)
            else:
                descendants.send([pid], what)

    def _signal_all(self, what: int) -> None:
        for number in list(self._jobs.values()):
            self._signal(number, what)

    def _leave(self) -> None:
        self._gone = True
        self._end_jobs()

    def _end_jobs(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE_S
            self._signal_all(signal.SIGTERM)

    def _send(self, kind: str, **details: Any) -> None:
        details["event"] = kind
        self._out.write(json_lines.pieces(self._index, details))
