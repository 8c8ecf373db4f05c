"""The sweeps of one KCM, message by message: what it gives to Launchers, asks for and reports, in their order."""

from itertools import pairwise
from typing import Any

import pytest
from kcm_machine import SECOND, T0, machine, measured, operations, to_koalad
from koalapy_adapters.batch.protocol import ENDED, RUNNING, SUSPENDED, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.kcm.sweeps.results import GATHER, ROWS
from koalapy_adapters.messages import from_json, to_json
from koalapy_adapters.messages.kcm import (
    CleanedUp,
    Event,
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    Report,
)
from koalapy_adapters.messages.koalad import (
    Acknowledge,
    Cancel,
    FeedSweep,
    Forget,
    RecallParameters,
    Submit,
    TrustLauncher,
)
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
from koalapy_adapters.messages.relay import ToLauncher

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

SWEEP = 9
FIRST, SECOND_ONE = (str(tag_of(InstanceId("abcde"), AttemptId(JobId(FIRST_LAUNCHER + n), 0, 1))) for n in (1, 2))


def row(number: int, at: int = T0) -> list[Any]:
    return [number, 0, "exited", "n1", 0, at, at, 0, 0, 0, 0]


def receive(kcm: Machine, message: Any, tag: str = FIRST, at: int = T0) -> list[Any]:
    return kcm.handle(at, do.LauncherReported(tag, to_json(message)))


def to_launchers(actions: list[Any]) -> list[tuple[str, Any]]:
    """Return the messages among these actions that go to Launchers, each with the Launcher's tag."""
    sent = [action for action in actions if isinstance(action, do.SendToWrapper)]
    return [(each.tag, from_json(each.message.body)) for each in sent if isinstance(each.message, ToLauncher)]


def kinds(actions: list[Any]) -> list[type]:
    return [type(message) for message in to_koalad(actions)]


def with_launchers(*tags: str, slots: int = 4) -> Machine:
    """A machine that has submitted these Launchers; they are connected and hold no parameters."""
    kcm = machine()
    kcm.handle(T0, measured(T0))
    for number, tag in enumerate(tags, start=1):
        kcm.handle(T0, Submit(number, tag, {}, {"grace": 1.0, "sweep": {"sweep": SWEEP, "slots": slots}}))
        kcm.handle(T0, do.Prepared(tag))
        kcm.handle(T0, do.JobSubmitted(tag, str(number)))
        kcm.handle(T0, do.WrapperConnected(tag, T0))
        receive(kcm, ParametersHeld([], slots), tag)
    return kcm


def measured_state(state: str, tag: str) -> do.CapacityMeasured:
    """Return a measurement in which this Launcher has a state, and the other one runs."""
    states = {each: state if each == tag else RUNNING for each in (FIRST, SECOND_ONE)}
    statuses = {str(n): JobStatus(str(n), each, state) for n, (each, state) in enumerate(states.items(), start=1)}
    event = measured(T0)
    assert event.capacity is not None
    return event._replace(capacity=event.capacity._replace(statuses=statuses))


def running_sweep() -> Machine:
    """A machine with ten parameters, of which FIRST has 1 to 6."""
    kcm = with_launchers(FIRST)
    kcm.handle(T0, FeedSweep(SWEEP, [[1, 10]], True, [FIRST]))
    receive(kcm, PullParameters(6))
    return kcm


def new_kcm(*numbers: int) -> Machine:
    """A machine that knows both Launchers from the hello, and of which these numbers are out."""
    kcm = machine([FIRST, "1"], [SECOND_ONE, "2"])
    kcm.start(T0)
    kcm.handle(T0, FeedSweep(SWEEP, [[number, number] for number in numbers], True, [FIRST, SECOND_ONE]))
    return kcm


def ended(tag: str = FIRST) -> do.WrapperReported:
    return do.WrapperReported(tag, {"tag": tag, "batch_id": "1", "phase": "ended", "nodes": [], "ending": "exited"})


