"""A sweep through one KCM, message by message: what is given, asked for, told, and in which order."""

from itertools import pairwise
from typing import Any

import kcm_talk as talk
import pytest
from koalapy_adapters.batch.protocol import ENDED, RUNNING, SUSPENDED, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.kcm.sweeps.results import GATHER, ROWS
from koalapy_adapters.messages import (
    Acknowledge,
    Cancel,
    CleanedUp,
    Event,
    FeedParameters,
    FeedSweep,
    Forget,
    LaunchersSeen,
    LauncherSuspected,
    LauncherTrusted,
    NodeSuspected,
    ParametersEnded,
    ParametersGivenUp,
    ParametersHeld,
    ParametersReturned,
    ParametersWanted,
    ProgressReported,
    PullParameters,
    RecallParameters,
    Report,
    ResultsCommitted,
    ResultsReported,
    Submit,
    ToLauncher,
    TrustLauncher,
    from_json,
    to_json,
)

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

T0, SECOND = talk.T0, talk.SECOND
SWEEP = 9
FIRST, SECOND_ONE = (str(tag_of(InstanceId("abcde"), AttemptId(JobId(FIRST_LAUNCHER + n), 0, 1))) for n in (1, 2))
said = talk.said


def row(number: int, at: int = T0) -> list[Any]:
    return [number, 0, "exited", "n1", 0, at, at, 0, 0, 0, 0]


def says(kcm: Machine, message: Any, tag: str = FIRST, at: int = T0) -> list[Any]:
    return kcm.handle(at, do.LauncherReported(tag, to_json(message)))


def told(actions: list[Any]) -> list[tuple[str, Any]]:
    """What Launchers are told."""
    tells = [action for action in actions if isinstance(action, do.SendToWrapper)]
    return [(tell.tag, from_json(tell.message.body)) for tell in tells if isinstance(tell.message, ToLauncher)]


def kinds(actions: list[Any]) -> list[type]:
    return [type(message) for message in said(actions)]


def with_launchers(*tags: str, slots: int = 4) -> Machine:
    """A KCM that submitted these; they are connected and hold nothing."""
    kcm = talk.machine()
    kcm.handle(T0, talk.measured(T0))
    for number, tag in enumerate(tags, start=1):
        kcm.handle(T0, Submit(number, tag, {}, {"grace": 1.0, "sweep": {"sweep": SWEEP, "slots": slots}}))
        kcm.handle(T0, do.Prepared(tag))
        kcm.handle(T0, do.JobSubmitted(tag, str(number)))
        kcm.handle(T0, do.WrapperConnected(tag, T0))
        says(kcm, ParametersHeld([], slots), tag)
    return kcm


def seen(state: str, tag: str) -> do.CapacityMeasured:
    """All that are in the batch system run, but for this one."""
    states = {each: state if each == tag else RUNNING for each in (FIRST, SECOND_ONE)}
    statuses = {str(n): JobStatus(str(n), each, state) for n, (each, state) in enumerate(states.items(), start=1)}
    measured = talk.measured(T0)
    return measured._replace(capacity=measured.capacity._replace(statuses=statuses))


def at_work() -> Machine:
    """FIRST has 1 to 6, of ten that were fed."""
    kcm = with_launchers(FIRST)
    kcm.handle(T0, FeedSweep(SWEEP, [[1, 10]], True, [FIRST]))
    says(kcm, PullParameters(6))
    return kcm


def new_kcm(*numbers: int) -> Machine:
    """Of a session in which both Launchers are known by name only, and these numbers are out."""
    kcm = talk.machine([FIRST, "1"], [SECOND_ONE, "2"])
    kcm.start(T0)
    kcm.handle(T0, FeedSweep(SWEEP, [[number, number] for number in numbers], True, [FIRST, SECOND_ONE]))
    return kcm


def ended(tag: str = FIRST) -> do.WrapperReported:
    return do.WrapperReported(tag, {"tag": tag, "batch_id": "1", "phase": "ended", "nodes": [], "ending": "exited"})


