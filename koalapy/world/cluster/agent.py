"""A node's agent and the program's processes that it started there, as the wrapper and the ledger see them."""

from collections.abc import Callable
from typing import Any

from koalapy_adapters.wrapper import events
from koalapy_adapters.wrapper.agent.node_agent import ORPHAN_GRACE

from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import ScheduledCall
from koalapy.world.behaviour import ProgramPlan
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.files import Mount
from koalapy.world.cluster.nodes import SimNode
from koalapy.world.random_streams import between

_TERM, _KILL = 15, 9


class SimAgent:
    """The agent of one node: new, prepared, started, and ended when nothing of the program is left."""

    def __init__(
        self,
        environment: Environment,
        node: SimNode,
        processes: int,
        start: str,
        directory: str,
        report_to_wrapper: Callable[[Any], None],
    ) -> None:
        self.node, self.processes, self._directory = node, processes, directory
        self._environment, self._start, self._report_to_wrapper = environment, start, report_to_wrapper
        self._rng = environment.rng(f"agent/{start}/{node.name}")
        self.alive = True
        self.running = False
        self._tag = ""
        self._plan = ProgramPlan(False)
        self._grace = Duration(ORPHAN_GRACE)
        self._prepared = self._has_ended = False
        self._end: ScheduledCall | None = None
        self._ends_at = Instant(0)
        self._suspended_at: Instant | None = None
        self._kill_at: ScheduledCall | None = None
        self._silence: Duration | None = None
        self._silent_at: ScheduledCall | None = None

    def prepare(self, tag: str, plan: ProgramPlan, grace: Duration, silence: Duration | None) -> None:
        """Begin to prepare the program, which takes from 5 ms to 3 s, since an agent may have just been launched."""
        self._tag, self._plan, self._grace, self._silence = tag, plan, grace, silence
        self.reset_silence()
        if self._environment.agents_to_hang:
            self._environment.agents_to_hang -= 1
            return
        wait = between(self._rng, Duration(5 * MILLISECOND), Duration(3 * SECOND))
        self._environment.agenda.after(wait, self._ready)

    def reset_silence(self) -> None:
        """Note a sign of life of the wrapper, which counts as gone after too long a silence."""
        self._environment.agenda.cancel(self._silent_at)
        if self._silence is not None and self.alive and not self._has_ended:
            self._silent_at = self._environment.agenda.after(self._silence, self.lose_wrapper)

    def release(self, clusters: int) -> None:
        """Start the program, in a job that uses this many clusters."""
        if self.alive and self._prepared and not self._has_ended:
            self.running = True
            self._environment.program_log.started(
                self._tag, self._environment.cluster, self._start, self.node.name, self._environment.agenda.now
            )
            self._ends_at = Instant(self._environment.agenda.now + self._plan.lasts(clusters))
            self._run_on()
            self._report(events.NodeStarted(self.node.name, self.node.clock()))

    def _run_on(self) -> None:
        exit_status = self._plan.exit_status
        self._end = self._environment.agenda.at(self._ends_at, lambda: self._exit(exit_status, natural=True))

    def suspend(self, suspended: bool) -> None:
        """Stop a program that runs, or let it go on: for so long it makes no progress."""
        now = self._environment.agenda.now
        if not self.alive or not self.running or suspended is (self._suspended_at is not None):
            return
        if suspended and self._kill_at is None:
            self._environment.agenda.cancel(self._end)
            self._suspended_at = now
        elif self._suspended_at is not None:
            self._ends_at = Instant(self._ends_at + now - self._suspended_at)
            self._suspended_at = None
            self._run_on()

    def stop(self, grace: Duration) -> None:
        """Send SIGTERM, and SIGKILL after the grace. A program that has not started ends at once."""
        if not self.alive or self._has_ended:
            return
        if not self.running:
            self._empty()
        elif grace <= 0:
            self._exit(128 + _KILL)
        elif self._kill_at is None:
            self.suspend(False)
            self._kill_at = self._environment.agenda.after(grace, lambda: self._exit(128 + _KILL))
            if not self._plan.stubborn:
                wait = between(self._rng, MILLISECOND, SECOND)
                self._environment.agenda.after(Duration(min(wait, grace)), lambda: self._exit(128 + _TERM))

    def lose_wrapper(self) -> None:
        """React to the end of file on the connection to the wrapper, or to its silence."""
        self._silence = None
        self.stop(self._grace)

    def kill(self) -> None:
        """Kill the agent and all that it started: by the batch system's SIGKILL, or as the node loses its power."""
        if self.alive:
            self.alive = False
            self._environment.agenda.cancel(self._silent_at)
            self._stop_running(128 + _KILL)

    def _ready(self) -> None:
        if self.alive and not self._has_ended:
            self._prepared = True
            self._report(events.NodeReady(self.node.name, self.node.address))

    def _exit(self, exit_status: int, natural: bool = False) -> None:
        if not self.alive or not self.running:
            return
        if natural and exit_status == 0:
            self._write_files()
        self._stop_running(exit_status)
        at, signal = self.node.clock(), max(0, exit_status - 128)
        for _ in range(self.processes):
            self._report(events.ProcessEnded(self.node.name, at, exit_status, signal))
        self._empty()

    def _write_files(self) -> None:
        """A program that cannot write its files does not notice."""
        files = Mount(
            self._environment.shared, f"{self.node.name}.{self._start}", lambda: None, lambda: self.node.reachable
        )
        for path in self._plan.writes:
            try:
                files.write(f"{self._directory}/work/{path}", f"{path} by {self._start} on {self.node.name}".encode())
            except OSError:
                return
            finally:
                self._environment.program_log.left(
                    self._tag, path, self._environment.shared.content(f"{self._directory}/work/{path}")
                )

    def _stop_running(self, exit_status: int) -> None:
        if self.running:
            self.running = False
            self._environment.agenda.cancel(self._end)
            self._environment.agenda.cancel(self._kill_at)
            self._environment.program_log.ended(
                self._tag, self._start, self.node.name, self._environment.agenda.now, exit_status
            )

    def _empty(self) -> None:
        self._has_ended = True
        self._environment.agenda.cancel(self._silent_at)
        self._report(events.NodeEmptied(self.node.name))

    def _report(self, event: Any) -> None:
        self._report_to_wrapper(event)