class TestGiving:
    def test_no_more_is_given_than_was_pulled(self) -> None:
        kcm = with_launchers(FIRST)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 10]], True, [FIRST]))
        assert to_launchers(receive(kcm, PullParameters(6))) == [(FIRST, FeedParameters([[1, 6]]))]
        assert to_launchers(receive(kcm, PullParameters(3, given=6))) == [(FIRST, FeedParameters([[7, 9]]))]

    def test_a_pull_that_crossed_a_give_is_not_served_twice(self) -> None:
        kcm = running_sweep()
        assert to_launchers(receive(kcm, PullParameters(6, given=0))) == []
        assert to_launchers(receive(kcm, PullParameters(2, given=6))) == [(FIRST, FeedParameters([[7, 8]]))]

    def test_the_remaining_parameters_are_shared_but_each_slot_gets_one(self) -> None:
        kcm = with_launchers(FIRST, SECOND_ONE)
        receive(kcm, PullParameters(300))
        receive(kcm, PullParameters(300), SECOND_ONE)
        given = to_launchers(kcm.handle(T0, FeedSweep(SWEEP, [[1, 20]], True, [FIRST, SECOND_ONE])))
        assert given == [(FIRST, FeedParameters([[1, 10]])), (SECOND_ONE, FeedParameters([[11, 20]]))]
        given = to_launchers(kcm.handle(T0, FeedSweep(SWEEP, [[21, 22]])))
        assert [tag for tag, _ in given] == [FIRST, SECOND_ONE]

    def test_a_suspended_launcher_gets_no_parameters_until_it_continues(self) -> None:
        kcm = with_launchers(FIRST, SECOND_ONE)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 8]], True, [FIRST, SECOND_ONE]))
        receive(kcm, PullParameters(4))
        receive(kcm, PullParameters(4), SECOND_ONE)
        receive(kcm, PullParameters(4, given=4))
        kcm.handle(T0, measured_state(SUSPENDED, FIRST))
        assert kcm.is_suspended(FIRST)
        receive(kcm, PullParameters(4, given=4), SECOND_ONE)
        assert to_launchers(kcm.handle(T0, FeedSweep(SWEEP, [[9, 12]]))) == [(SECOND_ONE, FeedParameters([[9, 12]]))]
        assert to_launchers(kcm.handle(T0, FeedSweep(SWEEP, [[13, 16]]))) == []
        assert to_launchers(kcm.handle(T0, measured_state(RUNNING, FIRST))) == [(FIRST, FeedParameters([[13, 16]]))]
        assert not kcm.is_suspended(FIRST)

    def test_a_feed_before_the_first_complete_one_is_ignored(self) -> None:
        kcm = with_launchers(FIRST)
        receive(kcm, PullParameters(4))
        assert to_launchers(kcm.handle(T0, FeedSweep(SWEEP, [[1, 4]]))) == []
        assert to_launchers(kcm.handle(T0, FeedSweep(SWEEP, [[1, 4]], True, [FIRST]))) == [
            (FIRST, FeedParameters([[1, 4]]))
        ]

    def test_a_number_that_is_fed_twice_is_given_once(self) -> None:
        kcm = running_sweep()
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 12]]))
        assert to_launchers(receive(kcm, PullParameters(6, given=6))) == [(FIRST, FeedParameters([[7, 12]]))]


