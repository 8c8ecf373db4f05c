"""A wrapper of the simulated world: the real start lock and machine, over simulated files, nodes and programs."""

from collections import deque
from collections.abc import Callable
from typing import Any

from koalapy_adapters import messages
from koalapy_adapters.batch.protocol import Host
from koalapy_adapters.errors import BatchError
from koalapy_adapters.wrapper import events, failure_texts, shared_directory, start
from koalapy_adapters.wrapper.allocation import as_failure
from koalapy_adapters.wrapper.attempt import Attempt, read_attempt
from koalapy_adapters.wrapper.machine import AT_BARRIER, RUNNING, Machine
from koalapy_adapters.wrapper.process_layout import divide
from koalapy_adapters.wrapper.relay.address import read_relay_address
from koalapy_adapters.wrapper.relay.contact import shut_out_after
from koalapy_adapters.wrapper.relay.file_client import FileRelayClient
from koalapy_adapters.wrapper.relay.handshake import Handshake

from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import ScheduledCall
from koalapy.world.behaviour import program_plan_of
from koalapy.world.cluster.agent import SimAgent
from koalapy.world.cluster.agents import LINE, SimAgents
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.files import Mount
from koalapy.world.cluster.filework import FileWork
from koalapy.world.cluster.launcher import SimLauncher
from koalapy.world.cluster.nodes import SimNode, cluster_of
from koalapy.world.cluster.relay_client import RelayClient
from koalapy.world.processes import Process
from koalapy.world.random_streams import between

