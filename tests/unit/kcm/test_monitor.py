"""The KCM's decisions on wrappers, the batch system's lists and time: an event in, actions out."""

from typing import Any

from kcm_machine import (
    SECOND,
    T0,
    TAG,
    UNREACHABLE,
    listed,
    machine,
    measured,
    operations,
    queued_machine,
    report,
    running_machine,
    submit,
    to_koalad,
    to_wrapper,
)
from koalapy_adapters.batch.protocol import ENDED, LOST, QUEUED, RUNNING, SUSPENDED, Capacity, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import LOOKS
from koalapy_adapters.messages.kcm import BatchStatus, CleanedUp, Done, Measured, PutKey, Refused, Report
from koalapy_adapters.messages.koalad import Acknowledge, Cancel, Forget, Release, WatchCluster

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of


class TestWrapper:
    def test_instants_are_mapped_to_the_kcms_clock_once(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, do.WrapperConnected(TAG, T0 - 50))
        first = to_koalad(kcm.handle(T0, do.WrapperReported(TAG, report("at_barrier", at_barrier_at=T0 - 60))))
        assert first[0].at_barrier_at == T0 - 10
        kcm.handle(T0, do.WrapperConnected(TAG, T0 - 40))
        assert to_koalad(kcm.handle(T0, do.WrapperReported(TAG, report("at_barrier", at_barrier_at=T0 - 60)))) == []

    def test_a_wrapper_of_another_version_is_reported_as_ended_once(self) -> None:
        kcm = queued_machine()
        (ended,) = to_koalad(kcm.handle(T0, do.OtherVersion(TAG, released=False)))
        assert (ended.phase, ended.ending, ended.error["code"]) == ("ended", "restarted", "other_version")
        assert to_koalad(kcm.handle(T0, do.OtherVersion(TAG, released=False))) == []
        assert to_koalad(kcm.handle(T0, Release(5, TAG, 0, [])))[0].error["code"] == "attempt_ended"

    def test_a_wrapper_of_another_version_that_may_run_its_program_is_left_to_its_exit_record(self) -> None:
        assert to_koalad(queued_machine().handle(T0, do.OtherVersion(TAG, released=True))) == []
        connected = running_machine()
        assert to_koalad(connected.handle(T0, do.OtherVersion(TAG, released=False))) == []
        released = running_machine()
        released.handle(T0, do.WrapperReported(TAG, report("running", released_at=T0)))
        released.handle(T0, do.WrapperDisconnected(TAG))
        assert to_koalad(released.handle(T0, do.OtherVersion(TAG, released=False))) == []

    def test_a_release_is_answered_when_the_wrapper_reports_it(self) -> None:
        kcm = running_machine()
        release = Release(5, TAG, 0, [[0, "10.0.0.1", 1]])
        actions = kcm.handle(T0, release)
        assert (to_wrapper(actions), to_koalad(actions)) == ([release], [])
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        assert to_wrapper(kcm.handle(T0, do.WrapperConnected(TAG, T0))) == [release]
        actions = kcm.handle(T0, do.WrapperReported(TAG, report("released", at_barrier_at=1, released_at=T0)))
        assert Done(5) in to_koalad(actions)
        assert to_koalad(kcm.handle(T0, release._replace(id=6))) == [Done(6)]

    def test_a_release_that_came_before_the_barrier_is_repeated_there(self) -> None:
        kcm = queued_machine()
        release = Release(5, TAG, 0, [[0, "10.0.0.1", 1]])
        assert to_wrapper(kcm.handle(T0, release)) == []
        assert release in to_wrapper(kcm.handle(T0, do.WrapperConnected(TAG, T0)))
        assert to_wrapper(kcm.handle(T0, do.WrapperReported(TAG, report("started")))) == []
        assert to_wrapper(kcm.handle(T0, do.WrapperReported(TAG, report("at_barrier", at_barrier_at=T0)))) == [release]

    def test_a_release_of_an_attempt_that_left_its_barrier_is_refused(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Release(5, TAG, 0, []))
        actions = kcm.handle(T0, do.WrapperReported(TAG, report("ended", ending="left_barrier")))
        assert [answer.id for answer in to_koalad(actions) if isinstance(answer, Refused)] == [5]

    def test_keys_wait_for_the_wrapper_and_are_repeated_over_the_next_connection(self) -> None:
        kcm = queued_machine()
        key = PutKey(TAG, "port", "4000")
        assert to_wrapper(kcm.handle(T0, key)) == []
        assert key in to_wrapper(kcm.handle(T0, do.WrapperConnected(TAG, T0)))
        assert key in to_wrapper(kcm.handle(T0, do.WrapperConnected(TAG, T0)))

    def test_a_wrappers_key_goes_to_koalad_with_its_tag(self) -> None:
        kcm = running_machine()
        assert kcm.handle(T0, do.WrapperPut(TAG, "port", "1")) == [do.Send(PutKey(TAG, "port", "1"))]

    def test_the_end_of_a_wrapper_that_left_without_a_report_is_read_from_its_exit_record(self) -> None:
        kcm = running_machine()
        assert do.Inspect in operations(kcm.handle(T0, do.WrapperDisconnected(TAG)))
        record = report("ended", ending="exited", exit_status=3, ended_at=T0 - 50)
        ended = to_koalad(kcm.handle(T0, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", record)})))
        assert [(message.phase, message.exit_status, message.ended_at) for message in ended] == [("ended", 3, T0)]

    def test_an_invalid_report_is_ignored(self) -> None:
        kcm = running_machine()
        assert to_koalad(kcm.handle(T0, do.WrapperReported(TAG, {"phase": "ended"}))) == []


class TestWatching:
    def test_only_changes_of_a_batch_status_are_reported(self) -> None:
        kcm = queued_machine()
        first = to_koalad(kcm.handle(T0 + 2, measured(T0 + 1, listed(QUEUED))))
        assert [message.state for message in first if isinstance(message, BatchStatus)] == ["queued"]
        assert not [
            m for m in to_koalad(kcm.handle(T0 + 4, measured(T0 + 3, listed(QUEUED)))) if isinstance(m, BatchStatus)
        ]

    def test_a_job_that_is_no_longer_listed_is_missing_until_more_is_known(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(RUNNING)))
        kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))
        assert do.Inspect in operations(kcm.handle(T0 + 4, measured(T0 + 3)))
        assert operations(kcm.handle(T0 + 5, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))) == [do.Look]
        seen = to_koalad(kcm.handle(T0 + 6, do.Looked(TAG)))
        assert [message.state for message in seen] == ["missing"]
        assert do.Look in operations(kcm.tick(T0 + 6 + 5 * SECOND))
        assert do.Inspect in operations(kcm.handle(T0 + 9 * SECOND, do.Looked(TAG, accounted=listed(ENDED))))
        seen = to_koalad(kcm.handle(T0 + 9 * SECOND, do.Inspected([TAG], {TAG: do.DirectoryStatus()})))
        assert [message.state for message in seen] == ["ended"]

    def test_a_job_submitted_while_the_call_ran_is_not_missing(self) -> None:
        kcm = queued_machine()
        assert do.Inspect in operations(kcm.handle(T0 + 2, measured(T0 - 1)))
        assert kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus()})) == []

    def test_the_exit_record_is_reported_before_the_batch_systems_end(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(ENDED)))
        assert operations(kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))) == []
        assert do.Inspect in operations(kcm.tick(T0 + 3 + SECOND // 2))
        statuses = {TAG: do.DirectoryStatus("taken", report("ended", ending="exited", exit_status=0))}
        seen = to_koalad(kcm.handle(T0 + SECOND, do.Inspected([TAG], statuses)))
        assert [type(message) for message in seen] == [Report, BatchStatus]

    def test_a_directory_status_from_before_the_end_is_not_used(self) -> None:
        kcm = queued_machine()
        assert do.Inspect in operations(kcm.handle(T0 + 2, measured(T0 + 1, listed(RUNNING))))
        assert kcm.handle(T0 + 4, measured(T0 + 3, listed(ENDED))) == [do.Inspect([])]
        assert kcm.handle(T0 + 5, do.Inspected([TAG], {TAG: do.DirectoryStatus()})) == [do.Inspect([TAG])]
        assert to_koalad(kcm.handle(T0 + 6, do.Inspected([TAG], {TAG: do.DirectoryStatus()}))) != []

    def test_the_end_of_a_job_without_a_start_lock_is_reported_at_once(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(ENDED)))
        assert [m.state for m in to_koalad(kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus()})))] == [
            "ended"
        ]

    def test_a_started_job_that_the_batch_system_lost_is_missing_until_its_exit_record_is_there(self) -> None:
        """Its node may only be unreachable, while its program runs on there."""
        kcm = queued_machine()
        lost = listed(ENDED)._replace(ending=LOST, reason="NODE_FAIL")
        kcm.handle(T0 + 2, measured(T0 + 1, lost))
        seen = []
        for at in (1, 2, 5):  # waits for an exit record that becomes visible late
            seen += to_koalad(
                kcm.handle(T0 + at * SECOND, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", None, at)}))
            )
            kcm.tick(T0 + at * SECOND + 2 * SECOND)
        assert [(message.state, message.reason) for message in seen] == [("missing", "NODE_FAIL")]
        record = report("ended", ending="exited", exit_status=0)
        found = to_koalad(kcm.handle(T0 + 60 * SECOND, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", record)})))
        assert {message.exit_status for message in found if isinstance(message, Report)} == {0}

    def test_a_job_without_a_start_lock_that_the_batch_system_lost_has_ended(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(ENDED)._replace(ending=LOST)))
        assert [m.state for m in to_koalad(kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus()})))] == [
            "ended"
        ]

    def test_a_missing_attempt_whose_wrapper_reports_is_missing_again_after_its_disconnect(self) -> None:
        """Its batch system does not list it any more, which counts only while its wrapper is not connected."""
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1))
        kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))
        assert to_koalad(kcm.handle(T0 + 4, do.Looked(TAG)))[0].state == "missing"
        for at in (T0 + SECOND, T0 + 1000 * SECOND):
            kcm.handle(at, do.WrapperConnected(TAG, at))
            running = to_koalad(kcm.handle(at, do.WrapperReported(TAG, report("running"))))
            assert [message.phase for message in running if isinstance(message, Report)] == ["running"]
            assert to_koalad(kcm.handle(at, do.Looked(TAG))) == []
            assert do.Look in operations(kcm.tick(at + 400 * SECOND))
            assert to_koalad(kcm.handle(at + 400 * SECOND, do.Looked(TAG))) == []
            assert do.Look in operations(kcm.handle(at + 401 * SECOND, do.WrapperDisconnected(TAG)))
            assert to_koalad(kcm.handle(at + 401 * SECOND, do.Looked(TAG)))[0].state == "missing"

    def test_an_attempt_of_which_no_accounting_can_be_asked_is_missing_after_some_tries(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1))
        kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))
        broken, at = {"code": "no_file", "whose": "cluster", "message": "No accounting file."}, T0 + 4
        for _ in range(LOOKS - 1):
            assert to_koalad(kcm.handle(at, do.Looked(TAG, error=broken, unaccounted=True))) == []
            at += 400 * SECOND
            assert do.Look in operations(kcm.tick(at))
        assert to_koalad(kcm.handle(at, do.Looked(TAG, error=broken, unaccounted=True)))[0].state == "missing"
        assert do.Look in operations(kcm.tick(at + 400 * SECOND)), "the accounting may answer yet"
        found = kcm.handle(at + 401 * SECOND, do.Looked(TAG, accounted=listed(ENDED)))
        assert do.Inspect in operations(found)

    def test_an_attempt_of_which_the_queue_cannot_be_asked_is_never_missing(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1))
        kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))
        at = T0 + 4
        for _ in range(3 * LOOKS):
            assert to_koalad(kcm.handle(at, do.Looked(TAG, error={"code": "down"}))) == []
            at += 400 * SECOND
            assert do.Look in operations(kcm.tick(at))

    def test_a_late_batch_job_of_a_cleaned_up_attempt_is_cancelled(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 1, Cancel(9, TAG))
        kcm.handle(T0 + 1, do.StartLockTaken(TAG, True))
        kcm.handle(T0 + 1, do.JobCancelled(TAG))
        assert CleanedUp(TAG, T0 + 1) in to_koalad(kcm.handle(T0 + 1, do.JobsChecked(["41"], {})))
        before = kcm.handle(T0 + 2, measured(T0, listed(RUNNING)))
        assert do.CancelJob not in operations(before)
        late = kcm.handle(T0 + 9, measured(T0 + 5, listed(QUEUED)._replace(batch_id="42")))
        assert do.CancelJob(TAG, "42") in late

    def test_a_second_batch_job_of_a_tag_is_cancelled_too(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(QUEUED), listed(QUEUED)._replace(batch_id="42")))
        kcm.handle(T0 + 3, Cancel(9, TAG))
        kcm.handle(T0 + 3, do.StartLockTaken(TAG, True))
        assert do.Look in operations(kcm.handle(T0 + 3, do.JobCancelled(TAG)))
        found = kcm.handle(T0 + 3, do.Looked(TAG, listed(QUEUED)._replace(batch_id="42")))
        assert do.CancelJob(TAG, "42") in found
        kcm.handle(T0 + 4, do.JobCancelled(TAG))
        assert to_koalad(kcm.handle(T0 + 4, do.Looked(TAG))) == [CleanedUp(TAG, T0 + 4)]

    def test_a_newer_kcm_ends_this_one(self) -> None:
        kcm = machine()
        assert do.Quit in operations(kcm.handle(T0, do.Inspected([TAG], {}, 8)))
        assert do.Quit not in operations(machine().handle(T0, do.Inspected([TAG], {}, 7)))

    def test_a_new_kcm_first_inspects_the_attempts_that_hello_names(self) -> None:
        kcm = machine([TAG, "41"])
        assert kcm.start(T0) == [do.Inspect([TAG]), do.Measure()]