class TestAsking:
    def test_the_first_pull_asks_for_the_wanted_parameters_and_one_more_for_each_slot(self) -> None:
        kcm = with_launchers(FIRST)
        asked = to_koalad(receive(kcm, PullParameters(6)))
        assert asked == [ParametersWanted(SWEEP, 6)]
        (more,) = to_koalad(kcm.handle(T0, FeedSweep(SWEEP, [[1, 6]], True, [FIRST])))
        assert more == ParametersWanted(SWEEP, 4)

    def test_a_request_that_is_not_answered_is_repeated_less_and_less_often(self) -> None:
        kcm = with_launchers(FIRST)
        kcm.handle(T0, FeedSweep(SWEEP, [], True, [FIRST]))
        assert kinds(receive(kcm, PullParameters(6))) == [ParametersWanted]
        assert kinds(receive(kcm, PullParameters(5))) == []
        asked = [
            at
            for at in range(T0, T0 + 20 * SECOND, SECOND // 10)
            for kind in kinds(kcm.tick(at))
            if kind is ParametersWanted
        ]
        waits = [later - sooner for sooner, later in pairwise(asked)]
        assert len(waits) >= 3
        assert waits == sorted(waits)

    def test_the_inventory_grows_with_the_rate(self) -> None:
        kcm = with_launchers(FIRST)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 2000]], True, [FIRST]))
        receive(kcm, PullParameters(1000))
        asked: list[ParametersWanted] = []
        for number in range(1, 21):
            at = T0 + number * SECOND // 10
            rows = [row(each) for each in range((number - 1) * 50 + 1, number * 50 + 1)]
            actions = receive(kcm, ResultsReported(number, rows), at=at) + receive(
                kcm, PullParameters(50, 950 + 50 * number), at=at
            )
            asked += [each for each in to_koalad(actions) if isinstance(each, ParametersWanted)]
        assert asked  # 500 a second: the inventory has to last for two seconds and a round trip
        assert 260 <= asked[0].wanted <= 700

    def test_a_recall_returns_the_last_parameters_and_leaves_an_empty_inventory(self) -> None:
        kcm = running_sweep()
        back = to_koalad(kcm.handle(T0, RecallParameters(SWEEP, 3)))
        assert back == [ParametersReturned(SWEEP, [[8, 10]])]
        assert to_koalad(kcm.handle(T0, RecallParameters(SWEEP, 100))) == [ParametersReturned(SWEEP, [[7, 7]])]
        assert to_koalad(kcm.handle(T0, RecallParameters(SWEEP, 1))) == [ParametersReturned(SWEEP, [])]

    def test_a_recall_for_an_unknown_sweep_is_answered_too(self) -> None:
        assert to_koalad(machine().handle(T0, RecallParameters(77, 5)))[0] == ParametersReturned(77, [])

    def test_parameters_without_a_launcher_are_returned_without_a_recall(self) -> None:
        kcm = running_sweep()
        receive(kcm, ParametersGivenUp([[1, 6]], [[1, 4]]))
        kcm.handle(T0, ended())
        due = kcm.wakeup()
        assert due is not None
        later = to_koalad(kcm.tick(T0 + 2 * SECOND))
        assert ParametersReturned(SWEEP, [[7, 10]]) in later


