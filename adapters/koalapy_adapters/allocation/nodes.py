"""The nodes of an allocation: their servers, started by the batch system's launcher, and the jobs there.

The launcher ends a node server with the allocation. A node server that is lost is started again, and its jobs with it
are lost.
"""

import os
import selectors
import subprocess
import time
from typing import Any, Dict, List, Optional

from koalapy_adapters import clock
from koalapy_adapters.allocation import jobs, journal, requests
from koalapy_adapters.allocation.outer_job import Outer, examine
from koalapy_adapters.batch.protocol import Launch
from koalapy_adapters.errors import BatchError, ClusterError, Result
from koalapy_adapters.host import descendants, node_identity
from koalapy_adapters.host.event_loop import dispatch_ready
from koalapy_adapters.isolation import options
from koalapy_adapters.wrapper.agent.group import AgentMessage, NodeAgents

Json = Dict[str, Any]

READY_S = 20.0  # for the node servers to come, before requests are answered without the ones that have not
DOWN_S = 90.0  # without any node, after which the allocation counts as ended
LOST_S = 75.0  # after which the node servers of a server that was killed have ended their jobs
_RELAUNCH_S = (5.0, 300.0)  # the first pause before a lost node is tried again, and the longest
_PING_S = 10.0
_QUERY_S = 30.0
_LEFT_S = 15.0


