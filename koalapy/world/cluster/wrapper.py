"""A wrapper of the simulated world: the real start lock and session, over simulated files, nodes and programs."""

from collections import deque
from collections.abc import Callable
from typing import Any

from koalapy_adapters.batch.protocol import Host
from koalapy_adapters.errors import BatchError
from koalapy_adapters.host.event_loop import CommandQueue
from koalapy_adapters.wrapper import events, failure_texts, session, shared_directory, start
from koalapy_adapters.wrapper.allocation import as_failure
from koalapy_adapters.wrapper.attempt import Attempt, read_attempt
from koalapy_adapters.wrapper.liveness import silence
from koalapy_adapters.wrapper.machine import AT_BARRIER
from koalapy_adapters.wrapper.process_layout import divide
from koalapy_adapters.wrapper.relay import contact
from koalapy_adapters.wrapper.relay.address import read_relay_address
from koalapy_adapters.wrapper.relay.file_client import FileRelayClient
from koalapy_adapters.wrapper.relay.handshake import Handshake
from koalapy_adapters.wrapper.relay.transport import TransportListener
from koalapy_adapters.wrapper.relay_line import RelayLine
from koalapy_adapters.wrapper.session import WrapperSession
from koalapy_adapters.wrapper.stream_routes import StreamRoutes

from koalapy.model.lease import lease_of_cluster
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import ScheduledCall
from koalapy.world.behaviour import AT_HOME, program_plan_of
from koalapy.world.cluster.agent import SimAgent
from koalapy.world.cluster.agents import LINE, SimAgents
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.files import Mount
from koalapy.world.cluster.launcher import SimLauncher
from koalapy.world.cluster.node_streams import SimNodeStreams
from koalapy.world.cluster.nodes import SimNode, cluster_of
from koalapy.world.cluster.sockets import SimSockets
from koalapy.world.processes import Process
from koalapy.world.random_streams import between

_BOOT = Duration(20 * MILLISECOND), SECOND  # from the batch script to the wrapper's first step
_LOGIN = Duration(50 * MILLISECOND), Duration(2 * SECOND)  # for the login shell's environment
_CLEAN_UP = Duration(50 * MILLISECOND), Duration(500 * MILLISECOND)
Act = Callable[[], Any]
Then = Callable[[Any], None]  # with what came of it
_PATIENCE, _PAUSE = Duration(round(start.PATIENCE_S * SECOND)), Duration(round(start.PAUSE_S * SECOND))


