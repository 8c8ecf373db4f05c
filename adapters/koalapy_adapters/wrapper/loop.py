"""The wrapper's loop: feeds the session, and performs its commands on sockets, files and agents."""

import os
import selectors
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Type

from koalapy_adapters import clock
from koalapy_adapters.host import descendants, node_identity, signals
from koalapy_adapters.host.event_loop import CommandQueue, dispatch_ready
from koalapy_adapters.messages.streams import OpenStream
from koalapy_adapters.streams import frame_of_json
from koalapy_adapters.wrapper import events, failure_texts, session
from koalapy_adapters.wrapper.agent.group import AgentMessage, NodeAgents
from koalapy_adapters.wrapper.agent.node_streams import NodeStreams
from koalapy_adapters.wrapper.allocation import Allocation
from koalapy_adapters.wrapper.attempt import Attempt, hosts_text, write_hosts
from koalapy_adapters.wrapper.launcher_bridge import LauncherBridge
from koalapy_adapters.wrapper.liveness import silence
from koalapy_adapters.wrapper.program.environment import EnvironmentCapture, SetupError
from koalapy_adapters.wrapper.program.executable import NoExecutable, locate
from koalapy_adapters.wrapper.relay import contact
from koalapy_adapters.wrapper.relay.address import RelayAddress
from koalapy_adapters.wrapper.relay.file_client import FileRelayClient
from koalapy_adapters.wrapper.relay.handshake import Handshake
from koalapy_adapters.wrapper.relay.tcp_transport import TcpTransport
from koalapy_adapters.wrapper.relay.transport import TransportListener
from koalapy_adapters.wrapper.relay_line import RelayLine
from koalapy_adapters.wrapper.session import WrapperSession
from koalapy_adapters.wrapper.shared_directory import Performed, Shared, Touched
from koalapy_adapters.wrapper.stream_routes import StreamRoutes

if TYPE_CHECKING:
    from koalapy_adapters.isolation.sandbox import Sandbox

Json = Dict[str, Any]

_SOON = clock.SECOND // 50  # while something is swept


