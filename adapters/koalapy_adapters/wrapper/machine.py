"""The wrapper's decisions: event in, commands out. It reads no clock and does nothing itself.

    started -> at_barrier -> released -> running -> ended

An ending is decided once, by whatever happens first; then all nodes are emptied, and what follows is the shutdown.
A process that ended as a signal ends one decides only after a moment. The batch system signals all processes of a job
that it stops, in any order, and the wrapper's own signal may be the last one.
Instants and durations are integer microseconds of the node's clock.
"""

from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from koalapy_adapters.clock import SECOND
from koalapy_adapters.messages.kcm import Report
from koalapy_adapters.wrapper import events as e
from koalapy_adapters.wrapper import failure_texts
from koalapy_adapters.wrapper.events import Settings
from koalapy_adapters.wrapper.liveness import until_ended
from koalapy_adapters.wrapper.shutdown import Shutdown

STARTED, AT_BARRIER, RELEASED, RUNNING, ENDED = "started", "at_barrier", "released", "running", "ended"

START_AT_LEAST = 60 * SECOND  # for environment and agents, where the barrier's time-out is shorter
STOP_MARGIN = 10 * SECOND  # beyond the grace, until an agent is given up
SIGNAL_PATIENCE = 3 * SECOND  # for the wrapper's own signal, after a process ended as one that was stopped


