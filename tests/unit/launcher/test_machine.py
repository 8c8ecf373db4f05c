"""The decisions of a Launcher, without process, socket or clock."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from koalapy_adapters.clock import SECOND
from koalapy_adapters.launcher import events as e
from koalapy_adapters.launcher.machine import Machine, Settings
from koalapy_adapters.messages.launcher import (
    FeedParameters,
    LauncherTrusted,
    NodeSuspected,
    ParametersGivenUp,
    ParametersHeld,
    ProgressReported,
    PullParameters,
    ResultsCommitted,
    ResultsReported,
)
from koalapy_adapters.ranges import numbers_of

MS = SECOND // 1000
SETTINGS = Settings("node1", 2, 600 * SECOND, 4 * SECOND, 3600 * SECOND, 5 * SECOND)


class Game:
    """A machine, the parameters that it holds for its KCM, and the queue of its node."""

    def __init__(self, **wishes: Any) -> None:
        self.now = 0
        self.machine = Machine(SETTINGS._replace(**wishes), 0)
        self.queue: list[int] = []
        self.said: list[Any] = []
        self.journal: list[int] = []
        self.stopped: int | None = None
        self.on_trial, self.left = True, False

    def apply(self, event: Any) -> list[Any]:
        """Return the machine's answer to the event."""
        return self._do(self.machine.handle(self.now, event))

    def receive(self, message: Any) -> list[Any]:
        return self.apply(e.Received(message))

    def wait(self, microseconds: int) -> list[Any]:
        """Let time pass. Returns the messages meanwhile."""
        end, said = self.now + microseconds, []
        while not self.left and self.machine.next_wakeup() <= end:
            self.now = max(self.now, self.machine.next_wakeup())
            said += self._do(self.machine.tick(self.now))
        self.now = end
        return said

    def run(self, *numbers: int, took: int = MS, status: int = 0) -> list[Any]:
        """Let the slots run these parameters."""
        for number in numbers:
            self.queue.remove(number)
        rows = [row(number, self.now, took, status) for number in numbers]
        self.now += took
        loose = rows if self.on_trial and status and took < SECOND else []
        if not loose:
            self.journal += numbers
        return self.apply(e.Finished([] if loose else rows, loose))

    def _do(self, commands: list[Any]) -> list[Any]:
        said = []
        for command in commands:
            if isinstance(command, e.Send):
                said.append(command.message)
            elif isinstance(command, e.Queue):
                self.queue += command.numbers
            elif isinstance(command, e.TakeBack):
                taken, self.queue = self.queue, []
                said += self.apply(e.TakenBack(taken))
            elif isinstance(command, e.WriteJournal):
                self.journal += [each[0] for each in command.rows]
            elif isinstance(command, e.EndTrial):
                self.on_trial = False
            elif isinstance(command, e.StopSlots):
                self.stopped = command.grace
            elif isinstance(command, e.Leave):
                self.left = True
        self.said += said
        return said


def row(number: int, at: int = 0, took: int = MS, status: int = 0) -> list[Any]:
    return [number, status, "exited", "node1", 0, at, at + took, 0, 0, 0, 0]


@pytest.fixture
def game() -> Game:
    made = Game()
    made.apply(e.Connected())
    return made


def of(kind: type[Any], said: list[Any]) -> list[Any]:
    return [message for message in said if isinstance(message, kind)]


# ---- what it pulls


def test_the_first_pull_asks_for_one_parameter_for_each_slot() -> None:
    assert Game().apply(e.Connected()) == [ParametersHeld([], 2), PullParameters(2, 0)]


def test_the_next_long_parameter_is_pulled_when_one_has_ended(game: Game) -> None:
    assert game.receive(FeedParameters([[1, 2]])) == []
    assert game.run(1, took=SECOND) == [ResultsReported(1, [row(1, 0, SECOND)]), PullParameters(1, 2)]
    assert of(PullParameters, game.receive(FeedParameters([[3, 3]]))) == []