_BOOT = Duration(20 * MILLISECOND), SECOND  # from the batch script to the wrapper's first step
_LOGIN = Duration(50 * MILLISECOND), Duration(2 * SECOND)  # for the login shell's environment
_CLEAN_UP = Duration(50 * MILLISECOND), Duration(500 * MILLISECOND)


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
        self._machine: Machine | None = None
        self.relay_client: RelayClient | None = None
        self._launcher: SimLauncher | None = None
        self._pending: deque[Any] = deque()
        self._handling = False
        self._timer: ScheduledCall | None = None
        self._files = FileWork(self, lambda: environment.file_latency(self._rng))
        self._offset: int | None = None
        self.exit_status: int | None = None
        self.on_death(self._died)
        self.after(between(self._rng, *_BOOT), lambda: self._patiently(self._read_component, self._claim))

    # ---- as the job's body

    def terminate(self) -> None:
        """SIGTERM to the batch script, which is the wrapper itself."""
        if self._machine is None:
            self.kill()
        else:
            self.run(lambda: self.handle(events.Signalled()))

    def kill_on(self, node: SimNode) -> None:
        if node is self.node:
            self.kill()
        self._agents.kill_on(node)

    @property
    def quiet(self) -> bool:
        """Whether none of its processes is left on any node."""
        return not self.alive and not self._agents.running

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
        settings = self._attempt.settings(self.job.id)
        self._barrier_timeout = settings.barrier_timeout
        self._machine = Machine(settings, self.clock())
        box = FileRelayClient(self.directory, self.tag, self._mount)
        patience = shut_out_after(settings.barrier_timeout)
        handshake = Handshake(self.tag, self._attempt.token, self._mount)
        self.relay_client = RelayClient(self.environment, self, self, handshake, patience, box)
        self.relay_client.found(read_relay_address(self._attempt.relay_file, self._mount))
        self._beat()
        if verdict == start.SAY_SO:
            self.handle(events.ClaimedBefore(shared_directory.read_record(self.directory, self._mount)))
        else:
            self.environment.observer.took_start_lock(self.tag, self.name)
            self._supervise()

    def _supervise(self) -> None:
        program = self._attempt.program
        plan = program_plan_of(program)
        nodes: list[events.Node] = []
        try:
            counts = divide(self._hosts, program["launch"], program["processors"], program["threads"])
            nodes = [events.Node(host.name, count) for host, count in zip(self._hosts, counts, strict=True)]
        except BatchError as error:
            self.handle(events.PreparationFailed(as_failure(error)))
        for (node, _), each in zip(self.job.nodes, nodes, strict=False):
            if each.processes:
                self._agents.add(self._agent(node, each.processes))
        self.handle(events.Claimed(nodes))
        failed = failure_texts.no_executable(program["executable"], "does not exist", "Stage it in.")
        captured = events.EnvironmentCaptured() if plan.found else events.PreparationFailed(failed)
        self.after(between(self._rng, *_LOGIN), lambda: self.handle(captured))

    def _agent(self, node: SimNode, processes: int) -> SimAgent:
        if not self._attempt.program.get("sweep"):
            return SimAgent(self.environment, node, processes, self.name, self.directory, self._receive_from_agent)
        self._launcher = SimLauncher(
            self.environment, node, self.name, self._attempt, self._receive_from_agent, self._from_launcher
        )
        return self._launcher

    def _from_launcher(self, message: Any) -> None:
        if self.alive and self.relay_client is not None:
            self.run(lambda: self.relay_client.send(message) if self.relay_client is not None else None)

    def to_launcher(self, message: messages.ToLauncher) -> None:
        if self._launcher is not None:
            self._launcher.receive(message.body)

    def handle(self, event: Any) -> None:
        """Hand an event to the machine, and perform its commands; events that follow come later."""
        self._pending.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._pending:
                assert self._machine is not None
                self._do(self._machine.handle(self.clock(), self._pending.popleft()))
        finally:
            self._handling = False
        self._set_timer()

    def entered(self, offset: int) -> None:
        self._offset = offset
        self.handle(events.RelayEntered())
        if self._launcher is not None:
            self._launcher.connected()

    def shut_out(self, contact_at: int) -> None:
        """The connection is lost."""
        self.handle(events.RelayLost(contact_at))
        if self._launcher is not None:
            self._launcher.disconnected()

    def _set_timer(self) -> None:
        self.agenda.cancel(self._timer)
        due = self._machine.next_wakeup() if self._machine is not None else None
        if due is not None and self.alive:
            self._timer = self.after(Duration(max(0, due - self.clock())), self._tick)

    def _tick(self) -> None:
        assert self._machine is not None
        self._do(self._machine.tick(self.clock()))
        self._set_timer()

    def _receive_from_agent(self, event: Any) -> None:
        if self._machine is not None:
            self.after(LINE, lambda: self.handle(event))

    # ---- the shared directory

    def perform(self, act: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Perform an operation for the relay client, in turn with the wrapper's own."""
        self._files.in_turn(act, then)

    def seek_relay(self) -> None:
        def found(relay: Any) -> None:
            assert self.relay_client is not None
            self.relay_client.found(relay)

        self._files.in_turn(lambda: read_relay_address(self._attempt.relay_file, self._mount), found)

    def _beat(self) -> None:
        self._files.in_turn(lambda: shared_directory.touch_heartbeat(self.directory, self._mount), self._beaten)

    def _beaten(self, event: Any) -> None:
        self.after(Duration(self._attempt.heartbeat), self._beat)
        if event is not None:
            self.handle(event)

    # ---- the machine's commands

    def _do(self, commands: list[Any]) -> None:
        for command in commands:
            self.step()
            _DOING[type(command)](self, command)

    def _send_report(self, command: events.SendReport) -> None:
        assert self.relay_client is not None
        came = command.report.at_barrier_at
        if command.report.phase == AT_BARRIER and came is not None and not command.report.ending:
            left = came + self._barrier_timeout - self.clock()
            self.environment.observer.reached_barrier(self.tag, self.name, Instant(self.agenda.now + left))
        self.relay_client.expect(command.report.phase != RUNNING)
        self.relay_client.send(messages.ReportMessage(messages.to_json(command.report)))

    def _prepare_nodes(self, command: events.PrepareNodes) -> None:
        plan, grace = program_plan_of(self._attempt.program), Duration(round(self._attempt.program["grace"] * SECOND))
        self._agents.prepare(self.tag, plan, grace)

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

    def _abandon_nodes(self, command: events.AbandonNodes) -> None:
        self._agents.abandon(lambda node: self.handle(events.NodeLost(node)))

    def _write_record(self, command: events.WriteRecord) -> None:
        record = dict(messages.to_json(command.report), clock=self.clock(), offset=self._offset)
        self._files.in_turn(
            lambda: shared_directory.write_record(self.directory, record, command.only_if_none, self._mount),
            self.handle,
        )

    def _leave(self, command: events.Leave) -> None:
        """Leave with the agents; the relay has a moment to read the last messages."""
        assert self.relay_client is not None
        self.relay_client.leave()
        self.after(between(self._rng, *_CLEAN_UP), lambda: self._exit(command.exit_status))

    # ---- end

    def _exit(self, exit_status: int) -> None:
        self.exit_status = exit_status
        self.kill()

    def _died(self) -> None:
        """Close the process's connections, as the kernel does; agents and batch system notice its end."""
        self.environment.observer.left_barrier(self.tag, self.name)
        if self.relay_client is not None:
            self.relay_client.close()
        self.exit_status = 137 if self.exit_status is None else self.exit_status
        self._agents.lose_wrapper()
        if self.node.reachable:
            self.environment.batch.exited(self.job, self, self.exit_status)


_DOING: dict[type[Any], Callable[[SimWrapper, Any], None]] = {
    events.SendReport: SimWrapper._send_report,
    events.PrepareNodes: SimWrapper._prepare_nodes,
    events.ReleaseNodes: SimWrapper._release_nodes,
    events.StopNodes: SimWrapper._stop_nodes,
    events.AbandonNodes: SimWrapper._abandon_nodes,
    events.WriteRecord: SimWrapper._write_record,
    events.Leave: SimWrapper._leave,
}
