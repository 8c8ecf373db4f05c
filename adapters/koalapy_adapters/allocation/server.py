"""The server of an allocation's queue: requests on a Unix socket in, jobs on the nodes' servers out.

It is no child of a KCM, so jobs outlive KCMs. It starts the node servers by the launcher of the batch system around the
allocation, which ends them with it; and it ends itself when no node is left, or nobody has used it for long.
"""

import json
import os
import selectors
import socket
import subprocess
import time
from typing import Any, Callable, Dict, List, Optional

from koalapy_adapters.allocation import jobs, journal, requests
from koalapy_adapters.allocation.surroundings import Outer, examine
from koalapy_adapters.batch.protocol import Launch
from koalapy_adapters.errors import BatchError, ClusterError, Result, UnreadableError
from koalapy_adapters.host import descendants, node_identity, private_dir, signals
from koalapy_adapters.host.event_loop import dispatch_ready
from koalapy_adapters.isolation import terms
from koalapy_adapters.wrapper.agent.group import AgentMessage, NodeAgents

Json = Dict[str, Any]

READY_S = 20.0  # for the node servers to come, before requests are answered without the ones that have not
DOWN_S = 90.0  # without any node, after which the allocation counts as ended
IDLE_S = 600.0  # without a job and a request, after which the server leaves; the next request starts one
LOST_S = 75.0  # after which the node servers of a server that was killed have ended their jobs
_RELAUNCH_S = (5.0, 300.0)  # the first pause before a lost node is tried again, and the longest
_PING_S = 10.0
_QUERY_S = 30.0
_LEFT_S = 15.0
_MUCH = 1 << 20