class SimWrapper(Process):
    """One start of a batch job of koalapy, as the job's body. Its agents run the program."""

    def __init__(self, environment: Environment, job: SimBatchJob, directory: str) -> None:
        super().__init__(environment.agenda, [environment.wrapper_crash_point])
        self.environment, self.job, self.directory = environment, job, directory
        self.name = f"{job.id}.{job.restarts}"
        self.tag = directory.rsplit("/", 1)[1]
        self.node: SimNode = job.nodes[0][0]
        self._hosts = [Host(node.name, processors) for node, processors in job.nodes]
        self._rng = environment.rng(f"wrapper/{self.name}")
        process = f"{self.node.name}.{self.name}"
        self._mount = Mount(environment.shared, process, self.step, lambda: self.node.reachable, self.pause)
        self._skew = self.node.skew  # its clock is anchored when it starts, and never jumps
        self._own = start.own_claim(self.node.name, job.restarts, f"{environment.cluster}-{self.name}")
        self._agents = SimAgents(self, self.node)
        self._attempt: Attempt
        self._session: WrapperSession
        self._begun = False  # the session
        self._queue = CommandQueue(self._perform)
        self._relay: RelayLine
        self._sockets: SimSockets
        self._launcher: SimLauncher | None = None
        self._streams = StreamRoutes(self._to_relay, self._send_frame)
        self._node_streams: dict[str, SimNodeStreams] = {}
        self._shares: dict[str, list[int]] = {}  # by node its processes and its first rank
        self._timer: ScheduledCall | None = None
        self._files = FileWork(self, lambda: environment.file_latency(self._rng))
        self.exit_status: int | None = None
        self.on_death(self._died)
        self.after(between(self._rng, *_BOOT), lambda: self._patiently(self._read_component, self._claim))

    # ---- as the job's body

    def terminate(self) -> None:
        """Send SIGTERM to the batch script, which is the wrapper itself."""
        if not self._begun:
            self.kill()
        else:
            self.run(lambda: self.handle(events.Signalled()))

    def suspend(self) -> None:
        """Send SIGTSTP to the batch script. It is ignored before there is a program."""
        if self._begun and self.alive:
            self.run(lambda: self.handle(events.SuspendRequested()))

    def resume(self) -> None:
        """Send SIGCONT to the batch script."""
        if self._begun and self.alive:
            self.run(lambda: self.handle(events.Resumed()))

    def kill_on(self, node: SimNode) -> None:
        if node is self.node:
            self.kill()
        self._agents.kill_on(node)

    @property
    def quiet(self) -> bool:
        """Return whether none of its processes is left on any node."""
        return not self.alive and not self._agents.running

    @property
    def seeks_contact(self) -> bool:
        """Return whether the wrapper should be in contact with its relay: it works, and its node reaches the head."""
        return self.alive and self._begun and self.node.reachable and not self._session.has_left

    @property
    def is_in_contact(self) -> bool:
        return self._begun and self._session.is_in_contact

    # ---- the start lock

    def clock(self) -> int:
        return self.agenda.now + self._skew

    def _patiently(self, act: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self._files.patiently(act, then, lambda: self._exit(1))

    def _read_component(self) -> Any:
        return start.read_component(self.directory, self._mount)

    def _claim(self, component: Any) -> None:
        self._patiently(
            lambda: start.decide(self.directory, self._own, self._mount),
            lambda verdict: self._begin(verdict, component),
        )

    # ---- work

    def _begin(self, verdict: str, component: Any) -> None:
        if verdict == start.LEAVE:
            self._exit(0)
            return
        self._attempt = read_attempt(self.directory, component, self._mount)
        self._connect(for_launcher=verdict == start.RUN and bool(self._attempt.program.get("sweep")))
        self._begun = True
        self._do(self._session.found(self.clock(), read_relay_address(self._attempt.relay_file, self._mount)))
        if verdict == start.REPORT:
            self.handle(events.ClaimedBefore(shared_directory.read_record(self.directory, self._mount)))
        else:
            self.environment.observer.took_start_lock(self.tag, self.name)
            self._supervise()

    def _connect(self, for_launcher: bool) -> None:
        attempt, rng, clock = self._attempt, self.environment.rng(f"guest/{self.name}"), self.clock
        settings, open_with = attempt.settings(self.job.id), Handshake(self.tag, attempt.token, self._mount).open
        self._barrier_timeout, self._orphan_timeout = settings.barrier_timeout, settings.orphan_timeout
        self._session = WrapperSession(
            clock(), settings, open_with, rng.random, attempt.heartbeat, self.node.name, for_launcher
        )

        def sockets_of(listener: TransportListener) -> SimSockets:
            self._sockets = SimSockets(self.environment, self, self.node, rng, listener)
            return self._sockets

        box = FileRelayClient(self.directory, self.tag, self._mount)
        self._relay = RelayLine(self._session, self._do, clock, sockets_of, box, self._in_turn)

    def _supervise(self) -> None:
        program = self._attempt.program
        plan = program_plan_of(program)
        nodes: list[events.Node] = []
        try:
            counts = divide(self._hosts, program["launch"], program["processors"], program["threads"])
            nodes = [events.Node(host.name, count) for host, count in zip(self._hosts, counts, strict=True)]
        except BatchError as error:
            self.handle(events.PreparationFailed(as_failure(error)))
        first = 0
        for (node, _), each in zip(self.job.nodes, nodes, strict=False):
            if each.processes:
                agent = self._agent(node, each.processes)
                self._agents.add(agent)
                self._node_streams[node.name] = self._streams_of(agent)
                self._shares[node.name] = [each.processes, first]
                first += each.processes
        self.handle(events.Claimed(nodes))
        failed = failure_texts.no_executable(program["executable"], "does not exist", "Stage it in.")
        away = program["executable"] == AT_HOME and lease_of_cluster(self.environment.cluster) is not None
        found = plan.found and not away
        captured = events.EnvironmentCaptured() if found else events.PreparationFailed(failed)
        self.after(between(self._rng, *_LOGIN), lambda: self.handle(captured))

    def _agent(self, node: SimNode, processes: int) -> SimAgent:
        if not self._attempt.program.get("sweep"):
            return SimAgent(self.environment, node, processes, self.name, self.directory, self._receive_from_agent)
        self._launcher = SimLauncher(
            self.environment, node, self.name, self._attempt, self._receive_from_agent, self._from_launcher
        )
        return self._launcher

    def _from_launcher(self, message: Any) -> None:
        if self.alive:
            self.run(lambda: self._do(self._session.send(message)))

    def handle(self, event: Any) -> None:
        self._do(self._session.handle(self.clock(), event))

    def _do(self, commands: list[Any]) -> None:
        """Perform commands; events that follow come later."""
        self._observe_barrier()
        self._queue.add(commands)
        self._set_timer()

    def _observe_barrier(self) -> None:
        report = self._session.report
        came = report.at_barrier_at
        if report.phase == AT_BARRIER and came is not None and not report.ending:
            left = came + self._barrier_timeout - self.clock()
            self.environment.observer.reached_barrier(self.tag, self.name, Instant(self.agenda.now + left))

    def _set_timer(self) -> None:
        self.agenda.cancel(self._timer)
        if not self.alive:
            return
        dues = [due for due in (self._session.next_wakeup(), self._relay.next_wakeup()) if due is not None]
        if dues:
            self._timer = self.after(Duration(max(0, min(dues) - self.clock())), self._tick)

    def _tick(self) -> None:
        self._do(self._session.tick(self.clock()))
        self._relay.tick(self.clock())
        self._set_timer()

    def _receive_from_agent(self, event: Any) -> None:
        self.after(LINE, lambda: self.handle(event))

    def stall(self, duration: Duration) -> None:
        """Let nothing pass to or from the relay's port for a while."""
        if self._begun:
            self._sockets.stall(duration)

    # ---- the session's commands

    def _perform(self, command: Any) -> None:
        self.step()
        perform = _PERFORM.get(type(command))
        if perform is None:
            self._relay.perform(command)
        else:
            perform(self, command)

    def _in_turn(self, act: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Work on files, one thing after the other."""

        def done(result: Any) -> None:
            then(result)
            self._set_timer()

        self._files.in_turn(act, done)

    def _seek(self, command: contact.Seek) -> None:
        self._in_turn(
            lambda: read_relay_address(self._attempt.relay_file, self._mount),
            lambda place: self._do(self._session.found(self.clock(), place)),
        )

    def _expect(self, command: session.Expect) -> None:
        self._relay.files.expect(command.awaited)

    def _touch(self, command: session.Touch) -> None:
        self._in_turn(
            lambda: shared_directory.touch_heartbeat(self.directory, self._mount),
            lambda reached: self._do(self._session.touched(self.clock(), reached)),
        )

    def _ping_agents(self, command: session.PingAgents) -> None:
        self._agents.ping()

    def _keep_record(self, command: session.KeepRecord) -> None:
        record, only_if_none = command
        self._in_turn(
            lambda: shared_directory.write_record(self.directory, record, only_if_none, self._mount), self.handle
        )

    def _pass_frame(self, command: session.PassFrame) -> None:
        self._streams.from_relay(command.frame, self._shares)

    def _to_relay(self, message: Any) -> None:
        if self.alive:
            self.run(lambda: self._do(self._session.send(message)))

    def _send_frame(self, node: str, frame: Any) -> bool:
        """Pass a frame of a byte stream to its node. It is lost where the node cannot be reached."""
        if node == self.node.name:
            self._node_streams[node].received(frame)
            return True
        return self._agents.pass_to(node, lambda: self._node_streams[node].received(frame))

    def _resume_streams(self, command: session.ResumeStreams) -> None:
        for node, streams in self._node_streams.items():
            if node == self.node.name:
                streams.resume()
            else:
                self._agents.pass_to(node, streams.resume)

    def _streams_of(self, agent: SimAgent) -> SimNodeStreams:
        node = agent.node.name

        def send(frame: Any) -> None:
            if node == self.node.name:
                self._streams.from_node(node, frame)
            else:
                self._agents.pass_to(node, lambda: self._streams.from_node(node, frame))

        return SimNodeStreams(self.environment, self, self.clock, send, lambda: agent.running)

    def _open_bridge(self, command: session.OpenBridge) -> None:
        if self._launcher is not None:
            self._launcher.connected()

    def _close_bridge(self, command: session.CloseBridge) -> None:
        if self._launcher is not None:
            self._launcher.disconnected()

    def _to_launcher(self, command: session.ToLauncher) -> None:
        if self._launcher is not None:
            self._launcher.receive(command.body)

    def _prepare_nodes(self, command: events.PrepareNodes) -> None:
        plan, grace = program_plan_of(self._attempt.program), Duration(round(self._attempt.program["grace"] * SECOND))
        self._agents.prepare(self.tag, plan, grace, Duration(silence(self._orphan_timeout)))

    def _release_nodes(self, command: events.ReleaseNodes) -> None:
        self.environment.observer.left_barrier(self.tag, self.name)
        try:
            self._mount.write(f"{self.directory}/hosts", b"")
        except OSError as error:
            self.handle(events.PreparationFailed(failure_texts.no_room("the hosts file", error)))
            return
        self._agents.release(len({cluster_of(address) for _, address, _ in command.hosts}))

    def _stop_nodes(self, command: events.StopNodes) -> None:
        self.environment.observer.left_barrier(self.tag, self.name)
        self._agents.stop(Duration(command.grace))

    def _suspend_nodes(self, command: events.SuspendNodes) -> None:
        self._agents.suspend(True)

    def _resume_nodes(self, command: events.ResumeNodes) -> None:
        self._agents.suspend(False)

    def _abandon_nodes(self, command: events.AbandonNodes) -> None:
        self._agents.abandon(lambda node, sure: self.handle(events.NodeLost(node, sure)))

    def _leave(self, command: events.Leave) -> None:
        """Leave with the agents; the relay has a moment to read the last messages."""
        if self._relay.by_files:
            self._relay.files.leave()
        self._close()
        self.after(between(self._rng, *_CLEAN_UP), lambda: self._exit(command.exit_status))

    def _close(self) -> None:
        """Close the connection to the relay, which reads all sent messages first."""
        self._relay.files.drop()
        self._sockets.drop()

    # ---- end

    def _exit(self, exit_status: int) -> None:
        self.exit_status = exit_status
        self.kill()

    def _died(self) -> None:
        """Close the process's connections, as the kernel does; agents and batch system notice its end."""
        self.environment.observer.left_barrier(self.tag, self.name)
        for streams in self._node_streams.values():
            streams.lose()
        if self._begun:
            self._close()
        self.exit_status = 137 if self.exit_status is None else self.exit_status
        self._agents.lose_wrapper()
        if self.node.reachable:
            self.environment.batch.exited(self.job, self, self.exit_status)


_PERFORM: dict[type[Any], Callable[[SimWrapper, Any], None]] = {
    contact.Seek: SimWrapper._seek,
    session.Expect: SimWrapper._expect,
    session.Touch: SimWrapper._touch,
    session.PingAgents: SimWrapper._ping_agents,
    session.KeepRecord: SimWrapper._keep_record,
    session.BroadcastKey: lambda wrapper, command: None,  # no simulated program asks for keys
    session.PassFrame: SimWrapper._pass_frame,
    session.ResumeStreams: SimWrapper._resume_streams,
    session.OpenBridge: SimWrapper._open_bridge,
    session.CloseBridge: SimWrapper._close_bridge,
    session.ToLauncher: SimWrapper._to_launcher,
    events.PrepareNodes: SimWrapper._prepare_nodes,
    events.ReleaseNodes: SimWrapper._release_nodes,
    events.StopNodes: SimWrapper._stop_nodes,
    events.SuspendNodes: SimWrapper._suspend_nodes,
    events.ResumeNodes: SimWrapper._resume_nodes,
    events.AbandonNodes: SimWrapper._abandon_nodes,
    events.Leave: SimWrapper._leave,
}


class FileWork:
    """The file accesses of one process. `latency` returns the duration of the next access."""

    def __init__(self, process: Process, latency: Callable[[], Duration]) -> None:
        self._process, self._latency = process, latency
        self._tasks: deque[tuple[Act, Then]] = deque()

    def in_turn(self, act: Act, then: Then) -> None:
        """Do one thing after the other."""
        self._tasks.append((act, then))
        if len(self._tasks) == 1:
            self._next()

    def patiently(self, act: Act, then: Then, give_up: Callable[[], None]) -> None:
        """Repeat an operation until the process gives up, as `start` does. A ValueError is not repeated."""
        self._try(act, then, give_up, Instant(self._process.agenda.now + _PATIENCE))

    def _next(self) -> None:
        self._process.after(self._latency(), self._perform)

    def _perform(self) -> None:
        act, then = self._tasks[0]
        result = act()
        self._tasks.popleft()
        if self._tasks:
            self._next()
        then(result)

    def _try(self, act: Act, then: Then, give_up: Callable[[], None], until: Instant) -> None:
        try:
            result = act()
        except (OSError, ValueError) as error:
            if self._process.agenda.now >= until or isinstance(error, ValueError):
                give_up()
            else:
                self._process.after(_PAUSE, lambda: self._try(act, then, give_up, until))
            return
        self._process.after(self._latency(), lambda: then(result))
