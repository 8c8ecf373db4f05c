"""The wrapper's loop: tells the machine what happens, and does what it wants."""

import os
import selectors
import sys
from typing import Any, Callable, Dict, List, Optional, Type

from koalapy_adapters import clock, messages
from koalapy_adapters.host import descendants, node_identity, signals
from koalapy_adapters.host.event_loop import EventPump, dispatch_ready
from koalapy_adapters.streams import FRAMES, frame_of_json
from koalapy_adapters.wrapper import events, failure_texts
from koalapy_adapters.wrapper.agent.group import AgentMessage, NodeAgents
from koalapy_adapters.wrapper.agent.node_streams import NodeStreams
from koalapy_adapters.wrapper.allocation import Allocation
from koalapy_adapters.wrapper.attempt import Attempt, write_hosts
from koalapy_adapters.wrapper.keys.key_space import KeySpace
from koalapy_adapters.wrapper.launcher_bridge import LauncherBridge
from koalapy_adapters.wrapper.liveness import between_words, silence
from koalapy_adapters.wrapper.machine import RUNNING, STARTED, Machine
from koalapy_adapters.wrapper.program.environment import EnvironmentCapture, SetupError
from koalapy_adapters.wrapper.program.executable import NoExecutable, locate
from koalapy_adapters.wrapper.relay.address import RelayAddress
from koalapy_adapters.wrapper.relay.client import Callbacks, RelayClient, Transports, jitter
from koalapy_adapters.wrapper.relay.contact import Contact, shut_out_after
from koalapy_adapters.wrapper.relay.file_client import FileRelayClient
from koalapy_adapters.wrapper.relay.handshake import Handshake
from koalapy_adapters.wrapper.shared_directory import Performed, Shared
from koalapy_adapters.wrapper.stream_routes import StreamRoutes

Json = Dict[str, Any]

_SOON = clock.SECOND // 50  # while something is swept