class TestResults:
    def test_results_that_come_together_are_one_event_and_are_kept_once_acknowledged(self) -> None:
        kcm = running_sweep()
        quiet = receive(kcm, ResultsReported(1, [row(1)])) + receive(kcm, ResultsReported(2, [row(2), row(3)]))
        assert ParametersEnded not in kinds(quiet)
        sent = [action.message for action in kcm.tick(T0 + GATHER) if isinstance(action, do.Send)]
        (event,) = [each for each in sent if each.body["type"] == "parameters_ended"]
        assert from_json(event.body) == ParametersEnded(SWEEP, FIRST, [row(1), row(2), row(3)])
        assert to_launchers(kcm.handle(T0 + GATHER, Acknowledge(event.number))) == [(FIRST, ResultsCommitted(2))]

    def test_a_repeated_result_is_not_reported_twice(self) -> None:
        kcm = running_sweep()
        receive(kcm, ResultsReported(1, [row(1)]))
        kcm.tick(T0 + GATHER)
        kcm.handle(T0, do.WrapperDisconnected(FIRST))
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        receive(kcm, ParametersHeld([[2, 6]], 4))
        receive(kcm, ResultsReported(1, [row(1)]))
        assert ParametersEnded not in kinds(kcm.tick(T0 + 2 * GATHER))

    def test_instants_of_results_are_mapped_to_the_kcms_clock(self) -> None:
        kcm = running_sweep()
        kcm.handle(T0, do.WrapperConnected(FIRST, T0 - 40))
        receive(kcm, ParametersHeld([[1, 6]], 4))
        receive(kcm, ResultsReported(1, [row(1, T0 - 100)]))
        done = [each for each in to_koalad(kcm.tick(T0 + GATHER)) if isinstance(each, ParametersEnded)]
        assert done[0].results[0][5:7] == [T0 - 60, T0 - 60]

    def test_many_results_are_sent_at_once_in_events_that_fit_a_frame(self) -> None:
        kcm = with_launchers(FIRST)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 4000]], True, [FIRST]))
        receive(kcm, PullParameters(4000))
        wide = [[*row(number)[:3], "h" * 400, *row(number)[4:]] for number in range(1, 4001)]
        sent = receive(kcm, ResultsReported(1, wide))
        events = [action.message for action in sent if isinstance(action, do.Send)]
        done = [each for each in to_koalad(sent) if isinstance(each, ParametersEnded)]
        assert [len(each.results) for each in done] == [ROWS, ROWS, 4000 - 2 * ROWS]
        assert all(len(str(event.body)) < 1 << 20 for event in events)

    def test_an_invalid_result_is_ignored(self) -> None:
        kcm = running_sweep()
        receive(kcm, ResultsReported(1, [row(1), ["2"], row(3)[:-1], [*row(4)[:2], 5, *row(4)[3:]]]))
        done = [each for each in to_koalad(kcm.tick(T0 + GATHER)) if isinstance(each, ParametersEnded)]
        assert done == [ParametersEnded(SWEEP, FIRST, [row(1)])]

    @pytest.mark.parametrize(
        "body", [{"type": "nonsense"}, {"type": "results_committed", "number": 1}, {}, {"type": "pull_parameters"}]
    )
    def test_a_message_that_no_launcher_sends_changes_nothing(self, body: dict[str, Any]) -> None:
        kcm = running_sweep()
        assert to_launchers(kcm.handle(T0, do.LauncherReported(FIRST, body))) == []


class TestReconnecting:
    def test_parameters_that_were_lost_on_their_way_are_given_again_after_a_reconnect(self) -> None:
        kcm = running_sweep()
        kcm.handle(T0, do.WrapperDisconnected(FIRST))
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        receive(kcm, ParametersHeld([[1, 2]], 4))
        receive(kcm, ResultsReported(1, [row(3)]))
        assert to_launchers(receive(kcm, PullParameters(5))) == [(FIRST, FeedParameters([[4, 8]]))]

    def test_nothing_is_given_to_a_launcher_before_it_has_reported_what_it_holds(self) -> None:
        kcm = running_sweep()
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        assert to_launchers(receive(kcm, PullParameters(3))) == []

    def test_a_new_kcm_gives_nothing_before_all_launchers_have_reported_what_they_hold(self) -> None:
        kcm = new_kcm(1, 2, 3, 4, 5)
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        receive(kcm, ParametersHeld([[1, 2]], 4))
        assert to_launchers(receive(kcm, PullParameters(4))) == []
        kcm.handle(T0, do.WrapperConnected(SECOND_ONE, T0))
        receive(kcm, ParametersHeld([[4, 4]], 4), SECOND_ONE)
        receive(kcm, ResultsReported(1, [row(5)]), SECOND_ONE)
        assert to_launchers(receive(kcm, PullParameters(0), SECOND_ONE)) == [(FIRST, FeedParameters([[3, 3]]))]

    def test_messages_that_come_before_the_feed_are_handled_after_it(self) -> None:
        kcm = machine([FIRST, "1"])
        kcm.start(T0)
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        for message in (ParametersHeld([[1, 2]], 4), ResultsReported(7, [row(3)]), PullParameters(1)):
            assert to_launchers(receive(kcm, message)) == []
        assert to_launchers(kcm.handle(T0, FeedSweep(SWEEP, [[1, 4]], True, [FIRST]))) == [
            (FIRST, FeedParameters([[4, 4]]))
        ]

    @pytest.mark.parametrize("start_lock", ["", "void"])
    def test_a_launcher_that_has_not_begun_is_not_waited_for(self, start_lock: str) -> None:
        kcm = new_kcm(1, 2, 3)
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        receive(kcm, ParametersHeld([[1, 1]], 4))
        receive(kcm, PullParameters(4))
        statuses = {SECOND_ONE: do.DirectoryStatus(start_lock, None, 0, "/d")}
        assert to_launchers(kcm.handle(T0, do.Inspected([SECOND_ONE], statuses))) == [(FIRST, FeedParameters([[2, 3]]))]

    def test_a_launcher_that_has_begun_is_waited_for(self) -> None:
        kcm = new_kcm(1, 2, 3)
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        receive(kcm, ParametersHeld([[1, 1]], 4))
        receive(kcm, PullParameters(4))
        statuses = {SECOND_ONE: do.DirectoryStatus("taken", None, 0, "/d")}
        assert to_launchers(kcm.handle(T0, do.Inspected([SECOND_ONE], statuses))) == []

    def test_a_second_complete_feed_gives_nothing_twice(self) -> None:
        kcm = running_sweep()
        receive(kcm, ResultsReported(1, [row(1)]))
        receive(kcm, ParametersGivenUp([[6, 6]], [[6, 6]]))
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 10]], True, [FIRST]))
        assert to_launchers(receive(kcm, PullParameters(20, given=6))) == [(FIRST, FeedParameters([[7, 10]]))]