class Server:
    """One queue. `command` starts the pushed file."""

    def __init__(self, directory: str, command: List[str], outer: Outer) -> None:
        self._directory, self._command, self._outer = directory, command, outer
        self._journal = journal.Journal(directory)
        now = time.time()
        self.queue = jobs.Queue(
            {host.name: host.processors for host in outer.hosts}, outer.ends_s, _known(directory, now)
        )
        reason = "the server of the allocation's queue was killed"
        # Running jobs whose node server is gone: when they end, why, and whether nothing of them is left for sure.
        self._unattended = {job.id: (now + LOST_S, reason, False) for job in self.queue.running()}
        self._names = [host.name for host in outer.hosts]
        self._selector = selectors.DefaultSelector()
        self._nodes = NodeAgents(self._selector, self._on_node)
        self._ready_at = time.monotonic() + READY_S
        self._failed: Dict[str, str] = {}  # nodes without a server, and why
        self._isolation = terms.asked(outer.environment)
        self._means: Dict[str, List[str]] = {}  # by which each node can isolate programs, the best first
        self._exposed: Dict[str, str] = {}  # nodes that cannot isolate programs as they should, and why
        self._relaunch: Dict[str, float] = {}  # lost nodes, and when they are tried again
        self._pause: Dict[str, float] = {}
        self._waiting: List["_Client"] = []  # whose requests came before the nodes
        self._watchers: List["_Client"] = []  # which are sent a byte when jobs have ended
        self._ping_at = self._forget_at = 0.0
        self._used_at = time.monotonic()
        self._down_since: Optional[float] = None  # when the last node was lost
        self._stopping = False

    def run(self, listener: socket.socket) -> int:
        """Serve until the allocation is over, or nobody uses the queue. Returns 0."""
        noticed = signals.pipe()
        self._selector.register(noticed, selectors.EVENT_READ, lambda: self._on_signals(signals.read(noticed)))
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        descendants.become_subreaper()
        self._launch(self._names)
        while not self._is_over():
            dispatch_ready(self._selector, self._timeout())
            self._advance()
        self._leave(listener)
        return 0

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
        if client.request.get("do") == "watch":
            self._watchers.append(client)
            return
        if self._is_ready():
            self._answer(client)
        else:
            self._waiting.append(client)

    def _is_ready(self) -> bool:
        come = len(self.queue.up) + len(self._failed)
        return come >= len(self._names) or time.monotonic() >= self._ready_at

    def _answer(self, client: "_Client") -> None:
        try:
            if self._exposed:
                raise self._no_isolation()
            if not self.queue.up:
                raise self._no_nodes()
            answer, sent = requests.handle(self.queue, self._directory, client.request, time.time())
            for each in sent:
                self._signal(each)
        except BatchError as error:
            answer = requests.refusal(error)
        except (KeyError, TypeError, ValueError) as error:
            answer = requests.refusal(UnreadableError("bad_request", "The request is not understood: %r." % error))
        self._progress()  # written down before it is answered
        client.answer(answer)

    def _no_isolation(self) -> BatchError:
        assert self._isolation is not None
        why = "; ".join("%s: %s" % each for each in sorted(self._exposed.items()))
        wanted = "" if self._isolation.means == terms.AUTO else " by %s" % self._isolation.means
        return ClusterError(
            "no_isolation",
            "Programs cannot be isolated%s on the nodes of %s job %s (%s)." % (wanted, *self._outer.found, why),
            "Ask the administrators for bubblewrap or user namespaces there, or open the pilot without isolation.",
        )

    def _no_nodes(self) -> BatchError:
        why = "; ".join("%s: %s" % each for each in sorted(self._failed.items())) or "none has answered yet"
        return ClusterError(
            "no_nodes",
            "No node of %s job %s can be used (%s)." % (*self._outer.found, why),
            "See that a job may start processes on its nodes, and that they have the shared directory and Python 3.6.",
        )

    # ---- nodes

    def _launch(self, names: List[str]) -> None:
        """Start the servers of these nodes, each by a launcher of its own, whose end shows that of its server.

        A server knows its index by the names of all nodes.
        """
        agent = [*self._command, "allocation-node", ",".join(self._names)]
        launches: List[Launch] = []
        for name in names:
            launches += self._outer.dialect.launch(self._outer.environment, [name], agent)
        covered = {host for launch in launches for host in launch.hosts}
        own = node_identity.own_index(self._names)
        launches += [Launch(agent, [name]) for name in names if name not in covered and name == self._names[own or 0]]
        try:
            self._nodes.launch(launches, self._names, self._outer.environment, self._directory)
            isolation = list(self._isolation) if self._isolation is not None else None
            self._nodes.broadcast({"do": "begin", "directory": self._directory, "isolation": isolation})
        except OSError as error:
            for name in names:
                self._lose(name, "no launcher: %s" % error.strerror, True)

    def _on_node(self, event: Any) -> None:
        if not isinstance(event, AgentMessage):
            self._lose(event.node, _last_words(journal.log_path(self._directory)), event.sure)
            return
        message, now = event.message, time.time()
        if message["event"] == "here":
            if self._isolation is not None and not self._can_isolate(event.node, message):
                return
            self._failed.pop(event.node, None)
            self._relaunch.pop(event.node, None)
            self._pause.pop(event.node, None)
            self.queue.up[event.node] = True
            self._down_since = None
        elif message["event"] == "ended" and message["job"] not in self._unattended:
            self.queue.ended(message["job"], message["status"], message["signalled"], now)

    def _can_isolate(self, node: str, message: Json) -> bool:
        """Note by what a node can isolate programs. All nodes must have one means in common."""
        means, why = message["means"], message["refused"]
        common = [each for each in means if all(each in others for others in self._means.values())]
        if not common:
            self._exposed[node] = why
            self._failed[node] = why
            return False
        self._exposed.pop(node, None)
        self._means[node] = common
        return True

    def _lose(self, name: str, why: str, sure: bool) -> None:
        """Take a node out. `sure`: nothing of its jobs is left there; else they get the time to notice and end."""
        now = time.time()
        self._failed[name] = why or "its server has ended"
        pause = self._pause.get(name, _RELAUNCH_S[0])
        self._pause[name] = min(2 * pause, _RELAUNCH_S[1])
        self._relaunch[name] = time.monotonic() + pause
        reason = "the allocation's processes on node %s have ended (%s)" % (name, self._failed[name])
        for job in self.queue.node_down(name):
            self._unattended.setdefault(job.id, (now if sure else now + LOST_S, reason, sure))
        if not self.queue.up and self._down_since is None:
            self._down_since = time.monotonic()

    def _signal(self, each: jobs.Signal) -> None:
        self._send(each.job.hosts[0][0], {"do": "signal", "job": each.job.id, "number": each.number})

    def _start(self, job: jobs.Job) -> None:
        environment = requests.environment_of(job, self._directory, self._outer)
        if self._isolation is not None:
            common = min(self._means.values(), key=len)
            environment.update(self._isolation._replace(means=common[0]).variables())
        message = {"do": "start", "job": job.id, "command": job.command, "environment": environment}
        self._send(job.hosts[0][0], dict(message, directory=job.directory, output=job.output))

    def _send(self, name: str, message: Json) -> None:
        self._nodes.broadcast(dict(message, node=self._names.index(name)))

    # ---- time

    def _timeout(self) -> float:
        due = self.queue.next_due()
        soon = 1.0 if due is None else min(1.0, max(0.0, due - time.time()))
        return 0.02 if self._nodes.sweeping else soon

    def _advance(self) -> None:
        now = time.monotonic()
        for pid, _ in descendants.reap():
            self._nodes.child_ended(pid)
        if self._nodes.sweeping:
            self._nodes.sweep([])
        if now >= self._ping_at:
            self._ping_at = now + _PING_S
            self._nodes.ping()
            self._show_life()
        again = [name for name, at in self._relaunch.items() if now >= at]
        if again:
            self._relaunch_nodes(again)
        for number, (at, reason, sure) in list(self._unattended.items()):
            if time.time() >= at:
                del self._unattended[number]
                job = self.queue.jobs.get(number)
                # The node server that is there now has ended what the one before it left.
                swept = job is not None and bool(job.hosts) and job.hosts[0][0] in self.queue.up
                self.queue.lose(number, time.time(), reason, sure or swept)
        if self._waiting and self._is_ready():
            waiting, self._waiting = self._waiting, []
            for client in waiting:
                self._answer(client)
        self._progress()

    def _relaunch_nodes(self, names: List[str]) -> None:
        """Try lost nodes again, unless the allocation is over."""
        for name in names:
            del self._relaunch[name]
        try:
            self._outer = _examined(self._outer.environment)
        except ClusterError:
            if not self.queue.up:
                self._stopping = True
            return
        except BatchError:
            pass  # the batch system does not answer: the launcher shows more
        self._launch(names)

    def _progress(self) -> None:
        """Let go on and start what fits, after it was written down, and write down every change."""
        now = time.time()
        due = self.queue.next_due()
        if now >= self._forget_at or (due is not None and now >= due):
            self._forget_at = now + 5.0
            for each in self.queue.due(now):
                if each.job.id not in self._unattended:
                    self._signal(each)
        going_on = self.queue.go_on(now)
        started = self.queue.start(now)
        changed, self.queue.changed = self.queue.changed, []
        self._journal.write(changed, self.queue.jobs)
        if any(job.state == jobs.ENDED for job in changed):
            self._watchers = [client for client in self._watchers if client.ring()]
        for each in going_on:
            self._signal(each)
        for job in started:
            self._start(job)

    def _show_life(self) -> None:
        try:
            journal.show_life(self._directory)
        except OSError:
            self._stopping = True  # the queue was removed

    def _on_signals(self, numbers: bytes) -> None:
        if signals.stop_requested(numbers):
            self._stopping = True

    def _is_over(self) -> bool:
        idle = not self.queue.running() and not self.queue.waiting()
        down = self._down_since is not None and time.monotonic() >= self._down_since + DOWN_S
        return self._stopping or down or (idle and not self._waiting and time.monotonic() >= self._used_at + IDLE_S)

    def _leave(self, listener: socket.socket) -> None:
        """Let the node servers end, and what they run; what is left counts as lost."""
        listener.close()
        self._nodes.close()
        deadline = time.monotonic() + _LEFT_S
        while self._nodes.pids() and time.monotonic() < deadline:
            dispatch_ready(self._selector, 0.05)
            for pid, _ in descendants.reap():
                self._nodes.child_ended(pid)
        sure = not self._nodes.pids()
        self._nodes.kill()
        self.queue.lose_all(time.time(), "the allocation has ended", sure)
        self._journal.write(self.queue.changed, self.queue.jobs)
        self._journal.close()
        for client in self._waiting:
            client.answer(requests.refusal(self._no_nodes()))


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

    def ring(self) -> bool:
        """Send a byte. Returns False if nobody reads it any more."""
        try:
            self._connection.send(b".")
        except BlockingIOError:
            pass  # many bytes wait to be read
        except OSError:
            self._connection.close()
            return False
        return True

    def _close(self) -> None:
        self._selector.unregister(self._connection)
        self._connection.close()


def serve(directory: str, command: List[str], answered: Callable[[Optional[BatchError]], None]) -> int:
    """Be the server of the queue in this directory. `answered` is called once requests can be sent, or with an error.

    Returns the exit status.
    """
    try:
        outer = _examined(os.environ)
        private = private_dir.make()
        path = os.path.join(private, "socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(128)
        listener.setblocking(False)
        server = Server(directory, command, outer)
        journal.write_address(directory, path)
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


def _examined(environment: Any) -> Outer:
    return examine(environment, _read, lambda argv: _query(argv, environment))


def _known(directory: str, now: float) -> List[jobs.Job]:
    """The jobs of an earlier server."""
    return list(journal.read(directory).values())


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _query(argv: List[str], environment: Any) -> Result:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment, LC_ALL="C"),
            timeout=_QUERY_S,
        )
    except subprocess.TimeoutExpired:
        return Result(argv, None, "", "")
    out, err = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
    return Result(argv, done.returncode, out, err)


def _last_words(path: str) -> str:
    """The last line of the log, which a launcher that failed has most probably written."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2000))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""