def test_short_parameters_are_pulled_a_tenth_of_a_second_ahead(game: Game) -> None:
    number = 0
    for _ in range(12):
        wanted = of(PullParameters, game.said)[-1]
        game.receive(FeedParameters([[number + 1, number + wanted.wanted]]))
        game.run(*range(number + 1, number + wanted.wanted + 1))
        number += wanted.wanted
    assert of(PullParameters, game.said)[-1].wanted == 202


def test_a_pull_counts_what_has_come_so_that_nothing_is_given_twice(game: Game) -> None:
    game.receive(FeedParameters([[1, 2]]))
    game.run(1, took=SECOND)
    assert of(PullParameters, game.run(2, took=SECOND))[-1] == PullParameters(2, 2)
    game.receive(FeedParameters([[3, 3]]))
    assert of(PullParameters, game.said)[-1].given == 2


def test_parameters_that_wait_behind_long_ones_are_given_back(game: Game) -> None:
    game.receive(FeedParameters([[1, 4]]))
    game.queue = [3, 4]
    game.now = 2 * SECOND
    assert game.apply(e.Looked(2, 2, 0)) == [ProgressReported(2, 0), ParametersGivenUp([[3, 4]], [])]


def test_the_parameter_of_a_slot_that_died_is_queued_again(game: Game) -> None:
    game.receive(FeedParameters([[1, 2]]))
    game.queue = []
    game.now = 2 * SECOND
    game.apply(e.Looked(0, 0, 0))
    assert game.queue == [1, 2]


# ---- connections