class Loop:
    """Runs until the machine leaves."""

    def __init__(self, attempt: Attempt, allocation: Optional[Allocation], private: str = "") -> None:
        """`private`: this node's private directory."""
        self._attempt = attempt
        self._allocation = allocation
        batch_id = allocation.batch_id if allocation else attempt.batch_id
        self._machine = Machine(attempt.settings(batch_id), clock.now())
        self._pump = EventPump(self._machine, lambda command: _DOING[type(command)](self, command))
        self._selector = selectors.DefaultSelector()
        self.nodes = NodeAgents(self._selector, self._on_agent)
        self._shared = Shared(attempt.directory, attempt.relay_file)
        self.relay = self._relay(batch_id)
        carries = private and attempt.program.get("sweep")
        self._bridge = LauncherBridge(private, self._selector, self.relay.send) if carries else None
        self._relay_addresses: List[str] = []
        self._connected_to = ""
        self._phase = STARTED
        self._asking: Dict[str, bool] = {}  # the nodes where somebody waits for a key or at a barrier
        self._offset: Optional[int] = None  # the relay's clock minus ours
        self._keys = KeySpace()
        self._own_keys: List[messages.PutKey] = []
        self.capturing = EnvironmentCapture(self._selector)
        self._environment: Dict[str, str] = {}
        self._executable = ""
        self._heartbeat_at: Optional[int] = clock.now()
        self._orphan_timeout = attempt.settings(batch_id).orphan_timeout
        self._speak_at = clock.now()
        self._sleep = clock.SleepWatch()
        self._own_streams = NodeStreams(self._selector, self.relay.send)
        self._streams = StreamRoutes(self.relay.send, self._send_frame)
        self._exit_status: Optional[int] = None

    def run(self) -> int:
        """The wrapper's exit status."""
        noticed = signals.pipe()
        self._selector.register(noticed, selectors.EVENT_READ, lambda: self._heed(noticed))
        self._selector.register(self._shared.readable, selectors.EVENT_READ, self._on_shared)
        self.reap()  # those that ended before anybody listened
        while self._exit_status is None:
            self._heed(noticed)  # before time counts: a turn that outlasted its time-out saw nothing of what came
            self._tick()
            dispatch_ready(self._selector, self._timeout())
        return self._exit_status

    def found_relay(self, place: RelayAddress) -> None:
        self._relay_addresses = place.addresses + place.last or self._relay_addresses
        self.relay.connect(clock.now(), place)

    def handle(self, event: Any) -> None:
        self._pump.feed(event)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = clock.now()
        self.relay.tick(now)
        if self._heartbeat_at is not None and now >= self._heartbeat_at:
            self._heartbeat_at = None  # the next is due after this one's answer
            self._shared.touch_heartbeat()
        if now >= self._speak_at:
            self._speak_at = now + between_words(self._orphan_timeout)
            self.nodes.speak()
        if self.nodes.sweeping:
            self.nodes.sweep(self.capturing.pids)
        self._own_streams.tick(now)
        self._pump.tick(now)

    def _timeout(self) -> Optional[float]:
        now = clock.now()
        times = [self._machine.next_wakeup(), self.relay.next_wakeup(), self._heartbeat_at, self._speak_at]
        times += [self._own_streams.next_wakeup(), now + _SOON if self.nodes.sweeping else None]
        if self._exit_status is not None:
            return 0
        due = min((time for time in times if time is not None), default=now + self._attempt.heartbeat)
        return max(0, due - now) / clock.SECOND

    def _heed(self, noticed: int) -> None:
        slept = self._sleep.look()
        if slept:
            self.handle(events.Resumed(slept))
        numbers = signals.read(noticed)
        if numbers:
            self._on_signals(numbers)

    def _on_signals(self, numbers: bytes) -> None:
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
            self._executable = self._locate()
        except NoExecutable as error:
            self.handle(events.PreparationFailed(error.error))
        else:
            self.handle(events.EnvironmentCaptured())

    def _locate(self) -> str:
        """A Launcher is this file and this Python; what it finds of the sweep's program, it says of each parameter."""
        if self._bridge is not None:
            return sys.executable
        return locate(self._attempt.program["executable"], self._attempt.work, self._environment)

    def _on_shared(self) -> None:
        for result in self._shared.results():
            if isinstance(result, RelayAddress):
                self.found_relay(result)
            elif isinstance(result, Performed):
                result.then(result.result)
            else:
                self._heartbeat_at = self._heartbeat_at or clock.now() + self._attempt.heartbeat
                if result is not None:
                    self.handle(result)

    def _on_agent(self, said: Any) -> None:
        if not isinstance(said, AgentMessage):
            self.handle(events.NodeLost(said.node, said.sure))
            return
        message = said.message
        if message["said"] == "stream":
            self._streams.from_node(said.node, frame_of_json(message["frame"]))
        elif message["said"] == "put":
            self._put(message["key"], message["value"])
        elif message["said"] == "asking":
            self._asking[said.node] = message["asking"]
            self._expect()
        else:
            if self._bridge is not None and message["said"] == "ended":
                self._bridge.drain()
            self.handle(_AGENT_EVENTS[message["said"]](self, said.node, message))

    def _ready(self, node: str, message: Json) -> Any:
        return events.NodeReady(node, node_identity.choose(message["sources"], self._connected_to, node))

    def _failed(self, node: str, message: Json) -> Any:
        return events.NodeFailed(
            node, failure_texts.cannot_start(node, message["what"], self._executable, message["why"])
        )

    def _on_entered(self, address: str, offset: int) -> None:
        self._connected_to, self._offset = address, offset
        self.handle(events.RelayEntered())
        for put in self._own_keys:
            self.relay.send(put)
        if self._streams.has_any:
            self._own_streams.resume(clock.now())
            self.nodes.broadcast({"do": "resume"})
        if self._bridge is not None:
            self._bridge.open()

    def _relay(self, batch_id: str) -> RelayClient:
        callbacks = Callbacks(
            self._on_entered, self._on_relay, self._on_relay_lost, self._shared.seek_relay, self._on_shut_out
        )
        patience = shut_out_after(self._attempt.settings(batch_id).barrier_timeout)
        ways = Transports(
            self._selector, FileRelayClient(self._attempt.directory, self._attempt.tag), self._shared.perform
        )
        handshake = Handshake(self._attempt.tag, self._attempt.token)
        return RelayClient(ways, Contact(handshake.open, jitter, patience), callbacks, clock.now)

    def _on_shut_out(self, addresses: List[str], port: int) -> None:
        self.handle(events.PreparationFailed(failure_texts.shut_out(os.uname().nodename, addresses, port)))

    def _on_relay_lost(self, contact_at: int) -> None:
        if self._bridge is not None:
            self._bridge.close()
        self.handle(events.RelayLost(contact_at))

    def _on_relay(self, message: Any) -> None:
        if isinstance(message, FRAMES):
            self._streams.from_relay(message, self._allocation.shares if self._allocation is not None else {})
        elif isinstance(message, messages.Release):
            self.handle(events.ReleaseReceived(message.first_rank, message.hosts))
        elif isinstance(message, messages.Stop):
            self.handle(events.StopReceived(message.force))
        elif isinstance(message, messages.ToLauncher):
            if self._bridge is not None:
                self._bridge.deliver(message.body)
        elif isinstance(message, messages.PutKey) and self._keys.put(message.key, message.value):
            self.nodes.broadcast({"do": "key", "key": message.key, "value": message.value})

    def _send_frame(self, node: str, frame: Any) -> bool:
        """Pass a frame of a byte stream to its node: the wrapper serves its own one, for that saves a hop."""
        if self._allocation is not None and node == self._allocation.names[0]:
            self._own_streams.received(frame)
            return True
        return self.nodes.send_frame(node, frame)

    def _put(self, key: str, value: str) -> None:
        """A key from one of our nodes: all of them, and the job's other components, shall know it."""
        if self._keys.put(key, value):
            put = messages.PutKey(self._attempt.tag, key, value)
            self._own_keys.append(put)
            self.nodes.broadcast({"do": "key", "key": key, "value": value})
            self.relay.send(put)

    # ---- what is to be done ------------------------------------------------------------------------------------------

    def _send_report(self, command: events.SendReport) -> None:
        self._phase = command.report.phase
        self._expect()
        self.relay.send(messages.ReportMessage(messages.to_json(command.report)))

    def _expect(self) -> None:
        """Until its program runs the component waits for its release, and then whoever asks the rendezvous may.

        A Launcher waits for parameters.
        """
        self.relay.expect(self._phase != RUNNING or any(self._asking.values()) or self._bridge is not None)

    def _prepare_nodes(self, command: events.PrepareNodes) -> None:
        assert self._allocation is not None
        message = {
            "attempt": self._attempt.directory,
            "executable": self._executable,
            "arguments": self._arguments(),
            "passes_on": self._bridge is not None,
            "environment": self._environment,
            "grace": clock.microseconds(self._attempt.program["grace"]),
            "silence": silence(self._orphan_timeout),
            "relay": self._relay_addresses,
        }
        self.nodes.prepare(message, self._allocation.shares)

    def _arguments(self) -> List[str]:
        if self._bridge is None:
            return list(self._attempt.program["arguments"])
        own = self._allocation.names[0] if self._allocation else os.uname().nodename
        return [*self._attempt.command[1:], "launcher", self._attempt.directory, self._bridge.path, own]

    def _release_nodes(self, command: events.ReleaseNodes) -> None:
        try:
            write_hosts(self._attempt, command.hosts)
        except OSError as error:
            self.handle(events.PreparationFailed(failure_texts.no_room("the hosts file", error)))
            return
        size = sum(processes for _, _, processes in command.hosts)
        self.nodes.broadcast({"do": "release", "first_rank": command.first_rank, "size": size})

    def _stop_nodes(self, command: events.StopNodes) -> None:
        self.capturing.end()
        self.nodes.broadcast({"do": "stop", "grace": command.grace})

    def _abandon_nodes(self, command: events.AbandonNodes) -> None:
        self.nodes.kill()

    def _write_record(self, command: events.WriteRecord) -> None:
        record = dict(messages.to_json(command.report), clock=clock.now(), offset=self._offset)
        self._shared.write_record(record, command.only_if_none)

    def _leave(self, command: events.Leave) -> None:
        self._own_streams.close()
        self._exit_status = command.exit_status


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
_DOING: Dict[Type[Any], Callable[[Loop, Any], None]] = {
    events.SendReport: Loop._send_report,
    events.PrepareNodes: Loop._prepare_nodes,
    events.ReleaseNodes: Loop._release_nodes,
    events.StopNodes: Loop._stop_nodes,
    events.AbandonNodes: Loop._abandon_nodes,
    events.WriteRecord: Loop._write_record,
    events.Leave: Loop._leave,
}