class TestPace:
    def test_measurements_follow_one_another_at_the_grid_files_interval(self) -> None:
        kcm = machine()
        assert operations(kcm.start(T0)) == [do.Inspect, do.Measure]
        assert kcm.tick(T0 + 60 * SECOND) == []
        assert do.Measure in operations(kcm.handle(T0 + 60 * SECOND, measured(T0)))
        kcm.handle(T0 + 60 * SECOND, Acknowledge(1))
        kcm.handle(T0 + 61 * SECOND, measured(T0 + 60 * SECOND))
        kcm.handle(T0 + 61 * SECOND, Acknowledge(2))
        assert kcm.wakeup() == T0 + 70 * SECOND

    def test_an_urgent_poll_is_made_every_second_unless_its_cost_forbids_it(self) -> None:
        kcm = machine()
        kcm.start(T0)
        kcm.handle(T0 + 1, measured(T0, cost=20_000))
        kcm.handle(T0 + 1, Acknowledge(1))
        assert kcm.wakeup() == T0 + 10 * SECOND
        kcm.handle(T0 + 2, WatchCluster(True))
        assert kcm.wakeup() == T0 + 2_300_000

    def test_while_launchers_hold_nodes_polls_are_made_at_the_floor(self) -> None:
        """Local jobs may want those nodes, and only a poll shows them."""
        launcher = tag_of(InstanceId("aaaaa"), AttemptId(JobId(FIRST_LAUNCHER), 0, 1))
        kcm = machine([launcher, "41"], floor=2.0)
        kcm.start(T0)
        seen = JobStatus("41", launcher, RUNNING)
        capacity = Capacity(4, 0, 4, 0, 0, [launcher], [], [], {"41": seen})
        kcm.handle(T0 + 1, do.CapacityMeasured(T0, capacity, None, 10))
        kcm.handle(T0 + 1, Acknowledge(9))
        assert kcm.wakeup() == T0 + 2 * SECOND
        kcm.tick(T0 + 2 * SECOND)
        kcm.handle(T0 + 2 * SECOND, do.CapacityMeasured(T0, capacity._replace(allocated=[]), None, 10))
        kcm.handle(T0 + 2 * SECOND, Acknowledge(99))
        assert kcm.wakeup() == T0 + 12 * SECOND

    def test_while_launchers_hold_nodes_the_servers_share_of_the_cost_counts_too(self) -> None:
        """Only some calls run all commands; the budget that the cheaper calls leave helps to pay for them."""
        launcher = tag_of(InstanceId("aaaaa"), AttemptId(JobId(FIRST_LAUNCHER), 0, 1))
        kcm = machine([launcher, "41"], floor=2.0)
        kcm.start(T0)
        capacity = Capacity(4, 0, 4, 0, 0, [launcher], [], [], {"41": JobStatus("41", launcher, RUNNING)})
        at = T0
        for cost, seconds in ((30_000, 5.52), (10_000, 2), (5_000, 2), (3_000, 2), (2_000, 2), (40_000, 4.36)):
            kcm.handle(at, do.CapacityMeasured(at, capacity, None, cost))
            kcm.handle(at, Acknowledge(1 << 20))
            assert kcm.wakeup() == at + round(seconds * SECOND)
            at += round(seconds * SECOND)
            kcm.tick(at)

    def test_a_measurement_follows_a_submit_soon(self) -> None:
        kcm = machine()
        kcm.start(T0)
        kcm.handle(T0 + 1, measured(T0))
        kcm.handle(T0 + 1, Acknowledge(1))
        for event in (submit(), do.Prepared(TAG), do.JobSubmitted(TAG, "41")):
            kcm.handle(T0 + 1, event)
        assert kcm.wakeup() == T0 + 1 + SECOND // 5

    def test_only_the_newest_measurement_waits_for_the_acknowledgement(self) -> None:
        kcm = machine()
        assert len(to_koalad(kcm.handle(T0, measured(T0)))) == 1
        for second in (1, 2, 3):
            assert to_koalad(kcm.handle(T0 + second * SECOND, measured(T0 + second * SECOND))) == []
        newest = kcm.handle(T0 + 4 * SECOND, Acknowledge(1))
        assert [message.measured_at for message in to_koalad(newest)] == [T0 + 3 * SECOND]
        assert [action.message.number for action in newest if isinstance(action, do.Send)] == [2]
        assert all(isinstance(message, Measured) for message in to_koalad(newest))

    def test_unacknowledged_events_are_sent_again_in_order(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Acknowledge(1))
        kcm.handle(T0 + 2, measured(T0 + 1, listed(QUEUED)))
        again = kcm.tick(T0 + 31 * SECOND)
        assert [action.message.number for action in again if isinstance(action, do.Send)] == [2, 3]