def test_a_result_is_repeated_until_it_is_committed(game: Game) -> None:
    game.receive(FeedParameters([[1, 2]]))
    ended = of(ResultsReported, game.run(1))[0]
    game.apply(e.Disconnected())
    said = game.apply(e.Connected()) + game.wait(SECOND // 10)
    assert said[0] == ParametersHeld([[2, 2]], 2)
    assert of(ResultsReported, said) == [ended]
    game.receive(ResultsCommitted(1))
    game.apply(e.Disconnected())
    assert of(ResultsReported, game.apply(e.Connected()) + game.wait(SECOND // 10)) == []


def test_repeated_results_come_before_the_first_pull(game: Game) -> None:
    game.receive(FeedParameters([[1, 2]]))
    game.run(1)
    game.apply(e.Disconnected())
    assert [type(message) for message in game.apply(e.Connected())] == [ParametersHeld, ResultsReported, PullParameters]


def test_results_of_short_parameters_are_sent_together(game: Game) -> None:
    game.receive(FeedParameters([[1, 40]]))
    for number in range(1, 41):
        game.run(number)
    assert len(of(ResultsReported, game.said)) <= 2


def test_parameters_to_give_back_are_held_until_there_is_a_connection(game: Game) -> None:
    game.receive(FeedParameters([[1, 4]]))
    game.queue = [3, 4]
    game.apply(e.Disconnected())
    game.now = 2 * SECOND
    game.apply(e.Looked(2, 2, 0))
    said = game.apply(e.Connected())
    assert (of(ParametersHeld, said), of(ParametersGivenUp, said)) == (
        [ParametersHeld([[1, 4]], 2)],
        [ParametersGivenUp([[3, 4]], [])],
    )


def test_a_number_that_is_given_again_is_not_queued_again(game: Game) -> None:
    game.receive(FeedParameters([[1, 1]]))
    game.receive(FeedParameters([[1, 2]]))
    assert game.queue == [1, 2]


def test_a_launcher_without_a_connection_stops_after_the_orphan_timeout(game: Game) -> None:
    game.apply(e.Disconnected())
    game.wait(SETTINGS.orphan_timeout - 1)
    assert game.stopped is None
    game.wait(1)
    assert game.stopped == SETTINGS.grace


def test_the_orphan_timeout_of_a_suspended_launcher_counts_from_its_resumption(game: Game) -> None:
    game.apply(e.Disconnected())
    game.now += 2 * SETTINGS.orphan_timeout
    game.apply(e.Resumed())
    game.wait(SETTINGS.orphan_timeout - 1)
    assert game.stopped is None
    game.wait(1)
    assert game.stopped == SETTINGS.grace


# ---- black holes


def test_too_few_failures_raise_no_suspicion_and_are_reported_in_the_end(game: Game) -> None:
    game.receive(FeedParameters([[1, 2]]))
    assert of(ResultsReported, game.run(1, 2, status=1)) == []
    game.now += 2 * SECOND
    assert [each[0] for each in of(ResultsReported, game.apply(e.Looked(0, 0, 0)))[0].results] == [1, 2]
    assert game.journal == [1, 2]


def test_many_failures_at_once_are_held_and_waiting_parameters_given_back(game: Game) -> None:
    game.receive(FeedParameters([[1, 10]]))
    said = game.run(*range(1, 9), status=1)
    assert (of(NodeSuspected, said), of(ParametersGivenUp, said), of(ResultsReported, said)) == (
        [NodeSuspected("node1")],
        [ParametersGivenUp([[9, 10]], [])],
        [],
    )
    assert of(PullParameters, game.wait(10 * SECOND)) == []


def test_a_slow_parameter_that_ends_well_clears_the_node(game: Game) -> None:
    game.receive(FeedParameters([[1, 9]]))
    game.queue.remove(1)  # a slot has it
    assert of(NodeSuspected, game.run(*range(2, 10), status=1))
    assert of(PullParameters, game.apply(e.Finished([row(1, game.now, MS, 0)], []))), "it goes on withheld"
    assert sorted(game.journal) == list(range(2, 10))


def test_a_suspicion_is_repeated_over_the_next_connection(game: Game) -> None:
    game.receive(FeedParameters([[1, 8]]))
    game.run(*range(1, 9), status=1)
    game.apply(e.Disconnected())
    said = game.apply(e.Connected())
    assert said[:2] == [ParametersHeld([[1, 8]], 2), NodeSuspected("node1")]
    assert of(PullParameters, said) == [PullParameters(0, 0)]


def test_a_trusted_launcher_continues(game: Game) -> None:
    game.receive(FeedParameters([[1, 8]]))
    game.run(*range(1, 9), status=1)
    game.now += SECOND
    said = game.receive(LauncherTrusted())
    assert [each[0] for each in of(ResultsReported, said)[0].results] == list(range(1, 9))
    assert of(PullParameters, said)[0].wanted >= 2


def test_slow_failures_raise_no_suspicion(game: Game) -> None:
    game.receive(FeedParameters([[1, 20]]))
    said = game.run(*range(1, 21), status=1, took=2 * SECOND)
    assert len(of(ResultsReported, said)[0].results) == 20


# ---- the end


def test_near_its_walltime_a_launcher_begins_no_parameter_that_would_not_end(game: Game) -> None:
    game.receive(FeedParameters([[1, 2]]))
    game.run(1, took=100 * SECOND)
    game.queue = []
    game.wait((3600 - 4 - 2 - 125) * SECOND - game.now)
    assert of(ParametersGivenUp, game.receive(FeedParameters([[3, 3]]))) == [ParametersGivenUp([[3, 3]], [])]
    assert game.queue == []


def test_the_time_of_a_suspension_does_not_count_as_time_of_a_parameter(game: Game) -> None:
    """Otherwise the Launcher would drain, though twenty more parameters would end before its walltime."""
    game.receive(FeedParameters([[1, 2]]))
    game.wait(1500 * SECOND)
    began = game.now - 50 * SECOND
    game.now += 1500 * SECOND
    game.apply(e.Resumed())
    game.queue = []
    said = game.apply(e.Finished([row(1, began, 1500 * SECOND + 60 * SECOND)], []))
    assert of(PullParameters, said) == [PullParameters(1, 2)]
    game.receive(FeedParameters([[3, 3]]))
    assert game.queue == [3]


def test_no_walltime_passes_while_the_host_sleeps(game: Game) -> None:
    game.receive(FeedParameters([[1, 2]]))
    slept = 2 * 3600 * SECOND
    game.now += slept
    game.apply(e.Resumed(slept))
    game.wait(1500 * SECOND)
    assert game.stopped is None
    assert not game.left


def test_a_drained_launcher_leaves(game: Game) -> None:
    game.wait(3590 * SECOND)
    assert game.stopped == 0
    assert game.apply(e.SlotsStopped([])) == [ParametersGivenUp([], [])]
    assert game.left


def test_programs_that_still_run_near_the_walltime_are_stopped(game: Game) -> None:
    game.receive(FeedParameters([[1, 2]]))
    game.queue = []
    game.wait(3594 * SECOND)
    assert game.stopped == SETTINGS.grace
    assert game.apply(e.SlotsStopped([1, 2])) == [ParametersGivenUp([[1, 2]], [[1, 2]])]


def test_a_stopped_launcher_gives_back_what_is_not_done(game: Game) -> None:
    game.receive(FeedParameters([[1, 4]]))
    game.run(1)
    game.apply(e.Signalled())
    assert game.stopped == SETTINGS.grace
    assert game.apply(e.SlotsStopped([2, 3])) == [ParametersGivenUp([[2, 4]], [[2, 3]])]
    assert game.left


def test_the_parameter_of_a_slot_that_was_killed_before_its_launcher_counts_as_begun(game: Game) -> None:
    """A cancel of the batch job signals all its processes: a slot may end before the Launcher gets the signal."""
    game.receive(FeedParameters([[1, 3]]))
    game.apply(e.SlotLost(0, 1, game.now))
    game.apply(e.SlotLost(1, 2, game.now))
    game.run(2)
    game.apply(e.Signalled())
    assert game.apply(e.SlotsStopped([])) == [ParametersGivenUp([[1, 1], [3, 3]], [[1, 1]])]


class Anything(RuleBasedStateMachine):
    """In any order of events each given number is held, reported as done, or given back, exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.game = Game()
        self.connected = False
        self.next = 1
        self.given: set[int] = set()

    def holds(self) -> set[int]:
        return set(self.game.machine._held)

    @rule()
    def connect_or_not(self) -> None:
        self.connected = not self.connected
        self.game.apply(e.Connected() if self.connected else e.Disconnected())

    @precondition(lambda self: self.connected)
    @rule(count=st.integers(1, 30))
    def give(self, count: int) -> None:
        numbers = range(self.next, self.next + count)
        self.next += count
        self.given.update(numbers)
        self.game.receive(FeedParameters([[numbers[0], numbers[-1]]]))

    @precondition(lambda self: self.game.queue)
    @rule(count=st.integers(1, 9), status=st.integers(0, 1), took=st.sampled_from([MS, SECOND // 2, 3 * SECOND]))
    def run(self, count: int, status: int, took: int) -> None:
        self.game.run(*self.game.queue[:count], took=took, status=status)

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.game.wait(int(seconds * SECOND))

    @rule(running=st.integers(0, 2))
    def look(self, running: int) -> None:
        waiting = max(0, len(self.game.queue) - running)
        self.game.apply(e.Looked(min(running, len(self.game.queue)), waiting, self.game.now))

    @precondition(lambda self: self.connected)
    @rule()
    def trust(self) -> None:
        self.game.receive(LauncherTrusted())

    @invariant()
    def each_number_is_in_one_place(self) -> None:
        done = {each[0] for message in of(ResultsReported, self.game.said) for each in message.results}
        back = {number for message in of(ParametersGivenUp, self.game.said) for number in numbers_of(message.ranges)}
        waiting = {each[0] for each in self.game.machine._results._rows}
        assert self.holds() | done | back | waiting == self.given
        assert not self.holds() & (done | back | waiting)
        assert not done & back
        assert set(self.game.journal) == done | waiting


TestAnything = Anything.TestCase