class Loop:
    """Runs until the session leaves."""

    def __init__(
        self, attempt: Attempt, allocation: Optional[Allocation], private: str = "", sandbox: Optional["Sandbox"] = None
    ) -> None:
        """`private`: this node's private directory. `sandbox`: set if the program is isolated."""
        self._sandbox = sandbox
        self._attempt = attempt
        self._allocation = allocation
        settings = attempt.settings(allocation.batch_id if allocation else attempt.batch_id)
        self._selector = selectors.DefaultSelector()
        self.nodes = NodeAgents(self._selector, self._on_agent)
        self._shared = Shared(attempt.directory, attempt.relay_file)
        open_with = Handshake(attempt.tag, attempt.token).open
        carries = bool(private and attempt.program.get("sweep"))
        host = os.uname().nodename
        self._session = WrapperSession(clock.now(), settings, open_with, _jitter, attempt.heartbeat, host, carries)
        self._queue = CommandQueue(self._perform)
        box = FileRelayClient(attempt.directory, attempt.tag)
        self._relay = RelayLine(self._session, self._queue.add, clock.now, self._connect, box, self._shared.perform)
        self._bridge = LauncherBridge(private, self._selector, self._to_relay) if carries else None
        self.capturing = EnvironmentCapture(self._selector)
        self._environment: Dict[str, str] = {}
        self._executable = ""
        self._arguments: List[str] = []
        self._orphan_timeout = settings.orphan_timeout
        self._sleep = clock.SleepWatch()
        self._own_streams = NodeStreams(self._selector, self._to_relay)
        self._streams = StreamRoutes(self._to_relay, self._send_frame)
        self._exit_status: Optional[int] = None

    def _connect(self, listener: TransportListener) -> TcpTransport:
        self._sockets = TcpTransport(self._selector, listener)
        return self._sockets

    def run(self) -> int:
        """Run until the end. Returns the wrapper's exit status."""
        own_queue = node_identity.ALLOCATION_JOB in os.environ  # which suspends by SIGTSTP; others stop the wrapper too
        noticed = signals.pipe((*signals.NOTICED, signals.SUSPENDING) if own_queue else signals.NOTICED)
        self._selector.register(noticed, selectors.EVENT_READ, lambda: self._handle_signals(noticed))
        self._selector.register(self._shared.readable, selectors.EVENT_READ, self._on_shared)
        self.reap()  # those that ended before anybody listened
        while self._exit_status is None:
            self._handle_signals(
                noticed
            )  # before time counts: a turn that outlasted its time-out saw nothing of what came
            self._tick()
            dispatch_ready(self._selector, self._timeout())
        return self._exit_status

    def found_relay(self, place: RelayAddress) -> None:
        self._queue.add(self._session.found(clock.now(), place))

    def handle(self, event: Any) -> None:
        self._queue.add(self._session.handle(clock.now(), event))

    def close_relay(self, linger: float) -> None:
        """Let the relay have what was sent, and see that we leave; wait for it no longer than `linger` seconds."""
        if not self._relay.by_files:
            self._sockets.leave(linger)
            return
        left = threading.Event()
        self._relay.files.leave(left.set)
        left.wait(linger)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = clock.now()
        self._queue.add(self._session.tick(now))
        self._relay.tick(now)
        if self.nodes.sweeping:
            self.nodes.sweep(self.capturing.pids)
        self._own_streams.tick(now)

    def _timeout(self) -> Optional[float]:
        now = clock.now()
        times = [self._session.next_wakeup(), self._relay.next_wakeup()]
        times += [self._own_streams.next_wakeup(), now + _SOON if self.nodes.sweeping else None]
        if self._exit_status is not None:
            return 0
        due = min((time for time in times if time is not None), default=now + self._attempt.heartbeat)
        return max(0, due - now) / clock.SECOND

    def _handle_signals(self, noticed: int) -> None:
        slept = self._sleep.look()
        if slept:
            self.handle(events.Resumed(slept))
        numbers = signals.read(noticed)
        if numbers:
            self._on_signals(numbers)

    def _on_signals(self, numbers: bytes) -> None:
        if signals.suspend_requested(numbers):
            self.handle(events.SuspendRequested())
        if signals.resumed(numbers):
            self.handle(events.Resumed())
        if signals.stop_requested(numbers):
            self.handle(self._signalled())
        self.reap()

    def _signalled(self) -> events.Signalled:
        stopped = self._allocation.why_stopped() if self._allocation else None
        return events.Signalled(failure_texts.stopped(stopped) if stopped else None)

    def reap(self) -> None:
        """Notice the children that ended."""
        for pid, status in descendants.reap():
            if pid in self.capturing.pids:
                self._captured(status)
            else:
                self.nodes.child_ended(pid)

    def _captured(self, status: int) -> None:
        try:
            environment = self.capturing.finish(status)
        except SetupError as error:
            self.handle(
                events.PreparationFailed(failure_texts.setup_failed(str(error), self._attempt.program["setup"] != []))
            )
        else:
            self.captured(environment)

    def captured(self, environment: Dict[str, str]) -> None:
        """Take the environment of the login shell."""
        self._environment = dict(environment, **self._attempt.variables())
        try:
            self._executable, self._arguments = self._locate()
        except NoExecutable as error:
            self.handle(events.PreparationFailed(error.error))
        except OSError as error:
            self.handle(events.PreparationFailed(failure_texts.no_room("the files for mpirun", error)))
        else:
            self.handle(events.EnvironmentCaptured())

    def _locate(self) -> Tuple[str, List[str]]:
        """Return what the agents start, and its arguments: the program, its mpirun, or the Launcher.

        The Launcher is this file and this Python. It checks the sweep's program itself. Raises NoExecutable, OSError.
        """
        attempt = self._attempt
        if self._bridge is not None:
            own = self._allocation.names[0] if self._allocation else os.uname().nodename
            return sys.executable, [*attempt.command[1:], "launcher", attempt.directory, self._bridge.path, own]
        shows = self._sandbox.shows if self._sandbox is not None else None
        path = locate(attempt.program["executable"], attempt.work, self._environment, shows)
        if attempt.is_mpi and self._sandbox is not None:
            raise NoExecutable(failure_texts.mpi_not_isolated())
        if attempt.is_mpi and self._allocation is not None:
            return self._prepare_mpirun(self._allocation, path)
        return path, list(attempt.program["arguments"])

    def _prepare_mpirun(self, allocation: Allocation, path: str) -> Tuple[str, List[str]]:
        """Find the mpirun that starts the program at `path`, and write its files. Raises NoExecutable or OSError."""
        from koalapy_adapters.wrapper.program import mpi  # late: few components have it

        attempt = self._attempt
        mpirun = mpi.find(self._environment, attempt.program.get("mpi"))
        program = [path, *attempt.program["arguments"]]
        arguments = mpi.prepare(mpirun, attempt.directory, attempt.command, allocation.nodes, program)
        self._environment.update(mpi.variables(mpirun, attempt.directory, self._environment))
        return mpirun.path, arguments

    def _on_shared(self) -> None:
        for result in self._shared.results():
            if isinstance(result, RelayAddress):
                self.found_relay(result)
            elif isinstance(result, Performed):
                result.then(result.result)
            elif isinstance(result, Touched):
                self._queue.add(self._session.touched(clock.now(), result.reached))
            else:
                self.handle(result)

    def _on_agent(self, report: Any) -> None:
        if not isinstance(report, AgentMessage):
            self.handle(events.NodeLost(report.node, report.sure))
            return
        message = report.message
        if message["event"] == "stream":
            self._streams.from_node(report.node, frame_of_json(message["frame"]))
        elif message["event"] == "put":
            self._queue.add(self._session.put(message["key"], message["value"]))
        elif message["event"] == "asking":
            self._queue.add(self._session.asking(report.node, message["asking"]))
        elif message["event"] == "start":
            self._pass_start(report.node, message)
        elif message["event"] == "start_ended":
            self.nodes.send_to(message["to"], dict(message, do="start_ended"))
        else:
            if self._bridge is not None and message["event"] == "ended":
                self._bridge.drain()
            self.handle(_AGENT_EVENTS[message["event"]](self, report.node, message))

    def _pass_start(self, node: str, message: Json) -> None:
        """Pass on what the mpirun on this node asks another one to start."""
        names = self._allocation.shares if self._allocation is not None else {}
        index = node_identity.find(list(names), [message["host"]])
        wanted = {"do": "start", "from": node, "number": message["number"], "command": message["command"]}
        if index is None or not self.nodes.send_to(list(names)[index], wanted):
            error = "No node of this component is called %.100s." % message["host"]
            self.nodes.send_to(node, {"do": "start_ended", "number": message["number"], "error": error})

    def _ready(self, node: str, message: Json) -> Any:
        return events.NodeReady(node, node_identity.choose(message["sources"], self._session.connected_to, node))

    def _failed(self, node: str, message: Json) -> Any:
        return events.NodeFailed(
            node, failure_texts.cannot_start(node, message["what"], self._executable, message["why"])
        )

    def _to_relay(self, message: Any) -> None:
        self._queue.add(self._session.send(message))

    # ---- what is to be done ------------------------------------------------------------------------------------------

    def _perform(self, command: Any) -> None:
        perform = _PERFORM.get(type(command))
        if perform is None:
            self._relay.perform(command)
        else:
            perform(self, command)

    def _seek(self, command: contact.Seek) -> None:
        self._shared.seek_relay()

    def _expect(self, command: session.Expect) -> None:
        self._relay.files.expect(command.awaited)

    def _touch(self, command: session.Touch) -> None:
        self._shared.touch_heartbeat()

    def _ping_agents(self, command: session.PingAgents) -> None:
        self.nodes.ping()

    def _keep_record(self, command: session.KeepRecord) -> None:
        self._shared.write_record(command.record, command.only_if_none)

    def _broadcast_key(self, command: session.BroadcastKey) -> None:
        self.nodes.broadcast({"do": "key", "key": command.key, "value": command.value})

    def _pass_frame(self, command: session.PassFrame) -> None:
        self._streams.from_relay(command.frame, self._allocation.shares if self._allocation is not None else {})

    def _send_frame(self, node: str, frame: Any) -> bool:
        """Pass a frame of a byte stream to its node.

        The wrapper serves the ports of its own node, for that saves a hop. Its agent runs commands there, since the
        agent ends all that is below it, and has the terminal.
        """
        if self._allocation is not None and node == self._allocation.names[0]:
            opens = isinstance(frame, OpenStream) and not frame.command and not frame.terminal
            if opens or self._own_streams.has(frame.stream):
                self._own_streams.received(frame)
                return True
        return self.nodes.send_frame(node, frame)

    def _resume_streams(self, command: session.ResumeStreams) -> None:
        self._own_streams.resume(clock.now())
        self.nodes.broadcast({"do": "resume"})

    def _open_bridge(self, command: session.OpenBridge) -> None:
        assert self._bridge is not None
        self._bridge.open()

    def _close_bridge(self, command: session.CloseBridge) -> None:
        assert self._bridge is not None
        self._bridge.close()

    def _to_launcher(self, command: session.ToLauncher) -> None:
        assert self._bridge is not None
        self._bridge.deliver(command.body)

    def _prepare_nodes(self, command: events.PrepareNodes) -> None:
        assert self._allocation is not None
        message = {
            "attempt": self._attempt.directory,
            "executable": self._executable,
            "arguments": self._arguments,
            "passes_on": self._bridge is not None,
            "mpi": self._attempt.is_mpi,
            "terminal": self._attempt.program.get("terminal", ""),
            "environment": self._environment,
            "grace": clock.microseconds(self._attempt.program["grace"]),
            "silence": silence(self._orphan_timeout),
            "relay": self._session.relay_addresses,
            "own": self._attempt.command,
        }
        first = self._allocation.names[0]
        self.nodes.prepare(message, {first: [1, 0]} if self._attempt.is_mpi else self._allocation.shares)

    def _release_nodes(self, command: events.ReleaseNodes) -> None:
        hosts = hosts_text(command.hosts)
        try:
            write_hosts(self._attempt, hosts)
        except OSError as error:
            self.handle(events.PreparationFailed(failure_texts.no_room("the hosts file", error)))
            return
        size = sum(processes for _, _, processes in command.hosts)
        message = {"do": "release", "first_rank": command.first_rank, "size": size}
        self.nodes.broadcast(message if self._sandbox is None else dict(message, hosts=hosts))

    def _stop_nodes(self, command: events.StopNodes) -> None:
        self.capturing.end()
        self.nodes.broadcast({"do": "stop", "grace": command.grace})

    def _suspend_nodes(self, command: events.SuspendNodes) -> None:
        self.nodes.broadcast({"do": "suspend"})

    def _resume_nodes(self, command: events.ResumeNodes) -> None:
        self.nodes.broadcast({"do": "continue"})

    def _abandon_nodes(self, command: events.AbandonNodes) -> None:
        self.nodes.kill()

    def _leave(self, command: events.Leave) -> None:
        self._own_streams.close()
        self._exit_status = command.exit_status