class TestEnds:
    def test_results_and_returned_parameters_are_reported_before_the_end(self) -> None:
        kcm = running_sweep()
        receive(kcm, ResultsReported(1, [row(1)]))
        end = kcm.handle(T0, ended())
        assert [type(each) for each in end if isinstance(each, do.ReadJournal)] == [do.ReadJournal]
        assert Report not in kinds(end)
        read = kcm.handle(T0, do.JournalRead(FIRST, [row(2), row(99)]))
        done, back, report = [each for each in to_koalad(end + read) if not isinstance(each, ParametersWanted)][1:]
        assert done == ParametersEnded(SWEEP, FIRST, [row(2)])
        assert back == ParametersReturned(SWEEP, [[3, 6]], [[3, 6]])
        assert isinstance(report, Report)

    def test_the_end_of_a_launcher_that_returned_everything_is_reported_at_once(self) -> None:
        kcm = running_sweep()
        back = receive(kcm, ParametersGivenUp([[1, 6]], [[1, 4]]))
        assert ParametersReturned(SWEEP, [[1, 6]], [[1, 4]]) in to_koalad(back)
        assert kinds(kcm.handle(T0, ended()))[-1] is Report

    def test_the_journal_in_an_unreachable_shared_directory_is_read_later(self) -> None:
        kcm = running_sweep()
        kcm.handle(T0, ended())
        unreachable = failure("shared_gone", "cluster", "Gone.")
        assert Report not in kinds(kcm.handle(T0, do.JournalRead(FIRST, error=unreachable)))
        again = kcm.tick(T0 + 2 * SECOND)
        assert [each.ranges for each in again if isinstance(each, do.ReadJournal)] == [[[1, 6]]]
        assert Report in kinds(kcm.handle(T0 + 2 * SECOND, do.JournalRead(FIRST)))

    def test_without_a_journal_all_parameters_of_a_launcher_count_as_begun(self) -> None:
        kcm = running_sweep()
        kcm.handle(T0, ended())
        messages = to_koalad(kcm.handle(T0, do.JournalRead(FIRST, there=False)))
        assert ParametersReturned(SWEEP, [[1, 6]], [[1, 6]]) in messages

    def test_the_batch_systems_end_is_reported_after_the_journal_too(self) -> None:
        kcm = running_sweep()
        kcm.handle(T0, do.WrapperDisconnected(FIRST, closed=True))
        ended_job = JobStatus("1", FIRST, ENDED, ending="killed")
        actions = kcm.handle(T0, measured(T0 + 1, ended_job))
        statuses = {FIRST: do.DirectoryStatus("taken", None, 0, "/d")}
        now = T0
        for _ in range(10):
            now += SECOND
            actions += kcm.handle(now, do.Inspected([FIRST], statuses)) + kcm.tick(now)
        assert do.ReadJournal in operations(actions)
        assert not [each for each in to_koalad(actions) if getattr(each, "state", "") == ENDED]
        assert [
            each for each in to_koalad(kcm.handle(now, do.JournalRead(FIRST))) if getattr(each, "state", "") == ENDED
        ]

    def test_a_launchers_directory_stays_until_its_journal_is_read(self) -> None:
        kcm = running_sweep()
        kcm.handle(T0, ended())
        assert do.Remove not in operations(kcm.handle(T0, Forget(5, FIRST)))
        assert do.Remove in operations(kcm.handle(T0, do.JournalRead(FIRST)))

    def test_a_sweep_leaves_no_state_once_its_launchers_are_forgotten(self) -> None:
        """A KCM may run for a year of sweeps. A sweep that continues is fed as before."""
        kcm = running_sweep()
        events = receive(kcm, ResultsReported(1, [row(number) for number in range(1, 7)]))
        events += kcm.tick(T0 + GATHER)
        events += kcm.handle(T0 + SECOND, RecallParameters(SWEEP, 4)) + kcm.handle(T0 + SECOND, ended())
        assert kcm._core.sweeps.inventories
        newest = max(each.message.number for each in events if isinstance(getattr(each, "message", None), Event))
        kcm.handle(T0 + SECOND, Acknowledge(newest))
        kcm.handle(T0 + SECOND, Forget(5, FIRST))
        kcm.handle(T0 + SECOND, do.Removed(FIRST))
        assert not kcm._core.sweeps.inventories
        assert not kcm._core.sweeps.launchers
        kcm.handle(T0 + SECOND, Submit(9, SECOND_ONE, {}, {"grace": 1.0, "sweep": {"sweep": SWEEP, "slots": 4}}))
        kcm.handle(T0 + SECOND, do.Prepared(SECOND_ONE))
        kcm.handle(T0 + SECOND, do.JobSubmitted(SECOND_ONE, "9"))
        kcm.handle(T0 + SECOND, do.WrapperConnected(SECOND_ONE, T0))
        receive(kcm, ParametersHeld([], 4), SECOND_ONE)
        kcm.handle(T0 + SECOND, FeedSweep(SWEEP, [[7, 8]]))
        assert to_launchers(receive(kcm, PullParameters(2), SECOND_ONE)) == [(SECOND_ONE, FeedParameters([[7, 8]]))]

    def test_a_sweep_with_unacknowledged_numbers_is_not_dropped(self) -> None:
        kcm = running_sweep()
        receive(kcm, ParametersGivenUp([[1, 6]], [[1, 4]]))
        kcm.handle(T0, ended())
        kcm.handle(T0, Forget(5, FIRST))
        kcm.handle(T0, do.Removed(FIRST))
        (inventory,) = kcm._core.sweeps.inventories.values()
        assert inventory.unacknowledged or inventory.credit

    def test_the_end_of_a_launcher_waits_for_the_feed_that_names_it(self) -> None:
        kcm = machine([FIRST, "1"])
        kcm.start(T0)
        assert to_koalad(kcm.handle(T0, ended())) == []
        fed = kcm.handle(T0, FeedSweep(SWEEP, [[1, 4]], True, [FIRST]))
        assert [each.ranges for each in fed if isinstance(each, do.ReadJournal)] == [[[1, 4]]]
        assert kinds(kcm.handle(T0, do.JournalRead(FIRST, [row(2)])))[:2] == [ParametersEnded, Report]

    def test_the_end_of_a_launcher_that_koalad_does_not_name_is_reported_after_all_are_named(self) -> None:
        """With the first acknowledgement koalad has named its Launchers; the second one is of a later event."""
        kcm = machine([FIRST, "1"])
        kcm.start(T0)
        kcm.handle(T0, measured(T0))
        assert to_koalad(kcm.handle(T0, ended())) == []
        assert to_koalad(kcm.handle(T0, Acknowledge(1))) == []
        kcm.handle(T0, measured(T0 + 1))
        assert kinds(kcm.handle(T0, Acknowledge(2))) == [Report]

    def test_a_launcher_that_was_killed_with_its_kcm_is_cleaned_up_once_the_accounting_shows_its_end(self) -> None:
        """It has one node, so that none of its programs runs elsewhere."""
        kcm = machine([FIRST, "1"])
        kcm.handle(T0, FeedSweep(SWEEP, [], True, [FIRST]))
        actions = kcm.handle(T0, Cancel(3, FIRST, "1")) + kcm.handle(T0, do.StartLockTaken(FIRST))
        actions += kcm.handle(T0, do.JobCancelled(FIRST)) + kcm.tick(T0)
        killed = JobStatus("1", FIRST, ENDED, ending="killed")
        for at in (T0, T0 + SECOND):
            actions += kcm.handle(at, do.Looked(FIRST, accounted=killed)) + kcm.tick(at)
        assert CleanedUp not in kinds(actions)
        assert do.ReadJournal in operations(actions)
        assert kinds(kcm.handle(T0 + SECOND, do.JournalRead(FIRST))) == [CleanedUp]

    def test_returned_parameters_that_have_not_begun_go_to_other_launchers_that_want_them(self) -> None:
        kcm = with_launchers(FIRST, SECOND_ONE)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 6]], True, [FIRST, SECOND_ONE]))
        receive(kcm, PullParameters(6))
        receive(kcm, PullParameters(2), SECOND_ONE)
        given = receive(kcm, ParametersGivenUp([[1, 6]], [[1, 4]]))
        assert to_launchers(given) == [(SECOND_ONE, FeedParameters([[5, 6]]))]
        assert ParametersReturned(SWEEP, [[1, 4]], [[1, 4]]) in to_koalad(given)


