"""The KCM's decisions, one by one: an event in, actions out, and time as an argument."""

from typing import Any

import pytest
from koalapy_adapters.batch.protocol import ENDED, QUEUED, RUNNING, Capacity, JobStatus
from koalapy_adapters.kcm import actions as do
from koalapy_adapters.kcm.attempts import failure
from koalapy_adapters.kcm.machine import Machine
from koalapy_adapters.messages import (
    Acknowledge,
    BatchSeen,
    Cancel,
    ClusterConfig,
    Done,
    Enter,
    Event,
    Forget,
    Gone,
    Hello,
    Measured,
    PutKey,
    Refused,
    Release,
    Report,
    Stop,
    Submit,
    Submitted,
    Watch,
    from_json,
)

SECOND = do.SECOND
TAG = "kabcde000000001"
T0 = 1_000 * SECOND
NO = failure("no_such_queue", "request", "No such queue.")
LATER = failure("batch_system_unreachable", "transient", "No answer.")


def machine(*known: list[str], poll: float = 10.0) -> Machine:
    hello = Hello(1, "0", 7, "abcde", T0, {}, list(known))
    return Machine(T0, hello, ClusterConfig("here", "local", poll=poll, grace=5.0, orphan_timeout=600.0))


def submit(id: int = 1, doubt: bool = False) -> Submit:
    return Submit(id, TAG, {"processors": 2}, {"grace": 2.0}, [], doubt)


def said(actions: list[Any]) -> list[Any]:
    """What goes to koalad, events unwrapped."""
    messages = [action.message for action in actions if isinstance(action, do.Send)]
    return [from_json(message.body) if isinstance(message, Event) else message for message in messages]


def told(actions: list[Any]) -> list[Any]:
    return [action.message for action in actions if isinstance(action, do.Tell)]


def deeds(actions: list[Any]) -> list[type]:
    return [type(action) for action in actions if not isinstance(action, (do.Send, do.Tell))]


def capacity(*statuses: JobStatus) -> Capacity:
    return Capacity(4, 2, 2, 0, 0, [], [], [[2, 1]], {status.batch_id: status for status in statuses})


def measured(at: int, *statuses: JobStatus, cost: int = 0) -> do.CapacityMeasured:
    return do.CapacityMeasured(at, capacity(*statuses), None, cost)


def listed(state: str, batch_id: str = "41") -> JobStatus:
    return JobStatus(batch_id, TAG, state)


def queued_machine() -> Machine:
    """TAG is in the batch system as job 41."""
    kcm = machine()
    kcm.handle(T0, measured(T0))
    kcm.handle(T0, submit())
    kcm.handle(T0, do.Prepared(TAG))
    kcm.handle(T0, do.JobSubmitted(TAG, "41"))
    return kcm


def running_machine() -> Machine:
    """TAG's wrapper is connected and at its barrier."""
    kcm = queued_machine()
    kcm.handle(T0, do.WrapperEntered(TAG, T0 - 50))
    kcm.handle(T0, do.WrapperSaid(TAG, report("at_barrier", at_barrier_at=T0 - 60)))
    return kcm


def report(phase: str, **more: Any) -> dict[str, Any]:
    return {"tag": TAG, "batch_id": "41", "phase": phase, "nodes": [["n1", "10.0.0.1", 2]], **more}