class TestGiving:
    def test_no_more_is_given_than_was_pulled(self) -> None:
        kcm = with_launchers(FIRST)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 10]], True, [FIRST]))
        assert told(says(kcm, PullParameters(6))) == [(FIRST, FeedParameters([[1, 6]]))]
        assert told(says(kcm, PullParameters(3, given=6))) == [(FIRST, FeedParameters([[7, 9]]))]

    def test_a_pull_that_crossed_a_give_is_not_served_twice(self) -> None:
        kcm = at_work()
        assert told(says(kcm, PullParameters(6, given=0))) == []
        assert told(says(kcm, PullParameters(2, given=6))) == [(FIRST, FeedParameters([[7, 8]]))]

    def test_what_is_left_is_shared_but_slots_are_filled(self) -> None:
        kcm = with_launchers(FIRST, SECOND_ONE)
        says(kcm, PullParameters(300))
        says(kcm, PullParameters(300), SECOND_ONE)
        given = told(kcm.handle(T0, FeedSweep(SWEEP, [[1, 20]], True, [FIRST, SECOND_ONE])))
        assert given == [(FIRST, FeedParameters([[1, 10]])), (SECOND_ONE, FeedParameters([[11, 20]]))]
        given = told(kcm.handle(T0, FeedSweep(SWEEP, [[21, 22]])))
        assert [tag for tag, _ in given] == [FIRST, SECOND_ONE]

    def test_one_that_is_suspended_is_given_nothing_until_it_goes_on(self) -> None:
        kcm = with_launchers(FIRST, SECOND_ONE)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 8]], True, [FIRST, SECOND_ONE]))
        says(kcm, PullParameters(4))
        says(kcm, PullParameters(4), SECOND_ONE)
        says(kcm, PullParameters(4, given=4))
        kcm.handle(T0, seen(SUSPENDED, FIRST))
        assert kcm.stands_still(FIRST)
        says(kcm, PullParameters(4, given=4), SECOND_ONE)
        assert told(kcm.handle(T0, FeedSweep(SWEEP, [[9, 12]]))) == [(SECOND_ONE, FeedParameters([[9, 12]]))]
        assert told(kcm.handle(T0, FeedSweep(SWEEP, [[13, 16]]))) == []
        assert told(kcm.handle(T0, seen(RUNNING, FIRST))) == [(FIRST, FeedParameters([[13, 16]]))]
        assert not kcm.stands_still(FIRST)

    def test_a_feed_before_the_one_that_begins_anew_is_not_heeded(self) -> None:
        kcm = with_launchers(FIRST)
        says(kcm, PullParameters(4))
        assert told(kcm.handle(T0, FeedSweep(SWEEP, [[1, 4]]))) == []
        assert told(kcm.handle(T0, FeedSweep(SWEEP, [[1, 4]], True, [FIRST]))) == [(FIRST, FeedParameters([[1, 4]]))]

    def test_a_number_that_is_fed_twice_is_given_once(self) -> None:
        kcm = at_work()
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 12]]))
        assert told(says(kcm, PullParameters(6, given=6))) == [(FIRST, FeedParameters([[7, 12]]))]