class Machine:
    """`handle` every event, then `tick` at `next_wakeup` or later; both answer with what is to be done, in order."""

    def __init__(self, settings: Settings, now: int) -> None:
        self._settings = settings
        self._report = Report(settings.tag, settings.batch_id, STARTED, [], began_at=now)
        self._nodes: Dict[str, str] = {}  # those that run processes: waiting, ready, started, cut off or over
        self._claimed = False
        self._captured = False
        self._relay = False
        self._began = now
        self._slept = 0  # how long its host has slept, and its program was suspended, since the release
        self._suspended_at: Optional[int] = None  # None while its program is not suspended
        self._contact = now  # with the relay or the shared directory
        self._last_end: Optional[int] = None
        self._stopping_until: Optional[int] = None
        self._supposed: Optional[Tuple[str, e.Json]] = None  # ending and error, unless a signal of the wrapper comes
        self._signal_until: Optional[int] = None  # when what is supposed becomes the ending
        self._silent_until: Optional[int] = None  # when the agents that are cut off have ended their processes
        self._abandoned = False
        self._shutdown: Optional[Shutdown] = None  # once all nodes are empty
        self._left = False

    def handle(self, now: int, event: Any) -> List[Any]:
        """Raises KeyError for what is no event of `events`."""
        react = _REACTIONS[type(event)]
        if self._left:
            return []
        return react(self, now, event) + self._advance(now)

    def tick(self, now: int) -> List[Any]:
        """The commands that are due by `now`."""
        if self._left:
            return []
        return self._overdue(now) + self._advance(now)

    def next_wakeup(self) -> Optional[int]:
        """The next deadline, None if only events can bring anything."""
        if self._left:
            return None
        if self._shutdown is not None:
            return self._shutdown.next_wakeup()
        return min((due for due, _ in self._deadlines()), default=None)

    def report(self) -> Report:
        """The report that may be sent by now: an end only once it has been recorded, or that has failed."""
        shutdown = self._shutdown
        return shutdown.report if shutdown is not None and shutdown.is_settled else self._report

    # ---- what happened -----------------------------------------------------------------------------------------------

    def _on_claimed(self, now: int, event: e.Claimed) -> List[Any]:
        self._claimed = True
        self._nodes = {node.name: "waiting" for node in event.nodes if node.processes}
        self._report = self._report._replace(nodes=[[node.name, node.name, node.processes] for node in event.nodes])
        return [e.SendReport(self._report)]

    def _on_revoked(self, now: int, event: e.AttemptRevoked) -> List[Any]:
        self._left = True
        return [e.Leave(0)]

    def _on_claimed_before(self, now: int, event: e.ClaimedBefore) -> List[Any]:
        recorded = failure_texts.recorded_report(event.record)
        if recorded is not None:
            self._shutdown = Shutdown(recorded, now, second=True, recorded=True)
            return []
        self._report = self._report._replace(ending="restarted", error=failure_texts.RESTARTED)
        return self._finish(now)

    def _on_preparation_failed(self, now: int, event: e.PreparationFailed) -> List[Any]:
        return self._end(now, "failed", 0, event.error)

    def _on_environment(self, now: int, event: e.EnvironmentCaptured) -> List[Any]:
        if self._captured or self._is_ending:
            return []
        self._captured = True
        return [e.PrepareNodes()]

    def _on_ready(self, now: int, event: e.NodeReady) -> List[Any]:
        if self._nodes.get(event.node) == "waiting":
            self._nodes[event.node] = "ready"
            nodes = [[n, event.address if n == event.node else a, p] for n, a, p in self._report.nodes]
            self._report = self._report._replace(nodes=nodes)
        return []

    def _on_node_failed(self, now: int, event: e.NodeFailed) -> List[Any]:
        return self._end(now, "failed", 0, event.error)

    def _on_started(self, now: int, event: e.NodeStarted) -> List[Any]:
        if self._nodes.get(event.node) == "ready":
            self._nodes[event.node] = "started"
            self._report = self._report._replace(started_at=max(event.at, self._report.started_at or 0))
        return []

    def _on_process_ended(self, now: int, event: e.ProcessEnded) -> List[Any]:
        self._last_end = max(event.at, self._last_end or 0)
        if not self._report.exit_status:
            self._report = self._report._replace(exit_status=event.exit_status)
        grace = 0 if self._settings.mpi else self._settings.grace  # the ranks of an mpirun that has ended have no use
        if event.exit_status == 0:
            return self._stop_ranks(now)
        outside = event.signal and event.signal not in failure_texts.OWN_FAULTS
        ending, error = "killed" if outside else "exited", failure_texts.process_failed(event)
        if event.exit_status in failure_texts.STOPPED and not self._is_ending and self._shutdown is None:
            self._supposed, self._signal_until = (ending, error), now + SIGNAL_PATIENCE
            return self._stop(now, grace)
        return self._end(now, ending, grace, error) or self._stop_ranks(now)

    def _stop_ranks(self, now: int) -> List[Any]:
        """Once mpirun has ended, end what the agents of all nodes still run for it."""
        if not self._settings.mpi or self._shutdown is not None:
            return []
        self._stopping_until = now + STOP_MARGIN
        return [e.StopNodes(0)]

    def _on_emptied(self, now: int, event: e.NodeEmptied) -> List[Any]:
        if event.node in self._nodes:
            self._nodes[event.node] = "ended"
        return []

    def _on_lost(self, now: int, event: e.NodeLost) -> List[Any]:
        if self._nodes.get(event.node, "ended") == "ended":
            return []
        began = self._nodes[event.node] != "waiting"
        self._nodes[event.node] = "ended"
        if not event.sure and self._report.released_at is not None:
            self._nodes[event.node] = "cut off"
            self._silent_until = now + until_ended(self._settings.orphan_timeout, self._settings.grace)
        if not began:
            return self._end(now, "failed", 0, failure_texts.agent_not_started(event.node))
        if self._supposed is not None:
            self._supposed = ("killed", failure_texts.agent_lost(event.node))
        return self._end(now, "killed", self._settings.grace, failure_texts.agent_lost(event.node))

    def _on_signalled(self, now: int, event: e.Signalled) -> List[Any]:
        ending, error = "killed", failure_texts.SIGNALLED
        if event.why is not None:
            ending = "walltime" if event.why["code"] == failure_texts.WALLTIME["code"] else "failed"
            error = event.why
        if self._supposed is not None:
            return self._decide(ending, error)
        return self._end(now, ending, self._settings.grace, error)

    def _on_resumed(self, now: int, event: e.Resumed) -> List[Any]:
        """Suspended it could reach nobody, but was in the batch system's list: nobody has given it up.

        With its host asleep it is as if that time had not been, but at the barrier, where others wait.
        """
        self._contact = now
        self._began += event.slept
        if self._report.released_at is not None:
            self._slept += event.slept
        if self._suspended_at is None:
            return []
        if event.slept:
            self._suspended_at += event.slept
            return []
        self._slept += max(0, now - self._suspended_at)
        self._suspended_at = None
        return [e.ResumeNodes()]

    def _on_suspend_requested(self, now: int, event: e.SuspendRequested) -> List[Any]:
        """Suspend a program that runs. The time until it is resumed is not counted to its walltime."""
        runs = self._report.phase in (RELEASED, RUNNING) and not self._is_ending and self._shutdown is None
        if not runs or self._suspended_at is not None:
            return []
        self._suspended_at = now
        return [e.SuspendNodes()]

    def _on_relay_entered(self, now: int, event: e.RelayEntered) -> List[Any]:
        self._relay, self._contact = True, now
        return [e.SendReport(self.report())] if self._claimed else []

    def _on_relay_lost(self, now: int, event: e.RelayLost) -> List[Any]:
        if self._relay:
            self._relay, self._contact = False, max(self._contact, event.contact_at)
        return []

    def _on_shared_reached(self, now: int, event: e.SharedReached) -> List[Any]:
        self._contact = now
        return []

    def _on_release(self, now: int, event: e.ReleaseReceived) -> List[Any]:
        """Start the program. A release that is delivered again, after a reconnect, only repeats the report."""
        if self._report.phase != AT_BARRIER or self._is_ending:
            return [e.SendReport(self.report())] if self._claimed else []
        self._report = self._report._replace(phase=RELEASED, released_at=now)
        return [e.ReleaseNodes(event.first_rank, event.hosts), e.SendReport(self._report)]

    def _on_stop(self, now: int, event: e.StopReceived) -> List[Any]:
        if self._shutdown is not None:
            return []
        at_once: List[Any] = [e.StopNodes(0)] if self._is_ending and event.force else []
        if self._supposed is not None:
            return at_once + self._decide("cancelled", None)
        return at_once or self._end(now, "cancelled", 0 if event.force else self._settings.grace)

    def _on_recorded(self, now: int, event: e.RecordWritten) -> List[Any]:
        return self._shutdown.written(self._relay) if self._shutdown is not None else []

    def _on_record_failed(self, now: int, event: e.RecordFailed) -> List[Any]:
        return self._shutdown.not_written(now, self._relay) if self._shutdown is not None else []

    # ---- what follows ------------------------------------------------------------------------------------------------

    @property
    def _is_ending(self) -> bool:
        """Return whether the ending is decided, or about to be."""
        return bool(self._report.ending) or self._supposed is not None

    def _advance(self, now: int) -> List[Any]:
        if self._shutdown is not None:
            return self._try_to_leave(now)
        stages = set(self._nodes.values())
        if self._report.phase == STARTED and not self._is_ending and self._captured and stages == {"ready"}:
            self._report = self._report._replace(phase=AT_BARRIER, at_barrier_at=now)
            return [e.SendReport(self._report)]
        commands: List[Any] = []
        if self._report.phase == RELEASED and stages and stages <= {"started", "ended"} and self._report.started_at:
            self._report = self._report._replace(phase=RUNNING)
            commands.append(e.SendReport(self._report))
        if self._claimed and stages <= {"ended"} and self._supposed is None:
            return commands + self._finish(now) + self._try_to_leave(now)
        return commands

    def _end(self, now: int, ending: str, grace: int, error: Optional[e.Json] = None) -> List[Any]:
        """The first that decides an ending decides it; the rest is its consequence."""
        if self._is_ending or self._shutdown is not None:
            return []
        self._report = self._report._replace(ending=ending, error=error)
        return self._stop(now, grace)

    def _stop(self, now: int, grace: int) -> List[Any]:
        self._stopping_until = now + grace + STOP_MARGIN
        return [e.StopNodes(grace)]

    def _decide(self, ending: str, error: Optional[e.Json]) -> List[Any]:
        """Make this the ending in place of the supposed one, whose nodes are being stopped."""
        self._supposed = self._signal_until = None
        self._report = self._report._replace(ending=ending, error=error)
        return []

    def _finish(self, now: int) -> List[Any]:
        ended_at = self._last_end if self._last_end is not None else now
        ending = self._report.ending or "exited"
        final = self._report._replace(phase=ENDED, ending=ending, ended_at=ended_at)
        self._shutdown = Shutdown(final, now, second=not self._claimed)
        return self._shutdown.write()

    def _try_to_leave(self, now: int) -> List[Any]:
        assert self._shutdown is not None
        commands = self._shutdown.leave(now, self._relay)
        self._left = bool(commands)
        return commands

    # ---- time --------------------------------------------------------------------------------------------------------

    def _deadlines(self) -> List[Any]:
        """(instant, what is due then) of everything that time alone can bring while nodes run."""
        due: List[Any] = []
        if self._silent_until is not None:
            due.append((self._silent_until, self._fall_silent))
        if self._signal_until is not None:
            due.append((self._signal_until, self._signal_overdue))
        if self._stopping_until is not None:
            return [*due, (self._stopping_until, self._abandon)]
        if self._report.phase == STARTED:
            start = max(self._settings.barrier_timeout, START_AT_LEAST)
            due.append((self._began + start, self._too_slow))
        if self._report.at_barrier_at is not None and self._report.phase == AT_BARRIER:
            due.append((self._report.at_barrier_at + self._settings.barrier_timeout, self._leave_barrier))
        if self._report.released_at is not None and self._suspended_at is None:
            due.append((self._report.released_at + self._settings.walltime + self._slept, self._exceed))
        if not self._relay:
            due.append((self._contact + self._settings.orphan_timeout, self._orphaned))
        return due

    def _overdue(self, now: int) -> List[Any]:
        if self._shutdown is not None:
            return self._shutdown.overdue(now, self._relay)
        return [command for due, act in self._deadlines() if due <= now for command in act(now)]

    def _too_slow(self, now: int) -> List[Any]:
        waiting = [name for name, stage in self._nodes.items() if stage == "waiting"]
        error = failure_texts.agents_late(waiting) if self._captured else failure_texts.SETUP_SLOW
        return self._end(now, "failed", 0, error)

    def _leave_barrier(self, now: int) -> List[Any]:
        return self._end(now, "left_barrier", 0, failure_texts.LEFT_BARRIER)

    def _exceed(self, now: int) -> List[Any]:
        return self._end(now, "walltime", self._settings.grace, failure_texts.WALLTIME)

    def _orphaned(self, now: int) -> List[Any]:
        """The grace counts from when it became one: noticed late, after a node's standstill, it has none left."""
        late = now - self._contact - self._settings.orphan_timeout
        return self._end(now, "killed", max(0, self._settings.grace - late), failure_texts.ORPHANED)

    def _abandon(self, now: int) -> List[Any]:
        """Agents that do not answer are killed; those that even then do not end (a hung disk) are left behind."""
        self._stopping_until = now + STOP_MARGIN
        if self._abandoned:
            self._nodes = {name: stage if stage == "cut off" else "ended" for name, stage in self._nodes.items()}
        self._abandoned = True
        return [e.AbandonNodes()]

    def _signal_overdue(self, now: int) -> List[Any]:
        """The wrapper's own signal did not come: the process ended by itself."""
        assert self._supposed is not None
        return self._decide(*self._supposed)

    def _fall_silent(self, now: int) -> List[Any]:
        self._silent_until = None
        self._nodes = {name: "ended" if stage == "cut off" else stage for name, stage in self._nodes.items()}
        return []


_REACTIONS: Dict[Type[Any], Callable[[Machine, int, Any], List[Any]]] = {
    e.Claimed: Machine._on_claimed,
    e.AttemptRevoked: Machine._on_revoked,
    e.ClaimedBefore: Machine._on_claimed_before,
    e.PreparationFailed: Machine._on_preparation_failed,
    e.EnvironmentCaptured: Machine._on_environment,
    e.NodeReady: Machine._on_ready,
    e.NodeFailed: Machine._on_node_failed,
    e.NodeStarted: Machine._on_started,
    e.ProcessEnded: Machine._on_process_ended,
    e.NodeEmptied: Machine._on_emptied,
    e.NodeLost: Machine._on_lost,
    e.Signalled: Machine._on_signalled,
    e.Resumed: Machine._on_resumed,
    e.SuspendRequested: Machine._on_suspend_requested,
    e.RelayEntered: Machine._on_relay_entered,
    e.RelayLost: Machine._on_relay_lost,
    e.ReleaseReceived: Machine._on_release,
    e.StopReceived: Machine._on_stop,
    e.SharedReached: Machine._on_shared_reached,
    e.RecordWritten: Machine._on_recorded,
    e.RecordFailed: Machine._on_record_failed,
}