class TestSuspicion:
    def test_a_suspicion_is_reported_once_and_trust_is_repeated_after_a_reconnect(self) -> None:
        kcm = running_sweep()
        assert to_koalad(receive(kcm, NodeSuspected("n1"))) == [LauncherSuspected(FIRST, "n1")]
        assert to_koalad(receive(kcm, NodeSuspected("n1"))) == []
        assert to_launchers(kcm.handle(T0, TrustLauncher(FIRST))) == [(FIRST, LauncherTrusted())]
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        assert (FIRST, LauncherTrusted()) in to_launchers(receive(kcm, ParametersHeld([[1, 6]], 4)))


class TestSeen:
    def test_running_parameters_of_all_launchers_are_reported_once_a_second(self) -> None:
        kcm = with_launchers(FIRST, SECOND_ONE)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 6]], True, [FIRST, SECOND_ONE]))
        first = receive(kcm, ProgressReported(4, T0 - 5)) + kcm.tick(T0)
        assert LaunchersSeen([[FIRST, 4, T0 - 5]]) in to_koalad(first)
        quiet = (
            receive(kcm, ProgressReported(3, T0))
            + receive(kcm, ProgressReported(2, T0), SECOND_ONE)
            + kcm.tick(T0 + SECOND // 2)
        )
        assert LaunchersSeen not in kinds(quiet)
        assert LaunchersSeen([[FIRST, 3, T0], [SECOND_ONE, 2, T0]]) in to_koalad(kcm.tick(T0 + SECOND))


def test_events_of_sweeps_are_numbered_like_all_others() -> None:
    kcm = running_sweep()
    events = [
        action.message for action in receive(kcm, ParametersGivenUp([[1, 2]], [[1, 2]])) if isinstance(action, do.Send)
    ]
    assert all(isinstance(event, Event) for event in events)
    numbers = [event.number for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