class TestForget:
    def test_a_forgotten_attempt_is_removed_until_the_removal_succeeds(self) -> None:
        kcm = queued_machine()
        assert operations(kcm.handle(T0, Forget(3, TAG))) == [do.Remove]
        assert to_koalad(kcm.handle(T0, do.Removed(TAG, UNREACHABLE))) == []
        assert do.Remove in operations(kcm.tick(T0 + SECOND))
        assert to_koalad(kcm.handle(T0 + SECOND, do.Removed(TAG))) == [Done(3)]

    def test_late_outcomes_of_a_forgotten_attempt_change_nothing(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Forget(3, TAG))
        kcm.handle(T0, do.Removed(TAG))
        for late in (do.JobCancelled(TAG), do.Looked(TAG), do.StartLockTaken(TAG, True), do.WrapperDisconnected(TAG)):
            assert kcm.handle(T0, late) == []


def test_an_answer_to_an_earlier_question_does_not_decide_on_a_submit_in_doubt() -> None:
    """If the KCM took it for the answer to its new question, it would submit the attempt twice."""
    kcm = machine([TAG, ""])
    kcm.handle(T0 + 1, measured(T0 + 1))
    assert do.Look(TAG, "") in kcm.handle(T0 + 1, do.Inspected([TAG], {}))
    assert do.Look(TAG, "", submitting=True) in kcm.handle(T0 + 1, submit(doubt=True))
    assert operations(kcm.handle(T0 + 1, do.Looked(TAG))) == []
    asked = kcm.handle(T0 + 1, do.Looked(TAG, submitting=True))
    assert asked == [do.Inspect([TAG], submitting=True)]
    assert operations(kcm.handle(T0 + 1, do.Inspected([TAG], {}))) == []
    assert operations(kcm.handle(T0 + 1, do.Inspected([TAG], {}, submitting=True))) == [do.Prepare]
    assert operations(kcm.handle(T0 + 1, do.Looked(TAG))) == []
    assert operations(kcm.handle(T0 + 1, do.Prepared(TAG))) == [do.SubmitJob]