class TestAsking:
    def test_the_first_pull_asks_for_what_it_wants_and_one_for_each_slot(self) -> None:
        kcm = with_launchers(FIRST)
        asked = said(says(kcm, PullParameters(6)))
        assert asked == [ParametersWanted(SWEEP, 6)]
        (more,) = said(kcm.handle(T0, FeedSweep(SWEEP, [[1, 6]], True, [FIRST])))
        assert more == ParametersWanted(SWEEP, 4)

    def test_it_does_not_ask_again_while_it_waits_and_then_ever_less_often(self) -> None:
        kcm = with_launchers(FIRST)
        kcm.handle(T0, FeedSweep(SWEEP, [], True, [FIRST]))
        assert kinds(says(kcm, PullParameters(6))) == [ParametersWanted]
        assert kinds(says(kcm, PullParameters(5))) == []
        asked = [
            at
            for at in range(T0, T0 + 20 * SECOND, SECOND // 10)
            for kind in kinds(kcm.tick(at))
            if kind is ParametersWanted
        ]
        waits = [later - sooner for sooner, later in pairwise(asked)]
        assert len(waits) >= 3
        assert waits == sorted(waits)

    def test_the_store_grows_with_the_rate(self) -> None:
        kcm = with_launchers(FIRST)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 2000]], True, [FIRST]))
        says(kcm, PullParameters(1000))
        asked: list[ParametersWanted] = []
        for number in range(1, 21):
            at = T0 + number * SECOND // 10
            rows = [row(each) for each in range((number - 1) * 50 + 1, number * 50 + 1)]
            actions = says(kcm, ResultsReported(number, rows), at=at) + says(
                kcm, PullParameters(50, 950 + 50 * number), at=at
            )
            asked += [each for each in said(actions) if isinstance(each, ParametersWanted)]
        assert asked  # 500 a second: what is in store has to last for two seconds and a round trip
        assert 260 <= asked[0].wanted <= 700

    def test_a_recall_gives_the_last_of_the_credit_and_keeps_none_in_store(self) -> None:
        kcm = at_work()
        back = said(kcm.handle(T0, RecallParameters(SWEEP, 3)))
        assert back == [ParametersReturned(SWEEP, [[8, 10]])]
        assert said(kcm.handle(T0, RecallParameters(SWEEP, 100))) == [ParametersReturned(SWEEP, [[7, 7]])]
        assert said(kcm.handle(T0, RecallParameters(SWEEP, 1))) == [ParametersReturned(SWEEP, [])]

    def test_a_recall_for_an_unknown_sweep_is_answered_too(self) -> None:
        assert said(talk.machine().handle(T0, RecallParameters(77, 5)))[0] == ParametersReturned(77, [])

    def test_credit_that_no_launcher_is_left_for_comes_back_by_itself(self) -> None:
        kcm = at_work()
        says(kcm, ParametersGivenUp([[1, 6]], [[1, 4]]))
        kcm.handle(T0, ended())
        due = kcm.wakeup()
        assert due is not None
        later = said(kcm.tick(T0 + 2 * SECOND))
        assert ParametersReturned(SWEEP, [[7, 10]]) in later


class TestResults:
    def test_results_of_a_moment_are_one_event_and_kept_once_acknowledged(self) -> None:
        kcm = at_work()
        quiet = says(kcm, ResultsReported(1, [row(1)])) + says(kcm, ResultsReported(2, [row(2), row(3)]))
        assert ParametersEnded not in kinds(quiet)
        sent = [action.message for action in kcm.tick(T0 + GATHER) if isinstance(action, do.Send)]
        (event,) = [each for each in sent if each.body["type"] == "parameters_ended"]
        assert from_json(event.body) == ParametersEnded(SWEEP, FIRST, [row(1), row(2), row(3)])
        assert told(kcm.handle(T0 + GATHER, Acknowledge(event.number))) == [(FIRST, ResultsCommitted(2))]

    def test_what_is_repeated_is_not_told_twice(self) -> None:
        kcm = at_work()
        says(kcm, ResultsReported(1, [row(1)]))
        kcm.tick(T0 + GATHER)
        kcm.handle(T0, do.WrapperDisconnected(FIRST))
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        says(kcm, ParametersHeld([[2, 6]], 4))
        says(kcm, ResultsReported(1, [row(1)]))
        assert ParametersEnded not in kinds(kcm.tick(T0 + 2 * GATHER))

    def test_instants_are_of_the_kcms_clock(self) -> None:
        kcm = at_work()
        kcm.handle(T0, do.WrapperConnected(FIRST, T0 - 40))
        says(kcm, ParametersHeld([[1, 6]], 4))
        says(kcm, ResultsReported(1, [row(1, T0 - 100)]))
        done = [each for each in said(kcm.tick(T0 + GATHER)) if isinstance(each, ParametersEnded)]
        assert done[0].results[0][5:7] == [T0 - 60, T0 - 60]

    def test_many_results_are_told_at_once_in_events_that_fit_a_frame(self) -> None:
        kcm = with_launchers(FIRST)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 4000]], True, [FIRST]))
        says(kcm, PullParameters(4000))
        wide = [[*row(number)[:3], "h" * 400, *row(number)[4:]] for number in range(1, 4001)]
        sent = says(kcm, ResultsReported(1, wide))
        events = [action.message for action in sent if isinstance(action, do.Send)]
        done = [each for each in said(sent) if isinstance(each, ParametersEnded)]
        assert [len(each.results) for each in done] == [ROWS, ROWS, 4000 - 2 * ROWS]
        assert all(len(str(event.body)) < 1 << 20 for event in events)

    def test_what_is_no_result_is_passed_over(self) -> None:
        kcm = at_work()
        says(kcm, ResultsReported(1, [row(1), ["2"], row(3)[:-1], [*row(4)[:2], 5, *row(4)[3:]]]))
        done = [each for each in said(kcm.tick(T0 + GATHER)) if isinstance(each, ParametersEnded)]
        assert done == [ParametersEnded(SWEEP, FIRST, [row(1)])]

    @pytest.mark.parametrize(
        "body", [{"type": "nonsense"}, {"type": "results_committed", "number": 1}, {}, {"type": "pull_parameters"}]
    )
    def test_what_no_launcher_says_changes_nothing(self, body: dict[str, Any]) -> None:
        kcm = at_work()
        assert told(kcm.handle(T0, do.LauncherReported(FIRST, body))) == []


