"""The wrapper's machine: its promises under any order of events."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.clock import SECOND
from koalapy_adapters.messages.kcm import Report
from koalapy_adapters.wrapper import events as e
from koalapy_adapters.wrapper.events import Settings
from koalapy_adapters.wrapper.liveness import until_ended
from koalapy_adapters.wrapper.machine import SIGNAL_PATIENCE, STOP_MARGIN, Machine

NODES = ["one", "two"]
PHASES = ["started", "at_barrier", "released", "running", "ended"]
ENDINGS = {"exited", "killed", "walltime", "left_barrier", "restarted", "failed", "cancelled"}
SETTINGS = Settings(
    tag="k00000000000001",
    batch_id="17",
    barrier_timeout=300 * SECOND,
    walltime=600 * SECOND,
    grace=5 * SECOND,
    orphan_timeout=120 * SECOND,
)
ERROR = e.failure("bad", "request", "It is bad.", "Make it good.")

nodes = st.sampled_from(NODES)
happenings = st.one_of(
    st.just(e.EnvironmentCaptured()),
    st.just(e.PreparationFailed(ERROR)),
    st.builds(e.NodeReady, nodes, st.just("10.0.0.1")),
    st.builds(e.NodeFailed, nodes, st.just(ERROR)),
    st.builds(e.NodeStarted, nodes, st.integers(0, 10**6)),
    st.builds(
        e.ProcessEnded, nodes, st.integers(0, 10**6), st.sampled_from([0, 0, 0, 3, 137]), st.sampled_from([0, 9])
    ),
    st.builds(e.NodeEmptied, nodes),
    st.builds(e.NodeLost, nodes, st.booleans()),
    st.just(e.Signalled()),
    st.just(e.SuspendRequested()),
    st.builds(e.Resumed, st.sampled_from([0, 0, 0, SECOND])),
    st.just(e.RelayEntered()),
    st.builds(e.RelayLost, st.integers(0, 10**6)),
    st.just(e.ReleaseReceived(0, [[0, "a", 1], [0, "b", 1]])),
    st.builds(e.StopReceived, st.booleans()),
    st.just(e.SharedReached()),
    st.just(e.RecordWritten()),
    st.just(e.RecordFailed("full")),
    st.none(),  # time only
)
LIVED: list[list[Any]] = [  # the events before a failure
    [],
    [e.RelayEntered(), e.EnvironmentCaptured(), *(e.NodeReady(node, "10.0.0.1") for node in NODES)],
]
LIVED.append([*LIVED[1], e.ReleaseReceived(0, [[0, "a", 1], [0, "b", 1]]), *(e.NodeStarted(node, 5) for node in NODES)])
histories = st.builds(
    lambda lived, rest: [(0, event) for event in lived] + rest,
    st.sampled_from(LIVED),
    st.lists(st.tuples(st.integers(0, 40 * SECOND), happenings), max_size=60),
)


class World:
    """A machine with the commands that it returned for a history of events."""

    def __init__(self, wanted: Settings = SETTINGS) -> None:
        self.now = 1000 * SECOND
        self.machine = Machine(wanted, self.now)
        self.commands: list[tuple[int, Any]] = []
        self.handle(e.Claimed([e.Node(name, 2) for name in NODES]))

    def handle(self, event: Any) -> None:
        self._keep(self.machine.handle(self.now, event))

    def pass_time(self, until: int) -> None:
        """Wake the machine at each of its wake-ups."""
        for _ in range(1000):
            due = self.machine.next_wakeup()
            if due is None or due > until:
                self.now = until
                return
            self.now = max(self.now, due)
            self._keep(self.machine.tick(self.now))
        raise AssertionError("it wakes up again and again")

    def play(self, history: Sequence[tuple[int, Any]]) -> None:
        for pause, event in history:
            self.pass_time(self.now + pause)
            if event is not None:
                self.handle(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [command for _, command in self.commands if isinstance(command, kind)]

    def at(self, kind: type[Any]) -> list[int]:
        return [at for at, command in self.commands if isinstance(command, kind)]

    @property
    def said(self) -> list[Report]:
        return [command.report for command in self.of(e.SendReport)]

    def _keep(self, commands: list[Any]) -> None:
        self.commands += [(self.now, command) for command in commands]


@settings(max_examples=400)
@given(histories)
def test_the_machine_keeps_its_promises_in_any_history(history: list[tuple[int, Any]]) -> None:
    world = World()
    world.play(history)
    phases = [PHASES.index(report.phase) for report in world.said]
    assert phases == sorted(phases), "a phase went back"
    assert len(world.of(e.ReleaseNodes)) <= 1, "the program was started twice"
    assert len(world.of(e.PrepareNodes)) <= 1
    assert len(world.of(e.Leave)) <= 1
    if world.of(e.Leave):
        assert isinstance(world.commands[-1][1], e.Leave), "it went on after it left"
    decided = [report.ending for report in world.said if report.ending]
    assert set(decided) <= ENDINGS
    assert len(set(decided)) <= 1, "an ending was decided twice"
    stops = world.at(e.StopNodes)
    assert not stops or all(at <= stops[0] for at in world.at(e.ReleaseNodes)), "it was released after its stop"
    turns = [type(command) for _, command in world.commands if isinstance(command, e.SuspendNodes | e.ResumeNodes)]
    assert turns == [e.SuspendNodes, e.ResumeNodes] * (len(turns) // 2) + [e.SuspendNodes] * (len(turns) % 2)


@settings(max_examples=400)
@given(histories)
def test_no_end_is_reported_before_the_exit_record_is_written_or_has_failed(
    history: list[tuple[int, Any]],
) -> None:
    world = World()
    settled = recorded = False
    for pause, event in history:
        world.pass_time(world.now + pause)
        if event is not None:
            world.handle(event)
        written = world.at(e.WriteRecord)
        settled = settled or (
            bool(written)
            and (isinstance(event, e.RecordWritten | e.RecordFailed) or world.now >= written[0] + 5 * SECOND)
        )
        assert settled or all(report.phase != "ended" for report in world.said)
        recorded = recorded or (bool(written) and isinstance(event, e.RecordWritten))
        assert recorded or not world.of(e.Leave) or world.now >= written[0] + 60 * SECOND


@settings(max_examples=200)
@given(histories)
def test_the_machine_always_leaves_in_the_end(history: list[tuple[int, Any]]) -> None:
    """Every wait has its deadline, even if no answer comes; but a suspended program waits until it is resumed."""
    world = World()
    world.play(history)
    world.handle(e.Resumed())
    world.pass_time(world.now + 2 * 3600 * SECOND)
    assert len(world.of(e.Leave)) == 1
    assert world.of(e.WriteRecord)
    assert world.machine.next_wakeup() is None
    final = world.of(e.WriteRecord)[-1].report
    assert final.phase == "ended"
    assert final.ending in ENDINGS
    assert final.ended_at is not None


@settings(max_examples=200)
@given(histories)
def test_a_released_program_is_stopped_or_ended_before_the_machine_leaves(history: list[tuple[int, Any]]) -> None:
    world = World()
    emptied = set()
    for pause, event in history:
        world.pass_time(world.now + pause)
        if event is not None:
            world.handle(event)
            if isinstance(event, e.NodeEmptied | e.NodeLost):
                emptied.add(event.node)
        if world.of(e.WriteRecord) and emptied != set(NODES):
            assert len(world.of(e.AbandonNodes)) >= 2, "a node was left behind that was not given up"


def ready(wanted: Settings = SETTINGS) -> World:
    world = World(wanted)
    world.handle(e.RelayEntered())
    world.handle(e.EnvironmentCaptured())
    for node in NODES:
        world.handle(e.NodeReady(node, "10.0.0.1"))
    return world


def released(wanted: Settings = SETTINGS) -> World:
    world = ready(wanted)
    world.handle(e.ReleaseReceived(0, [[0, "10.0.0.1", 4]]))
    for node in NODES:
        world.handle(e.NodeStarted(node, world.now))
    return world


def empty(world: World) -> Report:
    """Let all nodes report that no process is left. Returns the exit record."""
    for node in NODES:
        world.handle(e.NodeEmptied(node))
    report: Report = world.of(e.WriteRecord)[-1].report
    return report


@pytest.mark.parametrize(
    ("status", "signal", "ending"), [(0, 0, "exited"), (9, 0, "exited"), (137, 9, "killed")], ids=["0", "9", "killed"]
)
def test_when_mpirun_ends_all_nodes_are_emptied_at_once(status: int, signal: int, ending: str) -> None:
    world = released(SETTINGS._replace(mpi=True))
    world.handle(e.ProcessEnded("one", world.now, status, signal))
    assert world.of(e.StopNodes) == [e.StopNodes(0)]
    for node in NODES:
        world.handle(e.NodeEmptied(node))
    world.pass_time(world.now + SIGNAL_PATIENCE)
    report = world.of(e.WriteRecord)[-1].report
    assert (report.ending, report.exit_status) == (ending, status)


def test_when_mpirun_ends_during_the_grace_the_rest_of_the_grace_has_no_use() -> None:
    world = released(SETTINGS._replace(mpi=True))
    world.handle(e.StopReceived(False))
    world.handle(e.ProcessEnded("one", world.now, 143, 0))
    assert world.of(e.StopNodes) == [e.StopNodes(SETTINGS.grace), e.StopNodes(0)]
    assert empty(world).ending == "cancelled"


def test_a_node_that_does_not_become_empty_after_its_mpirun_is_abandoned() -> None:
    world = released(SETTINGS._replace(mpi=True))
    world.handle(e.ProcessEnded("one", world.now, 0, 0))
    world.pass_time(world.now + 3 * STOP_MARGIN)
    assert world.of(e.AbandonNodes)
    assert world.of(e.WriteRecord)[-1].report.ending == "exited"


def test_all_nodes_must_be_ready_for_the_barrier() -> None:
    world = World()
    world.handle(e.EnvironmentCaptured())
    world.handle(e.NodeReady("one", "a"))
    assert world.machine.report().phase == "started"
    world.handle(e.NodeReady("two", "b"))
    assert world.machine.report().phase == "at_barrier"
    assert world.machine.report().nodes == [["one", "a", 2], ["two", "b", 2]]


def test_the_barrier_is_left_exactly_at_its_time_out() -> None:
    world = ready()
    entered = world.now
    world.pass_time(entered + SETTINGS.barrier_timeout - 1)
    assert world.of(e.StopNodes) == []
    world.pass_time(entered + SETTINGS.barrier_timeout)
    assert world.at(e.StopNodes) == [entered + SETTINGS.barrier_timeout]
    world.handle(e.ReleaseReceived(0, []))
    assert world.of(e.ReleaseNodes) == []
    assert empty(world).ending == "left_barrier"


def test_the_walltime_counts_from_the_release() -> None:
    world = ready()
    world.pass_time(world.now + 200 * SECOND)
    at_release = world.now
    world.handle(e.ReleaseReceived(0, []))
    world.pass_time(at_release + SETTINGS.walltime)
    assert world.at(e.StopNodes) == [at_release + SETTINGS.walltime]
    assert world.of(e.StopNodes) == [e.StopNodes(SETTINGS.grace)]
    assert empty(world).ending == "walltime"


def test_started_at_is_the_instant_of_the_last_node() -> None:
    world = ready()
    world.handle(e.ReleaseReceived(0, []))
    world.handle(e.NodeStarted("two", 77))
    assert world.machine.report().phase == "released"
    world.handle(e.NodeStarted("one", 55))
    assert (world.machine.report().phase, world.machine.report().started_at) == ("running", 77)


def test_a_stop_during_the_grace_of_the_walltime_does_not_change_the_ending() -> None:
    world = released()
    world.pass_time(world.now + SETTINGS.walltime)
    world.handle(e.StopReceived(False))
    world.handle(e.StopReceived(True))
    assert world.of(e.StopNodes) == [e.StopNodes(SETTINGS.grace), e.StopNodes(0)]
    assert empty(world).ending == "walltime"


def test_processes_that_a_stop_killed_do_not_count_as_killed() -> None:
    world = released()
    world.handle(e.ProcessEnded("one", world.now, 3, 0))
    world.handle(e.ProcessEnded("two", world.now, 143, 15))
    report = empty(world)
    assert (report.ending, report.exit_status) == ("exited", 3)


STOPPED = pytest.mark.parametrize(
    ("status", "signal"),
    [(143, 0), (137, 0), (130, 0), (143, 15), (137, 9)],
    ids=["shell-term", "shell-kill", "shell-int", "term", "kill"],
)


@STOPPED
@pytest.mark.parametrize("mpi", [False, True], ids=["plain", "mpi"])
def test_a_batch_system_that_stops_the_job_has_ended_it_whichever_signal_comes_first(
    status: int, signal: int, mpi: bool
) -> None:
    ended, signalled = e.ProcessEnded("two", 5, status, signal), e.Signalled()
    for order in ([ended, signalled], [signalled, ended]):
        world = released(SETTINGS._replace(mpi=mpi))
        for event in order:
            world.handle(event)
            world.pass_time(world.now + SIGNAL_PATIENCE - 1)
        report = empty(world)
        assert report.error is not None
        assert (report.ending, report.error["code"], report.exit_status) == ("killed", "signalled", status), order


def test_all_nodes_may_be_empty_before_the_wrappers_own_signal_comes() -> None:
    world = released()
    for node in NODES:
        world.handle(e.ProcessEnded(node, world.now, 143, 0))
        world.handle(e.NodeEmptied(node))
    assert world.of(e.WriteRecord) == []
    assert world.machine.report().phase == "running"
    world.handle(e.Signalled(e.failure("memory_exceeded", "request", "Too much.", "")))
    report = world.of(e.WriteRecord)[-1].report
    assert (report.ending, report.error["code"]) == ("failed", "memory_exceeded")


@STOPPED
def test_a_program_that_nobody_stopped_ended_by_itself(status: int, signal: int) -> None:
    world = released()
    at = world.now
    world.handle(e.ProcessEnded("one", at, status, signal))
    assert world.of(e.StopNodes) == [e.StopNodes(SETTINGS.grace)]
    for node in NODES:
        world.handle(e.NodeEmptied(node))
    world.pass_time(at + SECOND * 60)
    assert world.at(e.WriteRecord) == [at + SIGNAL_PATIENCE]
    report = world.of(e.WriteRecord)[-1].report
    assert (report.ending, report.error["code"]) == ("killed" if signal else "exited", "process_failed")


def test_a_node_that_is_lost_right_after_a_stopped_process_was_stopped_with_it() -> None:
    world = released()
    world.handle(e.ProcessEnded("one", world.now, 143, 0))
    world.handle(e.NodeLost("two"))
    world.handle(e.NodeEmptied("one"))
    world.pass_time(world.now + SIGNAL_PATIENCE)
    report = world.of(e.WriteRecord)[-1].report
    assert (report.ending, report.error["code"]) == ("killed", "agent_lost")


@pytest.mark.parametrize("force", [False, True])
def test_a_stop_that_overtakes_the_wrappers_own_signal_has_ended_the_program(force: bool) -> None:
    world = released()
    world.handle(e.ProcessEnded("one", world.now, 143, 0))
    world.handle(e.StopReceived(force))
    assert world.of(e.StopNodes) == [e.StopNodes(SETTINGS.grace), *([e.StopNodes(0)] if force else [])]
    assert empty(world).ending == "cancelled"


def test_an_unreachable_node_has_not_ended_before_the_time_out_of_its_agent() -> None:
    world = released()
    at = world.now
    world.handle(e.NodeLost("one", sure=False))
    world.handle(e.NodeEmptied("two"))
    assert world.of(e.StopNodes) == [e.StopNodes(SETTINGS.grace)]
    over = at + until_ended(SETTINGS.orphan_timeout, SETTINGS.grace)
    world.pass_time(over + SECOND)
    assert world.at(e.WriteRecord)[0] == over
    assert world.of(e.WriteRecord)[0].report.ending == "killed"


def test_a_node_that_was_unreachable_before_the_release_has_nothing_to_end() -> None:
    world = ready()
    world.handle(e.NodeLost("one", sure=False))
    assert empty(world).ending == "killed"


def test_only_an_attempt_without_relay_and_shared_directory_is_an_orphan() -> None:
    world = released()
    start = world.now
    world.handle(e.RelayLost(world.now))
    for _ in range(3):
        world.pass_time(world.now + 100 * SECOND)
        world.handle(e.SharedReached())
    assert world.of(e.StopNodes) == []
    world.pass_time(world.now + SETTINGS.orphan_timeout)
    assert world.at(e.StopNodes) == [start + 300 * SECOND + SETTINGS.orphan_timeout]
    error = empty(world).error
    assert error is not None
    assert error["code"] == "orphaned"


def test_the_orphan_timeout_counts_from_the_last_message_of_the_relay() -> None:
    world = released()
    contact_at = world.now + 5 * SECOND
    world.now += 40 * SECOND
    world.handle(e.RelayLost(contact_at))
    world.pass_time(contact_at + SETTINGS.orphan_timeout)
    assert world.at(e.StopNodes) == [contact_at + SETTINGS.orphan_timeout]


def test_an_orphan_that_was_suspended_has_no_grace_left() -> None:
    world = released()
    world.handle(e.RelayLost(world.now))
    world.now += SETTINGS.orphan_timeout + 2 * SECOND
    world.pass_time(world.now)
    assert [stop.grace for stop in world.of(e.StopNodes)] == [SETTINGS.grace - 2 * SECOND]


def test_an_attempt_that_was_suspended_for_long_is_no_orphan_while_it_searches_its_relay() -> None:
    world = released()
    contact_at = world.now
    world.now += 2 * SETTINGS.orphan_timeout
    resumed_at = world.now
    world.handle(e.Resumed())
    world.handle(e.RelayLost(contact_at))
    world.pass_time(resumed_at + SETTINGS.orphan_timeout)
    assert world.at(e.StopNodes) == [resumed_at + SETTINGS.orphan_timeout]


def test_no_walltime_passes_while_the_host_sleeps() -> None:
    """A job on a laptop that slept for a night neither reaches its walltime nor becomes an orphan by that."""
    world = released()
    at_release, slept = world.now, 30 * SETTINGS.walltime
    world.handle(e.RelayLost(world.now))
    world.now += slept
    world.handle(e.Resumed(slept))
    world.handle(e.RelayEntered())
    world.pass_time(at_release + slept + SETTINGS.walltime)
    assert world.at(e.StopNodes) == [at_release + slept + SETTINGS.walltime]
    assert empty(world).ending == "walltime"


def test_a_barrier_does_not_wait_for_a_host_that_slept() -> None:
    """The other attempts have left by then: koalad's own deadline has passed."""
    world = ready()
    came_at = world.now
    world.now += 2 * SETTINGS.barrier_timeout
    world.handle(e.Resumed(2 * SETTINGS.barrier_timeout))
    world.pass_time(world.now)
    assert world.at(e.StopNodes) == [came_at + 2 * SETTINGS.barrier_timeout]