def _jitter() -> float:
    """Return a random number from 0 to 1."""
    return int.from_bytes(os.urandom(2), "big") / 65536


_AGENT_EVENTS: Dict[str, Callable[[Loop, str, Json], Any]] = {
    "ready": Loop._ready,
    "failed": Loop._failed,
    "started": lambda loop, node, message: events.NodeStarted(node, message["at"]),
    "ended": lambda loop, node, message: events.ProcessEnded(
        node, message["at"], message["exit_status"], message["signal"], message.get("rank"), message.get("words", "")
    ),
    "emptied": lambda loop, node, message: events.NodeEmptied(node),
    "signalled": lambda loop, node, message: loop._signalled(),
}
_PERFORM: Dict[Type[Any], Callable[[Loop, Any], None]] = {
    contact.Seek: Loop._seek,
    session.Expect: Loop._expect,
    session.Touch: Loop._touch,
    session.PingAgents: Loop._ping_agents,
    session.KeepRecord: Loop._keep_record,
    session.BroadcastKey: Loop._broadcast_key,
    session.PassFrame: Loop._pass_frame,
    session.ResumeStreams: Loop._resume_streams,
    session.OpenBridge: Loop._open_bridge,
    session.CloseBridge: Loop._close_bridge,
    session.ToLauncher: Loop._to_launcher,
    events.PrepareNodes: Loop._prepare_nodes,
    events.ReleaseNodes: Loop._release_nodes,
    events.StopNodes: Loop._stop_nodes,
    events.SuspendNodes: Loop._suspend_nodes,
    events.ResumeNodes: Loop._resume_nodes,
    events.AbandonNodes: Loop._abandon_nodes,
    events.Leave: Loop._leave,
}