class TestReconnecting:
    def test_what_was_lost_on_its_way_is_given_again_once_all_has_been_repeated(self) -> None:
        kcm = at_work()
        kcm.handle(T0, do.WrapperDisconnected(FIRST))
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        says(kcm, ParametersHeld([[1, 2]], 4))
        says(kcm, ResultsReported(1, [row(3)]))
        assert told(says(kcm, PullParameters(5))) == [(FIRST, FeedParameters([[4, 8]]))]

    def test_nothing_is_given_before_it_has_said_what_it_holds(self) -> None:
        kcm = at_work()
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        assert told(says(kcm, PullParameters(3))) == []

    def test_a_new_kcm_gives_nothing_away_before_all_have_said_what_they_hold(self) -> None:
        kcm = new_kcm(1, 2, 3, 4, 5)
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        says(kcm, ParametersHeld([[1, 2]], 4))
        assert told(says(kcm, PullParameters(4))) == []
        kcm.handle(T0, do.WrapperConnected(SECOND_ONE, T0))
        says(kcm, ParametersHeld([[4, 4]], 4), SECOND_ONE)
        says(kcm, ResultsReported(1, [row(5)]), SECOND_ONE)
        assert told(says(kcm, PullParameters(0), SECOND_ONE)) == [(FIRST, FeedParameters([[3, 3]]))]

    def test_what_it_says_before_the_feed_is_heard_after_it(self) -> None:
        kcm = talk.machine([FIRST, "1"])
        kcm.start(T0)
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        for message in (ParametersHeld([[1, 2]], 4), ResultsReported(7, [row(3)]), PullParameters(1)):
            assert told(says(kcm, message)) == []
        assert told(kcm.handle(T0, FeedSweep(SWEEP, [[1, 4]], True, [FIRST]))) == [(FIRST, FeedParameters([[4, 4]]))]

    @pytest.mark.parametrize("claim", ["", "void"])
    def test_one_that_still_queues_is_no_obstacle(self, claim: str) -> None:
        kcm = new_kcm(1, 2, 3)
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        says(kcm, ParametersHeld([[1, 1]], 4))
        says(kcm, PullParameters(4))
        sights = {SECOND_ONE: do.DirectoryStatus(claim, None, 0, "/d")}
        assert told(kcm.handle(T0, do.Inspected([SECOND_ONE], sights))) == [(FIRST, FeedParameters([[2, 3]]))]

    def test_one_that_has_begun_is_waited_for(self) -> None:
        kcm = new_kcm(1, 2, 3)
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        says(kcm, ParametersHeld([[1, 1]], 4))
        says(kcm, PullParameters(4))
        sights = {SECOND_ONE: do.DirectoryStatus("taken", None, 0, "/d")}
        assert told(kcm.handle(T0, do.Inspected([SECOND_ONE], sights))) == []

    def test_a_second_beginning_names_what_is_leaving_and_nothing_is_given_twice(self) -> None:
        kcm = at_work()
        says(kcm, ResultsReported(1, [row(1)]))
        says(kcm, ParametersGivenUp([[6, 6]], [[6, 6]]))
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 10]], True, [FIRST]))
        assert told(says(kcm, PullParameters(20, given=6))) == [(FIRST, FeedParameters([[7, 10]]))]