def test_a_second_start_reports_restarted_and_prepares_nothing() -> None:
    machine = Machine(SETTINGS, 0)
    [write] = machine.handle(0, e.ClaimedBefore(None))
    assert write.only_if_none
    assert write.report.ending == "restarted"
    assert machine.handle(1, e.ReleaseReceived(0, [])) == []
    assert machine.handle(2, e.RecordWritten()) == []
    assert machine.handle(3, e.RelayEntered()) == [e.SendReport(write.report), e.Leave(1)]


def test_a_void_attempt_leaves_at_once() -> None:
    machine = Machine(SETTINGS, 0)
    assert machine.handle(0, e.AttemptRevoked()) == [e.Leave(0)]
    assert machine.handle(1, e.RelayEntered()) == []
    assert machine.next_wakeup() is None


def test_a_program_is_suspended_and_resumed_and_the_time_between_is_not_its_walltime() -> None:
    world = released()
    start = world.now
    world.pass_time(start + 100 * SECOND)
    world.handle(e.SuspendRequested())
    world.handle(e.SuspendRequested())
    assert len(world.of(e.SuspendNodes)) == 1
    world.handle(e.Resumed(20 * SECOND))  # its host has slept, which resumes no program
    world.pass_time(start + 5000 * SECOND)
    assert (world.of(e.ResumeNodes), world.of(e.StopNodes)) == ([], [])
    world.handle(e.Resumed())
    assert len(world.of(e.ResumeNodes)) == 1
    world.pass_time(start + 6000 * SECOND)
    assert world.at(e.StopNodes) == [start + 4900 * SECOND + SETTINGS.walltime]


def test_a_suspended_program_can_be_ended_and_one_that_ends_is_not_suspended() -> None:
    world = released()
    world.handle(e.SuspendRequested())
    world.handle(e.StopReceived(force=False))
    assert [each.grace for each in world.of(e.StopNodes)] == [SETTINGS.grace]
    assert empty(world).ending == "cancelled"
    world = released()
    world.handle(e.StopReceived(force=False))
    world.handle(e.SuspendRequested())
    assert world.of(e.SuspendNodes) == []


def test_nothing_is_suspended_before_the_release() -> None:
    world = ready()
    world.handle(e.SuspendRequested())
    assert world.of(e.SuspendNodes) == []