class TestSubmit:
    def test_prepares_then_submits_then_answers(self) -> None:
        kcm = machine()
        assert deeds(kcm.handle(T0, submit())) == [do.Prepare, do.Measure]
        assert deeds(kcm.handle(T0, do.Prepared(TAG))) == [do.SubmitJob]
        assert said(kcm.handle(T0, do.JobSubmitted(TAG, "41"))) == [Submitted(1, TAG, "41")]

    def test_asked_twice_is_done_once_and_answered_twice(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit(1))
        assert deeds(kcm.handle(T0, submit(2))) == []
        kcm.handle(T0, do.Prepared(TAG))
        answers = said(kcm.handle(T0, do.JobSubmitted(TAG, "41")))
        assert answers == [Submitted(1, TAG, "41"), Submitted(2, TAG, "41")]
        assert said(kcm.handle(T0, submit(3))) == [Submitted(3, TAG, "41")]

    def test_a_clear_no_revokes_before_it_is_said(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert kcm.handle(T0, do.JobSubmitted(TAG, error=NO)) == [do.Revoke(TAG)]
        assert said(kcm.handle(T0, do.Revoked(TAG, True))) == [Refused(1, NO)]
        assert said(kcm.handle(T0, submit(2))) == [Refused(2, NO)]

    def test_a_directory_that_cannot_be_made_refuses_at_once(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        full = failure("shared_full", "site", "Full.")
        assert said(kcm.handle(T0, do.Prepared(TAG, full))) == [Refused(1, full)]

    def test_a_doubt_after_the_submit_looks_before_it_answers(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert kcm.handle(T0, do.JobSubmitted(TAG, error=LATER, doubt=True)) == [do.Look(TAG, "")]
        assert said(kcm.handle(T0, do.Looked(TAG, listed(QUEUED)))) == [Submitted(1, TAG, "41")]

    def test_a_doubt_that_finds_nothing_revokes_and_makes_sure(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        kcm.handle(T0, do.JobSubmitted(TAG, error=LATER, doubt=True))
        assert kcm.handle(T0, do.Looked(TAG)) == [do.Revoke(TAG)]
        kcm.handle(T0, do.Revoked(TAG, True))
        kcm.handle(T0, do.Revoked(TAG, True))
        late = kcm.handle(T0, do.Looked(TAG, listed(QUEUED)))
        assert late == [do.CancelJob(TAG, "41")]
        assert said(late) == []
        assert do.Look in deeds(kcm.handle(T0, do.JobCancelled(TAG)))
        assert said(kcm.handle(T0, do.Looked(TAG))) == [Refused(1, LATER)]

    @pytest.mark.parametrize(
        ("outcome", "answer"),
        [
            (do.Looked(TAG, listed=listed(QUEUED)), [Submitted(1, TAG, "41")]),
            (do.Looked(TAG, accounted=listed(ENDED)), [Submitted(1, TAG, "41")]),
            (do.Looked(TAG, error=LATER), []),
            (do.Looked(TAG), []),
        ],
        ids=["queued", "ended", "no answer", "not there"],
    )
    def test_with_doubt_looks_first(self, outcome: do.Looked, answer: list[Any]) -> None:
        kcm = machine()
        assert do.Look in deeds(kcm.handle(T0, submit(doubt=True)))
        assert said(kcm.handle(T0, outcome)) == answer

    def test_with_doubt_and_no_answer_looks_again_and_never_submits(self) -> None:
        kcm = machine()
        kcm.handle(T0, measured(T0))
        kcm.handle(T0, submit(doubt=True))
        kcm.handle(T0, do.Looked(TAG, error=LATER))
        assert kcm.tick(T0 + SECOND) == [do.Look(TAG, "")]

    @pytest.mark.parametrize(
        ("sight", "next_deed"),
        [
            (None, do.Prepare),
            (do.Sight(), do.Prepare),
            (do.Sight(claim="revoked"), do.Revoke),
        ],
        ids=["no directory", "unclaimed", "revoked"],
    )
    def test_with_doubt_the_directory_decides_last(self, sight: do.Sight | None, next_deed: type) -> None:
        kcm = machine()
        kcm.handle(T0, submit(doubt=True))
        assert kcm.handle(T0, do.Looked(TAG)) == [do.Inspect([TAG])]
        sights = {} if sight is None else {TAG: sight}
        assert next_deed in deeds(kcm.handle(T0, do.Inspected([TAG], sights)))

    def test_with_doubt_a_claim_means_that_it_runs(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit(doubt=True))
        kcm.handle(T0, do.Looked(TAG))
        sights = {TAG: do.Sight("claimed", report("ended"))}
        assert said(kcm.handle(T0, do.Inspected([TAG], sights))) == [Submitted(1, TAG, "41")]

    def test_one_that_hello_named_is_never_submitted_blindly(self) -> None:
        kcm = machine([TAG, ""])
        assert do.Look in deeds(kcm.handle(T0, submit()))
        named = machine([TAG, "41"])
        assert said(named.handle(T0, submit())) == [Submitted(1, TAG, "41")]


class TestCancel:
    def test_of_a_queued_job_is_gone_with_the_first_look(self) -> None:
        kcm = queued_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        assert said(actions) == [Done(9)]
        assert deeds(actions) == [do.Revoke, do.CancelJob]
        kcm.handle(T0, do.Revoked(TAG, True))
        assert kcm.handle(T0 + 5, do.JobCancelled(TAG)) == [do.CheckJobs(["41"])]
        assert said(kcm.handle(T0 + 9, do.JobsChecked(["41"], {"41": listed(ENDED)}))) == [Gone(TAG, T0 + 9)]

    def test_ends_a_submit_in_flight_first(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert deeds(kcm.handle(T0, Cancel(9, TAG))) == [do.EndSubmit]
        assert do.Revoke in deeds(kcm.handle(T0, do.JobSubmitted(TAG, error=LATER, doubt=True)))
        kcm.handle(T0, do.Revoked(TAG, True))
        gone = said(kcm.handle(T0, do.Looked(TAG)))
        assert [(type(message), message.tag if isinstance(message, Gone) else message.id) for message in gone] == [
            (Refused, 1),
            (Gone, TAG),
        ]

    def test_of_what_was_never_seen_revokes_it(self) -> None:
        kcm = machine()
        kcm.handle(T0, measured(T0))
        assert deeds(kcm.handle(T0, Cancel(9, TAG))) == [do.Revoke, do.Look, do.Inspect]
        assert said(kcm.handle(T0, do.Looked(TAG))) == []  # the claim is not known yet
        assert said(kcm.handle(T0, do.Revoked(TAG, True))) == [Gone(TAG, T0)]
        assert said(kcm.handle(T0, submit(2)))[0].id == 2

    def test_a_connected_wrapper_is_stopped_in_band_before_the_batch_system_is_asked(self) -> None:
        kcm = running_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        assert told(actions) == [Stop(False)]
        assert deeds(actions) == [do.Revoke]
        assert deeds(kcm.tick(T0 + 4 * SECOND)) == []
        assert do.CancelJob in deeds(kcm.tick(T0 + 5 * SECOND))  # the program's grace of 2 s, and 3 s

    def test_force_does_not_wait_for_the_grace(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Cancel(9, TAG))
        actions = kcm.handle(T0, Cancel(10, TAG, force=True))
        assert told(actions) == [Stop(True)]
        assert deeds(actions) == [do.CancelJob]

    def test_a_stopped_wrapper_that_says_so_is_gone_when_its_job_is(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.Revoked(TAG, False))
        actions = kcm.handle(T0 + 50, do.WrapperSaid(TAG, report("ended", ended_at=T0)))
        assert do.CheckJobs in deeds(actions)
        again = kcm.handle(T0 + 60, do.JobsChecked(["41"], {"41": listed(RUNNING)}))
        assert said(again) == []
        assert do.CheckJobs in deeds(kcm.tick(T0 + 60 + SECOND // 20))
        assert said(kcm.handle(T0 + SECOND, do.JobsChecked(["41"], {}))) == [Gone(TAG, T0 + SECOND)]

    def test_a_claimed_attempt_that_vanished_is_gone_only_after_the_orphan_timeout(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.Revoked(TAG, False))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        kcm.handle(T0, Acknowledge(1))
        assert said(kcm.handle(T0 + 604 * SECOND, do.Looked(TAG))) == []
        assert said(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG))) == [Gone(TAG, T0 + 605 * SECOND)]

    @pytest.mark.parametrize(
        "sign",
        [
            do.Inspected([TAG], {TAG: do.Sight("claimed", None, 77)}),
            do.Inspected([TAG], {}, 0, LATER),
        ],
        ids=["a heartbeat", "a directory out of reach"],
    )
    def test_a_sign_starts_the_orphan_timeout_again(self, sign: do.Inspected) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.Revoked(TAG, False))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        kcm.handle(T0 + 10 * SECOND, sign)
        assert Gone(TAG, T0 + 605 * SECOND) not in said(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG)))
        assert Gone(TAG, T0 + 615 * SECOND) in said(kcm.handle(T0 + 615 * SECOND, do.Looked(TAG)))

    def test_is_repeated_until_the_job_is_gone(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.Revoked(TAG, True))
        kcm.handle(T0, do.JobCancelled(TAG, LATER))
        kcm.handle(T0, do.JobsChecked(["41"], {"41": listed(RUNNING)}))
        assert do.CancelJob in deeds(kcm.tick(T0 + 2 * SECOND))

    def test_asked_again_after_the_end_says_it_again(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.Revoked(TAG, True))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        assert said(kcm.handle(T0 + 1, Cancel(10, TAG))) == [Done(10), Gone(TAG, T0 + 1)]

    def test_many_are_checked_in_one_call(self) -> None:
        tags = [f"kabcde00000000{number}" for number in range(5)]
        kcm = machine(*[[tag, str(40 + place)] for place, tag in enumerate(tags)])
        for tag in tags:
            kcm.handle(T0, Cancel(9, tag))
            kcm.handle(T0, do.Revoked(tag, True))
        first = kcm.handle(T0, do.JobCancelled(tags[0]))
        assert deeds(first) == [do.CheckJobs]
        for tag in tags[1:]:
            assert deeds(kcm.handle(T0, do.JobCancelled(tag))) == []
        kcm.handle(T0 + 9, do.JobsChecked(["40"], {}))
        assert kcm.tick(T0 + SECOND // 50) == [do.CheckJobs(["41", "42", "43", "44"])]


class TestWrapper:
    def test_instants_are_mapped_to_the_kcms_clock_and_stay_as_they_were_first_mapped(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, do.WrapperEntered(TAG, T0 - 50))
        first = said(kcm.handle(T0, do.WrapperSaid(TAG, report("at_barrier", at_barrier_at=T0 - 60))))
        assert first[0].at_barrier_at == T0 - 10
        kcm.handle(T0, do.WrapperEntered(TAG, T0 - 40))
        assert said(kcm.handle(T0, do.WrapperSaid(TAG, report("at_barrier", at_barrier_at=T0 - 60)))) == []

    def test_release_is_answered_when_the_wrapper_says_that_it_has_it(self) -> None:
        kcm = running_machine()
        release = Release(5, TAG, 0, [[0, "10.0.0.1"]])
        actions = kcm.handle(T0, release)
        assert (told(actions), said(actions)) == ([release], [])
        kcm.handle(T0, do.WrapperLeft(TAG))
        assert told(kcm.handle(T0, do.WrapperEntered(TAG, T0))) == [Enter(1, T0), release]
        actions = kcm.handle(T0, do.WrapperSaid(TAG, report("released", at_barrier_at=1, released_at=T0)))
        assert Done(5) in said(actions)
        assert said(kcm.handle(T0, release._replace(id=6))) == [Done(6)]

    def test_release_of_one_that_left_its_barrier_is_refused(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Release(5, TAG, 0, []))
        actions = kcm.handle(T0, do.WrapperSaid(TAG, report("ended", ending="left_barrier")))
        assert [answer.id for answer in said(actions) if isinstance(answer, Refused)] == [5]

    def test_keys_wait_for_the_wrapper_and_are_told_again_to_the_next_connection(self) -> None:
        kcm = queued_machine()
        key = PutKey(TAG, "port", "4000")
        assert told(kcm.handle(T0, key)) == []
        assert key in told(kcm.handle(T0, do.WrapperEntered(TAG, T0)))
        assert key in told(kcm.handle(T0, do.WrapperEntered(TAG, T0)))

    def test_a_wrappers_key_goes_to_koalad_as_its_own(self) -> None:
        kcm = running_machine()
        assert kcm.handle(T0, do.WrapperPut(TAG, "port", "1")) == [do.Send(PutKey(TAG, "port", "1"))]

    def test_one_that_left_without_a_word_is_told_by_its_record(self) -> None:
        kcm = running_machine()
        assert do.Inspect in deeds(kcm.handle(T0, do.WrapperLeft(TAG)))
        record = report("ended", ending="exited", exit_status=3, ended_at=T0 - 50)
        ended = said(kcm.handle(T0, do.Inspected([TAG], {TAG: do.Sight("claimed", record)})))
        assert [(message.phase, message.exit_status, message.ended_at) for message in ended] == [("ended", 3, T0)]

    def test_what_is_no_report_is_passed_over(self) -> None:
        kcm = running_machine()
        assert said(kcm.handle(T0, do.WrapperSaid(TAG, {"phase": "ended"}))) == []


class TestWatching:
    def test_says_what_changed_and_only_that(self) -> None:
        kcm = queued_machine()
        first = said(kcm.handle(T0 + 2, measured(T0 + 1, listed(QUEUED))))
        assert [message.state for message in first if isinstance(message, BatchSeen)] == ["queued"]
        assert not [m for m in said(kcm.handle(T0 + 4, measured(T0 + 3, listed(QUEUED)))) if isinstance(m, BatchSeen)]

    def test_a_job_that_is_no_longer_listed_is_missing_until_more_is_known(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(RUNNING)))
        kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.Sight("claimed")}))
        assert do.Inspect in deeds(kcm.handle(T0 + 4, measured(T0 + 3)))
        assert deeds(kcm.handle(T0 + 5, do.Inspected([TAG], {TAG: do.Sight("claimed")}))) == [do.Look]
        seen = said(kcm.handle(T0 + 6, do.Looked(TAG)))
        assert [message.state for message in seen] == ["missing"]
        assert do.Look in deeds(kcm.tick(T0 + 6 + 5 * SECOND))
        assert do.Inspect in deeds(kcm.handle(T0 + 9 * SECOND, do.Looked(TAG, accounted=listed(ENDED))))
        seen = said(kcm.handle(T0 + 9 * SECOND, do.Inspected([TAG], {TAG: do.Sight()})))
        assert [message.state for message in seen] == ["ended"]

    def test_a_job_submitted_while_the_call_ran_is_not_missing(self) -> None:
        kcm = queued_machine()
        assert do.Inspect in deeds(kcm.handle(T0 + 2, measured(T0 - 1)))
        assert kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.Sight()})) == []

    def test_an_end_seen_by_the_batch_system_lets_the_record_speak_first(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(ENDED)))
        assert deeds(kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.Sight("claimed")}))) == []
        assert do.Inspect in deeds(kcm.tick(T0 + 3 + SECOND // 2))
        sights = {TAG: do.Sight("claimed", report("ended", ending="exited", exit_status=0))}
        seen = said(kcm.handle(T0 + SECOND, do.Inspected([TAG], sights)))
        assert [type(message) for message in seen] == [Report, BatchSeen]

    def test_a_sight_from_before_the_end_settles_nothing(self) -> None:
        kcm = queued_machine()
        assert do.Inspect in deeds(kcm.handle(T0 + 2, measured(T0 + 1, listed(RUNNING))))
        assert do.Inspect not in deeds(kcm.handle(T0 + 4, measured(T0 + 3, listed(ENDED))))
        assert kcm.handle(T0 + 5, do.Inspected([TAG], {TAG: do.Sight()})) == [do.Inspect([TAG])]
        assert said(kcm.handle(T0 + 6, do.Inspected([TAG], {TAG: do.Sight()}))) != []

    def test_an_unclaimed_job_that_ended_is_told_at_once(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(ENDED)))
        assert [m.state for m in said(kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.Sight()})))] == ["ended"]

    def test_a_newer_kcm_ends_this_one(self) -> None:
        kcm = machine()
        assert do.Quit in deeds(kcm.handle(T0, do.Inspected([TAG], {}, 8)))
        assert do.Quit not in deeds(machine().handle(T0, do.Inspected([TAG], {}, 7)))

    def test_what_ended_while_nobody_listened_is_looked_for_first(self) -> None:
        kcm = machine([TAG, "41"])
        assert kcm.start(T0) == [do.Inspect([TAG]), do.Measure()]