class TestEnds:
    def test_results_and_what_comes_back_are_told_before_the_end(self) -> None:
        kcm = at_work()
        says(kcm, ResultsReported(1, [row(1)]))
        end = kcm.handle(T0, ended())
        assert [type(each) for each in end if isinstance(each, do.ReadJournal)] == [do.ReadJournal]
        assert Report not in kinds(end)
        read = kcm.handle(T0, do.JournalRead(FIRST, [row(2), row(99)]))
        done, back, report = [each for each in said(end + read) if not isinstance(each, ParametersWanted)][1:]
        assert done == ParametersEnded(SWEEP, FIRST, [row(2)])
        assert back == ParametersReturned(SWEEP, [[3, 6]], [[3, 6]])
        assert isinstance(report, Report)

    def test_one_that_gave_everything_back_ends_at_once(self) -> None:
        kcm = at_work()
        back = says(kcm, ParametersGivenUp([[1, 6]], [[1, 4]]))
        assert ParametersReturned(SWEEP, [[1, 6]], [[1, 4]]) in said(back)
        assert kinds(kcm.handle(T0, ended()))[-1] is Report

    def test_a_shared_directory_out_of_reach_is_tried_again(self) -> None:
        kcm = at_work()
        kcm.handle(T0, ended())
        gone = failure("shared_gone", "cluster", "Gone.")
        assert Report not in kinds(kcm.handle(T0, do.JournalRead(FIRST, error=gone)))
        again = kcm.tick(T0 + 2 * SECOND)
        assert [each.ranges for each in again if isinstance(each, do.ReadJournal)] == [[[1, 6]]]
        assert Report in kinds(kcm.handle(T0 + 2 * SECOND, do.JournalRead(FIRST)))

    def test_where_the_journal_is_gone_all_that_it_held_counts_as_begun(self) -> None:
        kcm = at_work()
        kcm.handle(T0, ended())
        told_then = said(kcm.handle(T0, do.JournalRead(FIRST, there=False)))
        assert ParametersReturned(SWEEP, [[1, 6]], [[1, 6]]) in told_then

    def test_the_batch_systems_word_of_its_end_waits_too(self) -> None:
        kcm = at_work()
        kcm.handle(T0, do.WrapperDisconnected(FIRST, closed=True))
        over = JobStatus("1", FIRST, ENDED, ending="killed")
        actions = kcm.handle(T0, talk.measured(T0 + 1, over))
        sights = {FIRST: do.DirectoryStatus("taken", None, 0, "/d")}
        now = T0
        for _ in range(10):
            now += SECOND
            actions += kcm.handle(now, do.Inspected([FIRST], sights)) + kcm.tick(now)
        assert do.ReadJournal in talk.operations(actions)
        assert not [each for each in said(actions) if getattr(each, "state", "") == ENDED]
        assert [each for each in said(kcm.handle(now, do.JournalRead(FIRST))) if getattr(each, "state", "") == ENDED]

    def test_its_directory_stays_until_the_journal_is_read(self) -> None:
        kcm = at_work()
        kcm.handle(T0, ended())
        assert do.Remove not in talk.operations(kcm.handle(T0, Forget(5, FIRST)))
        assert do.Remove in talk.operations(kcm.handle(T0, do.JournalRead(FIRST)))

    def test_nothing_of_a_sweep_is_left_once_its_launchers_are_forgotten(self) -> None:
        """A KCM may be connected for a year of sweeps. One that goes on all the same is fed as before."""
        kcm = at_work()
        events = says(kcm, ResultsReported(1, [row(number) for number in range(1, 7)]))
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
        says(kcm, ParametersHeld([], 4), SECOND_ONE)
        kcm.handle(T0 + SECOND, FeedSweep(SWEEP, [[7, 8]]))
        assert told(says(kcm, PullParameters(2), SECOND_ONE)) == [(SECOND_ONE, FeedParameters([[7, 8]]))]

    def test_a_sweep_with_numbers_that_koalad_may_take_for_out_is_not_dropped(self) -> None:
        kcm = at_work()
        says(kcm, ParametersGivenUp([[1, 6]], [[1, 4]]))
        kcm.handle(T0, ended())
        kcm.handle(T0, Forget(5, FIRST))
        kcm.handle(T0, do.Removed(FIRST))
        (inventory,) = kcm._core.sweeps.inventories.values()
        assert inventory.unacknowledged or inventory.credit

    def test_the_end_of_one_whose_sweep_is_not_named_yet_waits_for_that(self) -> None:
        kcm = talk.machine([FIRST, "1"])
        kcm.start(T0)
        assert said(kcm.handle(T0, ended())) == []
        fed = kcm.handle(T0, FeedSweep(SWEEP, [[1, 4]], True, [FIRST]))
        assert [each.ranges for each in fed if isinstance(each, do.ReadJournal)] == [[[1, 4]]]
        assert kinds(kcm.handle(T0, do.JournalRead(FIRST, [row(2)])))[:2] == [ParametersEnded, Report]

    def test_the_end_of_one_that_koalad_does_not_name_is_told_when_it_has_named_all(self) -> None:
        """The second acknowledgement is of what happened after the first had come, with which koalad named them."""
        kcm = talk.machine([FIRST, "1"])
        kcm.start(T0)
        kcm.handle(T0, talk.measured(T0))
        assert said(kcm.handle(T0, ended())) == []
        assert said(kcm.handle(T0, Acknowledge(1))) == []
        kcm.handle(T0, talk.measured(T0 + 1))
        assert kinds(kcm.handle(T0, Acknowledge(2))) == [Report]

    def test_one_that_was_killed_with_its_kcm_is_gone_as_soon_as_the_batch_system_says_so(self) -> None:
        """It has one node, so that nothing of it runs elsewhere, and another may take its place at once."""
        kcm = talk.machine([FIRST, "1"])
        kcm.handle(T0, FeedSweep(SWEEP, [], True, [FIRST]))
        actions = kcm.handle(T0, Cancel(3, FIRST, "1")) + kcm.handle(T0, do.StartLockTaken(FIRST))
        actions += kcm.handle(T0, do.JobCancelled(FIRST)) + kcm.tick(T0)
        killed = JobStatus("1", FIRST, ENDED, ending="killed")
        for at in (T0, T0 + SECOND):
            actions += kcm.handle(at, do.Looked(FIRST, accounted=killed)) + kcm.tick(at)
        assert CleanedUp not in kinds(actions)
        assert do.ReadJournal in talk.operations(actions)
        assert kinds(kcm.handle(T0 + SECOND, do.JournalRead(FIRST))) == [CleanedUp]

    def test_what_had_not_begun_goes_to_others_here_as_far_as_they_can_use_it(self) -> None:
        kcm = with_launchers(FIRST, SECOND_ONE)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 6]], True, [FIRST, SECOND_ONE]))
        says(kcm, PullParameters(6))
        says(kcm, PullParameters(2), SECOND_ONE)
        given = says(kcm, ParametersGivenUp([[1, 6]], [[1, 4]]))
        assert told(given) == [(SECOND_ONE, FeedParameters([[5, 6]]))]
        assert ParametersReturned(SWEEP, [[1, 4]], [[1, 4]]) in said(given)