class Nodes:
    """The nodes of a queue and what runs there. `command` starts the pushed file."""

    def __init__(
        self, selector: selectors.BaseSelector, queue: jobs.Queue, outer: Outer, directory: str, command: List[str]
    ) -> None:
        self._selector, self._queue, self._outer = selector, queue, outer
        self._directory, self._command = directory, command
        reason = "the server of the allocation's queue was killed"
        # Running jobs whose node server is gone: when they end, why, and whether nothing of them is left for sure.
        self._unattended = {job.id: (clock.seconds() + LOST_S, reason, False) for job in queue.running()}
        self._names = [host.name for host in outer.hosts]
        self._agents = NodeAgents(self._selector, self._on_node)
        self._ready_at = time.monotonic() + READY_S
        self._failed: Dict[str, str] = {}  # nodes without a server, and why
        self._isolation = options.asked(outer.environment)
        self._isolation_methods: Dict[str, List[str]] = {}  # by which each node can isolate programs, the best first
        self._exposed: Dict[str, str] = {}  # nodes that cannot isolate programs as they should, and why
        self._relaunch: Dict[str, float] = {}  # lost nodes, and when they are tried again
        self._pause: Dict[str, float] = {}
        self._ping_at = 0.0
        self._down_since: Optional[float] = None  # when the last node was lost
        self._ended = False
        self._launch(self._names)

    @property
    def is_ready(self) -> bool:
        come = len(self._queue.up) + len(self._failed)
        return come >= len(self._names) or time.monotonic() >= self._ready_at

    @property
    def has_ended(self) -> bool:
        """Return whether the allocation has ended."""
        return self._ended or (self._down_since is not None and time.monotonic() >= self._down_since + DOWN_S)

    @property
    def hurries(self) -> bool:
        """Return whether `advance` is to be called again within milliseconds."""
        return self._agents.sweeping

    def refusal(self) -> Optional[BatchError]:
        """Return the error to every request, if no job can run here."""
        if self._exposed:
            return self._no_isolation()
        return None if self._queue.up else self._no_nodes()

    def start(self, job: jobs.Job) -> None:
        environment = requests.environment_of(job, self._directory, self._outer)
        if self._isolation is not None:
            common = min(self._isolation_methods.values(), key=len)
            environment.update(self._isolation._replace(method=common[0]).variables())
        message = {"do": "start", "job": job.id, "command": job.command, "environment": environment}
        self._send(job.hosts[0][0], dict(message, directory=job.directory, output=job.output))

    def signal(self, each: jobs.Signal) -> None:
        if each.job.id not in self._unattended:
            self._send(each.job.hosts[0][0], {"do": "signal", "job": each.job.id, "number": each.number})

    def written(self) -> None:
        """Do nothing: the journal is all that there is of a job."""

    def advance(self) -> None:
        """Notice what has ended; start lost node servers again."""
        now = time.monotonic()
        for pid, _ in descendants.reap():
            self._agents.child_ended(pid)
        if self._agents.sweeping:
            self._agents.sweep([])
        if now >= self._ping_at:
            self._ping_at = now + _PING_S
            self._agents.ping()
        again = [name for name, at in self._relaunch.items() if now >= at]
        if again:
            self._relaunch_nodes(again)
        for number, (at, reason, sure) in list(self._unattended.items()):
            if clock.seconds() >= at:
                del self._unattended[number]
                job = self._queue.jobs.get(number)
                # The node server that is there now has ended what the one before it left.
                swept = job is not None and bool(job.hosts) and job.hosts[0][0] in self._queue.up
                self._queue.lose(number, clock.seconds(), reason, sure or swept)

    def leave(self) -> None:
        """Let the node servers end, and what they run; what is left counts as lost."""
        self._agents.close()
        deadline = time.monotonic() + _LEFT_S
        while self._agents.pids() and time.monotonic() < deadline:
            dispatch_ready(self._selector, 0.05)
            for pid, _ in descendants.reap():
                self._agents.child_ended(pid)
        sure = not self._agents.pids()
        self._agents.kill()
        self._queue.lose_all(clock.seconds(), "the allocation has ended", sure)

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
            self._agents.launch(launches, self._names, self._outer.environment, self._directory)
            isolation = list(self._isolation) if self._isolation is not None else None
            self._agents.broadcast({"do": "begin", "directory": self._directory, "isolation": isolation})
        except OSError as error:
            for name in names:
                self._lose(name, "no launcher: %s" % error.strerror, True)

    def _on_node(self, event: Any) -> None:
        if not isinstance(event, AgentMessage):
            self._lose(event.node, _last_words(journal.log_path(self._directory)), event.sure)
            return
        message, now = event.message, clock.seconds()
        if message["event"] == "here":
            if self._isolation is not None and not self._can_isolate(event.node, message):
                return
            self._failed.pop(event.node, None)
            self._relaunch.pop(event.node, None)
            self._pause.pop(event.node, None)
            self._queue.up[event.node] = True
            self._down_since = None
        elif message["event"] == "ended" and message["job"] not in self._unattended:
            self._queue.ended(message["job"], message["status"], message["signalled"], now)

    def _can_isolate(self, node: str, message: Json) -> bool:
        """Note by which methods a node can isolate programs. All nodes must have one in common."""
        methods, why = message["methods"], message["refused"]
        common = [each for each in methods if all(each in others for others in self._isolation_methods.values())]
        if not common:
            self._exposed[node] = why
            self._failed[node] = why
            return False
        self._exposed.pop(node, None)
        self._isolation_methods[node] = common
        return True

    def _lose(self, name: str, why: str, sure: bool) -> None:
        """Take a node out. `sure`: nothing of its jobs is left there; else they get the time to notice and end."""
        now = clock.seconds()
        self._failed[name] = why or "its server has ended"
        pause = self._pause.get(name, _RELAUNCH_S[0])
        self._pause[name] = min(2 * pause, _RELAUNCH_S[1])
        self._relaunch[name] = time.monotonic() + pause
        reason = "the allocation's processes on node %s have ended (%s)" % (name, self._failed[name])
        for job in self._queue.node_down(name):
            self._unattended.setdefault(job.id, (now if sure else now + LOST_S, reason, sure))
        if not self._queue.up and self._down_since is None:
            self._down_since = time.monotonic()

    def _send(self, name: str, message: Json) -> None:
        self._agents.broadcast(dict(message, node=self._names.index(name)))

    def _relaunch_nodes(self, names: List[str]) -> None:
        """Try lost nodes again, unless the allocation is over."""
        for name in names:
            del self._relaunch[name]
        try:
            self._outer = examined(self._outer.environment)
        except ClusterError:
            if not self._queue.up:
                self._ended = True
            return
        except BatchError:
            pass  # the batch system does not answer: the launcher shows more
        self._launch(names)

    def _no_isolation(self) -> BatchError:
        assert self._isolation is not None
        why = "; ".join("%s: %s" % each for each in sorted(self._exposed.items()))
        wanted = "" if self._isolation.method == options.AUTO else " by %s" % self._isolation.method
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


def examined(environment: Any) -> Outer:
    """The batch job around this process. Raises BatchError if there is none, or it cannot be used."""
    return examine(environment, _read, lambda argv: _query(argv, environment))


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