class TestPace:
    def test_one_call_at_a_time_as_often_as_the_grid_file_says(self) -> None:
        kcm = machine()
        assert deeds(kcm.start(T0)) == [do.Measure]
        assert kcm.tick(T0 + 60 * SECOND) == []
        kcm.handle(T0 + 60 * SECOND, measured(T0))
        kcm.handle(T0 + 60 * SECOND, measured(T0))
        assert kcm.wakeup() is not None

    def test_urgent_polls_every_second_but_never_beyond_its_cost(self) -> None:
        kcm = machine()
        kcm.start(T0)
        kcm.handle(T0 + 1, measured(T0, cost=30_000))
        kcm.handle(T0 + 1, Acknowledge(1))
        assert kcm.wakeup() == T0 + 10 * SECOND
        kcm.handle(T0 + 2, Watch(True))
        assert kcm.wakeup() == T0 + 3 * SECOND

    def test_a_submit_is_looked_at_soon(self) -> None:
        kcm = machine()
        kcm.start(T0)
        kcm.handle(T0 + 1, measured(T0))
        kcm.handle(T0 + 1, Acknowledge(1))
        for event in (submit(), do.Prepared(TAG), do.JobSubmitted(TAG, "41")):
            kcm.handle(T0 + 1, event)
        assert kcm.wakeup() == T0 + 1 + SECOND // 5

    def test_only_the_newest_measurement_waits_for_the_acknowledgement(self) -> None:
        kcm = machine()
        assert len(said(kcm.handle(T0, measured(T0)))) == 1
        for second in (1, 2, 3):
            assert said(kcm.handle(T0 + second * SECOND, measured(T0 + second * SECOND))) == []
        newest = kcm.handle(T0 + 4 * SECOND, Acknowledge(1))
        assert [message.measured_at for message in said(newest)] == [T0 + 3 * SECOND]
        assert [action.message.number for action in newest if isinstance(action, do.Send)] == [2]
        assert all(isinstance(message, Measured) for message in said(newest))

    def test_what_is_not_acknowledged_is_sent_again_in_order(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Acknowledge(1))
        kcm.handle(T0 + 2, measured(T0 + 1, listed(QUEUED)))
        again = kcm.tick(T0 + 31 * SECOND)
        assert [action.message.number for action in again if isinstance(action, do.Send)] == [2, 3]


class TestForget:
    def test_removes_until_it_is_removed(self) -> None:
        kcm = queued_machine()
        assert deeds(kcm.handle(T0, Forget(3, TAG))) == [do.Remove]
        assert said(kcm.handle(T0, do.Removed(TAG, LATER))) == []
        assert do.Remove in deeds(kcm.tick(T0 + SECOND))
        assert said(kcm.handle(T0 + SECOND, do.Removed(TAG))) == [Done(3)]

    def test_outcomes_that_come_late_change_nothing(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Forget(3, TAG))
        kcm.handle(T0, do.Removed(TAG))
        for late in (do.JobCancelled(TAG), do.Looked(TAG), do.Revoked(TAG, True), do.WrapperLeft(TAG)):
            assert kcm.handle(T0, late) == []