class TestSilence:
    """Some batch systems list the job of a dead node as running, while its wrapper is silent."""

    def batch_statuses(self, kcm: Machine, at: int, heartbeat: int = 0) -> list[Any]:
        """Return the new batch statuses once the batch system lists the job as running with this heartbeat."""
        messages = to_koalad(kcm.handle(at, measured(at, listed(RUNNING))))
        messages += to_koalad(
            kcm.handle(at, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", heartbeat=heartbeat)}))
        )
        return [*dict.fromkeys(each for each in messages if isinstance(each, BatchStatus) and each.at == at)]

    def test_a_wrapper_that_is_silent_while_its_batch_job_runs_is_reported_once_with_its_last_sign(self) -> None:
        kcm = running_machine()
        kcm.handle(T0 + 5, do.WrapperDisconnected(TAG))
        assert [seen.silent_since for seen in self.batch_statuses(kcm, T0 + 59 * SECOND, 7)] == [None]
        (status,) = self.batch_statuses(kcm, T0 + 61 * SECOND, 7)
        assert (status.state, status.batch_id, status.silent_since) == ("running", "41", T0 + 5)
        assert self.batch_statuses(kcm, T0 + 300 * SECOND, 7) == []

    def test_a_repeated_report_of_the_wrapper_ends_its_silence(self) -> None:
        kcm = running_machine()
        kcm.handle(T0 + 5, do.WrapperDisconnected(TAG))
        assert self.batch_statuses(kcm, T0 + 61 * SECOND)[-1].silent_since == T0 + 5
        kcm.handle(T0 + 70 * SECOND, do.WrapperConnected(TAG, T0))
        again = report("at_barrier", at_barrier_at=T0 - 60)
        assert [type(each) for each in to_koalad(kcm.handle(T0 + 70 * SECOND, do.WrapperReported(TAG, again)))] == [
            Report
        ]
        assert to_koalad(kcm.handle(T0 + 71 * SECOND, do.WrapperReported(TAG, again))) == []

    def test_a_wrapper_with_a_heartbeat_is_not_silent_and_its_next_beat_ends_a_silence(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        for beat in range(1, 10):
            messages = self.batch_statuses(kcm, T0 + 30 * beat * SECOND, heartbeat=beat)
            assert all(seen.silent_since is None for seen in messages)
        assert self.batch_statuses(kcm, T0 + 400 * SECOND, heartbeat=9)[-1].silent_since == T0 + 270 * SECOND
        assert [seen.silent_since for seen in self.batch_statuses(kcm, T0 + 401 * SECOND, heartbeat=10)] == [None]

    def test_for_a_new_kcm_the_silence_begins_with_the_last_heartbeat(self) -> None:
        kcm = machine([TAG, "41"])
        self.batch_statuses(kcm, T0, heartbeat=T0 - 500 * SECOND)
        messages = self.batch_statuses(kcm, T0 + 60 * SECOND, heartbeat=T0 - 500 * SECOND)
        assert [seen.silent_since for seen in messages] == [T0 - 500 * SECOND]

    def test_no_wrapper_is_silent_while_the_shared_directory_is_unreachable(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        self.batch_statuses(kcm, T0 + 10 * SECOND)
        kcm.handle(T0 + 59 * SECOND, measured(T0 + 59 * SECOND, listed(RUNNING)))
        kcm.handle(T0 + 59 * SECOND, do.Inspected([TAG], {}, error=UNREACHABLE))
        assert self.batch_statuses(kcm, T0 + 100 * SECOND) == []

    def test_a_connected_queued_or_suspended_attempt_is_not_silent(self) -> None:
        connected, waits = running_machine(), queued_machine()
        suspended = running_machine()
        suspended.handle(T0, do.WrapperDisconnected(TAG))
        for at in (T0 + SECOND, T0 + 600 * SECOND):
            assert all(seen.silent_since is None for seen in self.batch_statuses(connected, at))
            for kcm, state in ((waits, QUEUED), (suspended, SUSPENDED)):
                messages = to_koalad(kcm.handle(at, measured(at, listed(state))))
                messages += to_koalad(kcm.handle(at, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")})))
                assert all(each.silent_since is None for each in messages if isinstance(each, BatchStatus))