class TestSuspicion:
    def test_a_suspicion_is_told_once_and_trust_is_said_again_after_a_reconnect(self) -> None:
        kcm = at_work()
        assert said(says(kcm, NodeSuspected("n1"))) == [LauncherSuspected(FIRST, "n1")]
        assert said(says(kcm, NodeSuspected("n1"))) == []
        assert told(kcm.handle(T0, TrustLauncher(FIRST))) == [(FIRST, LauncherTrusted())]
        kcm.handle(T0, do.WrapperConnected(FIRST, T0))
        assert (FIRST, LauncherTrusted()) in told(says(kcm, ParametersHeld([[1, 6]], 4)))


class TestSeen:
    def test_what_runs_is_told_once_a_second_for_all(self) -> None:
        kcm = with_launchers(FIRST, SECOND_ONE)
        kcm.handle(T0, FeedSweep(SWEEP, [[1, 6]], True, [FIRST, SECOND_ONE]))
        first = says(kcm, ProgressReported(4, T0 - 5)) + kcm.tick(T0)
        assert LaunchersSeen([[FIRST, 4, T0 - 5]]) in said(first)
        quiet = (
            says(kcm, ProgressReported(3, T0))
            + says(kcm, ProgressReported(2, T0), SECOND_ONE)
            + kcm.tick(T0 + SECOND // 2)
        )
        assert LaunchersSeen not in kinds(quiet)
        assert LaunchersSeen([[FIRST, 3, T0], [SECOND_ONE, 2, T0]]) in said(kcm.tick(T0 + SECOND))


def test_events_are_numbered_like_all_others() -> None:
    kcm = at_work()
    events = [
        action.message for action in says(kcm, ParametersGivenUp([[1, 2]], [[1, 2]])) if isinstance(action, do.Send)
    ]
    assert all(isinstance(event, Event) for event in events)
    numbers = [event.number for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
