"""What the KCM makes of wrappers, of the batch system's lists and of time: an event in, actions out."""

from typing import Any

import kcm_talk as talk
from koalapy_adapters.batch.protocol import ENDED, LOST, QUEUED, RUNNING, SUSPENDED, Capacity, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages import (
    Acknowledge,
    BatchStatus,
    Cancel,
    CleanedUp,
    Done,
    Forget,
    Measured,
    PutKey,
    Refused,
    Release,
    Report,
    WatchCluster,
)

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

machine = talk.machine
submit = talk.submit
said = talk.said
told = talk.told
operations = talk.operations
measured = talk.measured
listed = talk.listed
queued_machine = talk.queued_machine
running_machine = talk.running_machine
report = talk.report
TAG = talk.TAG
T0 = talk.T0
LATER = talk.LATER
SECOND = talk.SECOND


class TestWrapper:
    def test_instants_are_mapped_to_the_kcms_clock_and_stay_as_they_were_first_mapped(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, do.WrapperConnected(TAG, T0 - 50))
        first = said(kcm.handle(T0, do.WrapperReported(TAG, report("at_barrier", at_barrier_at=T0 - 60))))
        assert first[0].at_barrier_at == T0 - 10
        kcm.handle(T0, do.WrapperConnected(TAG, T0 - 40))
        assert said(kcm.handle(T0, do.WrapperReported(TAG, report("at_barrier", at_barrier_at=T0 - 60)))) == []

    def test_a_wrapper_of_another_version_is_said_to_be_over_and_leaves_its_own_end_open(self) -> None:
        kcm = queued_machine()
        (ended,) = said(kcm.handle(T0, do.OtherVersion(TAG, released=False)))
        assert (ended.phase, ended.ending, ended.error["code"]) == ("ended", "restarted", "other_version")
        assert said(kcm.handle(T0, do.OtherVersion(TAG, released=False))) == []
        assert said(kcm.handle(T0, Release(5, TAG, 0, [])))[0].error["code"] == "attempt_over"

    def test_one_of_another_version_that_may_run_its_program_is_left_to_its_record(self) -> None:
        assert said(queued_machine().handle(T0, do.OtherVersion(TAG, released=True))) == []
        connected = running_machine()
        assert said(connected.handle(T0, do.OtherVersion(TAG, released=False))) == []
        released = running_machine()
        released.handle(T0, do.WrapperReported(TAG, report("running", released_at=T0)))
        released.handle(T0, do.WrapperDisconnected(TAG))
        assert said(released.handle(T0, do.OtherVersion(TAG, released=False))) == []

    def test_release_is_answered_when_the_wrapper_says_that_it_has_it(self) -> None:
        kcm = running_machine()
        release = Release(5, TAG, 0, [[0, "10.0.0.1", 1]])
        actions = kcm.handle(T0, release)
        assert (told(actions), said(actions)) == ([release], [])
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        assert told(kcm.handle(T0, do.WrapperConnected(TAG, T0))) == [release]
        actions = kcm.handle(T0, do.WrapperReported(TAG, report("released", at_barrier_at=1, released_at=T0)))
        assert Done(5) in said(actions)
        assert said(kcm.handle(T0, release._replace(id=6))) == [Done(6)]

    def test_release_that_came_before_the_barrier_is_told_again_at_it(self) -> None:
        kcm = queued_machine()
        release = Release(5, TAG, 0, [[0, "10.0.0.1", 1]])
        assert told(kcm.handle(T0, release)) == []
        assert release in told(kcm.handle(T0, do.WrapperConnected(TAG, T0)))
        assert told(kcm.handle(T0, do.WrapperReported(TAG, report("started")))) == []
        assert told(kcm.handle(T0, do.WrapperReported(TAG, report("at_barrier", at_barrier_at=T0)))) == [release]

    def test_release_of_one_that_left_its_barrier_is_refused(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Release(5, TAG, 0, []))
        actions = kcm.handle(T0, do.WrapperReported(TAG, report("ended", ending="left_barrier")))
        assert [answer.id for answer in said(actions) if isinstance(answer, Refused)] == [5]

    def test_keys_wait_for_the_wrapper_and_are_told_again_to_the_next_connection(self) -> None:
        kcm = queued_machine()
        key = PutKey(TAG, "port", "4000")
        assert told(kcm.handle(T0, key)) == []
        assert key in told(kcm.handle(T0, do.WrapperConnected(TAG, T0)))
        assert key in told(kcm.handle(T0, do.WrapperConnected(TAG, T0)))

    def test_a_wrappers_key_goes_to_koalad_as_its_own(self) -> None:
        kcm = running_machine()
        assert kcm.handle(T0, do.WrapperPut(TAG, "port", "1")) == [do.Send(PutKey(TAG, "port", "1"))]

    def test_one_that_left_without_a_word_is_told_by_its_record(self) -> None:
        kcm = running_machine()
        assert do.Inspect in operations(kcm.handle(T0, do.WrapperDisconnected(TAG)))
        record = report("ended", ending="exited", exit_status=3, ended_at=T0 - 50)
        ended = said(kcm.handle(T0, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", record)})))
        assert [(message.phase, message.exit_status, message.ended_at) for message in ended] == [("ended", 3, T0)]

    def test_what_is_no_report_is_passed_over(self) -> None:
        kcm = running_machine()
        assert said(kcm.handle(T0, do.WrapperReported(TAG, {"phase": "ended"}))) == []


class TestWatching:
    def test_says_what_changed_and_only_that(self) -> None:
        kcm = queued_machine()
        first = said(kcm.handle(T0 + 2, measured(T0 + 1, listed(QUEUED))))
        assert [message.state for message in first if isinstance(message, BatchStatus)] == ["queued"]
        assert not [m for m in said(kcm.handle(T0 + 4, measured(T0 + 3, listed(QUEUED)))) if isinstance(m, BatchStatus)]

    def test_a_job_that_is_no_longer_listed_is_missing_until_more_is_known(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(RUNNING)))
        kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))
        assert do.Inspect in operations(kcm.handle(T0 + 4, measured(T0 + 3)))
        assert operations(kcm.handle(T0 + 5, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))) == [do.Look]
        seen = said(kcm.handle(T0 + 6, do.Looked(TAG)))
        assert [message.state for message in seen] == ["missing"]
        assert do.Look in operations(kcm.tick(T0 + 6 + 5 * SECOND))
        assert do.Inspect in operations(kcm.handle(T0 + 9 * SECOND, do.Looked(TAG, accounted=listed(ENDED))))
        seen = said(kcm.handle(T0 + 9 * SECOND, do.Inspected([TAG], {TAG: do.DirectoryStatus()})))
        assert [message.state for message in seen] == ["ended"]

    def test_a_job_submitted_while_the_call_ran_is_not_missing(self) -> None:
        kcm = queued_machine()
        assert do.Inspect in operations(kcm.handle(T0 + 2, measured(T0 - 1)))
        assert kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus()})) == []

    def test_an_end_seen_by_the_batch_system_lets_the_record_speak_first(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(ENDED)))
        assert operations(kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))) == []
        assert do.Inspect in operations(kcm.tick(T0 + 3 + SECOND // 2))
        sights = {TAG: do.DirectoryStatus("taken", report("ended", ending="exited", exit_status=0))}
        seen = said(kcm.handle(T0 + SECOND, do.Inspected([TAG], sights)))
        assert [type(message) for message in seen] == [Report, BatchStatus]

    def test_a_sight_from_before_the_end_settles_nothing(self) -> None:
        kcm = queued_machine()
        assert do.Inspect in operations(kcm.handle(T0 + 2, measured(T0 + 1, listed(RUNNING))))
        assert kcm.handle(T0 + 4, measured(T0 + 3, listed(ENDED))) == [do.Inspect([])]
        assert kcm.handle(T0 + 5, do.Inspected([TAG], {TAG: do.DirectoryStatus()})) == [do.Inspect([TAG])]
        assert said(kcm.handle(T0 + 6, do.Inspected([TAG], {TAG: do.DirectoryStatus()}))) != []

    def test_an_unclaimed_job_that_ended_is_told_at_once(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(ENDED)))
        assert [m.state for m in said(kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus()})))] == [
            "ended"
        ]

    def test_a_claimed_job_that_the_batch_system_lost_is_missing_until_its_record_is_there(self) -> None:
        """Its node may only be cut off, and its program run on there."""
        kcm = queued_machine()
        lost = listed(ENDED)._replace(ending=LOST, reason="NODE_FAIL")
        kcm.handle(T0 + 2, measured(T0 + 1, lost))
        seen = []
        for at in (1, 2, 5):  # for a record that shows late
            seen += said(
                kcm.handle(T0 + at * SECOND, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", None, at)}))
            )
            kcm.tick(T0 + at * SECOND + 2 * SECOND)
        assert [(message.state, message.reason) for message in seen] == [("missing", "NODE_FAIL")]
        record = report("ended", ending="exited", exit_status=0)
        found = said(kcm.handle(T0 + 60 * SECOND, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", record)})))
        assert {message.exit_status for message in found if isinstance(message, Report)} == {0}

    def test_an_unclaimed_job_that_the_batch_system_lost_is_over(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(ENDED)._replace(ending=LOST)))
        assert [m.state for m in said(kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus()})))] == [
            "ended"
        ]

    def test_one_that_was_missing_is_heard_of_again_and_missing_again(self) -> None:
        """Its batch system has lost it for ever; while its wrapper speaks that means nothing, and then everything."""
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1))
        kcm.handle(T0 + 3, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")}))
        assert said(kcm.handle(T0 + 4, do.Looked(TAG)))[0].state == "missing"
        for at in (T0 + SECOND, T0 + 1000 * SECOND):
            kcm.handle(at, do.WrapperConnected(TAG, at))
            running = said(kcm.handle(at, do.WrapperReported(TAG, report("running"))))
            assert [message.phase for message in running if isinstance(message, Report)] == ["running"]
            assert said(kcm.handle(at, do.Looked(TAG))) == []
            assert do.Look in operations(kcm.tick(at + 400 * SECOND))
            assert said(kcm.handle(at + 400 * SECOND, do.Looked(TAG))) == []
            assert do.Look in operations(kcm.handle(at + 401 * SECOND, do.WrapperDisconnected(TAG)))
            assert said(kcm.handle(at + 401 * SECOND, do.Looked(TAG)))[0].state == "missing"

    def test_what_comes_late_of_an_attempt_that_is_gone_is_cancelled(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 1, Cancel(9, TAG))
        kcm.handle(T0 + 1, do.StartLockTaken(TAG, True))
        kcm.handle(T0 + 1, do.JobCancelled(TAG))
        assert CleanedUp(TAG, T0 + 1) in said(kcm.handle(T0 + 1, do.JobsChecked(["41"], {})))
        before = kcm.handle(T0 + 2, measured(T0, listed(RUNNING)))
        assert do.CancelJob not in operations(before)
        late = kcm.handle(T0 + 9, measured(T0 + 5, listed(QUEUED)._replace(batch_id="42")))
        assert do.CancelJob(TAG, "42") in late

    def test_a_second_batch_job_of_a_tag_is_ended_too(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0 + 2, measured(T0 + 1, listed(QUEUED), listed(QUEUED)._replace(batch_id="42")))
        kcm.handle(T0 + 3, Cancel(9, TAG))
        kcm.handle(T0 + 3, do.StartLockTaken(TAG, True))
        assert do.Look in operations(kcm.handle(T0 + 3, do.JobCancelled(TAG)))
        found = kcm.handle(T0 + 3, do.Looked(TAG, listed(QUEUED)._replace(batch_id="42")))
        assert do.CancelJob(TAG, "42") in found
        kcm.handle(T0 + 4, do.JobCancelled(TAG))
        assert said(kcm.handle(T0 + 4, do.Looked(TAG))) == [CleanedUp(TAG, T0 + 4)]

    def test_a_newer_kcm_ends_this_one(self) -> None:
        kcm = machine()
        assert do.Quit in operations(kcm.handle(T0, do.Inspected([TAG], {}, 8)))
        assert do.Quit not in operations(machine().handle(T0, do.Inspected([TAG], {}, 7)))

    def test_what_ended_while_nobody_listened_is_looked_for_first(self) -> None:
        kcm = machine([TAG, "41"])
        assert kcm.start(T0) == [do.Inspect([TAG]), do.Measure()]


class TestPace:
    def test_one_call_at_a_time_as_often_as_the_grid_file_says(self) -> None:
        kcm = machine()
        assert operations(kcm.start(T0)) == [do.Inspect, do.Measure]
        assert kcm.tick(T0 + 60 * SECOND) == []
        assert do.Measure in operations(kcm.handle(T0 + 60 * SECOND, measured(T0)))
        kcm.handle(T0 + 60 * SECOND, Acknowledge(1))
        kcm.handle(T0 + 61 * SECOND, measured(T0 + 60 * SECOND))
        kcm.handle(T0 + 61 * SECOND, Acknowledge(2))
        assert kcm.wakeup() == T0 + 70 * SECOND

    def test_urgent_polls_every_second_but_never_beyond_its_cost(self) -> None:
        kcm = machine()
        kcm.start(T0)
        kcm.handle(T0 + 1, measured(T0, cost=20_000))
        kcm.handle(T0 + 1, Acknowledge(1))
        assert kcm.wakeup() == T0 + 10 * SECOND
        kcm.handle(T0 + 2, WatchCluster(True))
        assert kcm.wakeup() == T0 + 2_300_000

    def test_while_launchers_hold_nodes_it_polls_at_the_floor(self) -> None:
        """Local jobs may want those back, and nobody else tells of them."""
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
        """One call in several asks all commands; what cheaper ones have left helps to pay for it."""
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
        assert operations(kcm.handle(T0, Forget(3, TAG))) == [do.Remove]
        assert said(kcm.handle(T0, do.Removed(TAG, LATER))) == []
        assert do.Remove in operations(kcm.tick(T0 + SECOND))
        assert said(kcm.handle(T0 + SECOND, do.Removed(TAG))) == [Done(3)]

    def test_outcomes_that_come_late_change_nothing(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Forget(3, TAG))
        kcm.handle(T0, do.Removed(TAG))
        for late in (do.JobCancelled(TAG), do.Looked(TAG), do.StartLockTaken(TAG, True), do.WrapperDisconnected(TAG)):
            assert kcm.handle(T0, late) == []


def test_what_was_asked_before_does_not_answer_for_a_submit_in_doubt() -> None:
    """Taken for the answer to whatever runs then, it would let the attempt be submitted twice."""
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
    """A node that died leaves its batch job running in the eyes of some batch systems, and its wrapper silent."""

    def look(self, kcm: Machine, at: int, heartbeat: int = 0) -> list[Any]:
        """What is new after the batch system says that it runs, and nothing else has changed in its directory."""
        told = said(kcm.handle(at, measured(at, listed(RUNNING))))
        told += said(kcm.handle(at, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", heartbeat=heartbeat)})))
        return [*dict.fromkeys(each for each in told if isinstance(each, BatchStatus) and each.at == at)]

    def test_a_wrapper_that_is_silent_while_its_batch_job_runs_is_told_once_with_since_when(self) -> None:
        kcm = running_machine()
        kcm.handle(T0 + 5, do.WrapperDisconnected(TAG))
        assert [seen.silent_since for seen in self.look(kcm, T0 + 59 * SECOND, 7)] == [None]
        (told,) = self.look(kcm, T0 + 61 * SECOND, 7)
        assert (told.state, told.batch_id, told.silent_since) == ("running", "41", T0 + 5)
        assert self.look(kcm, T0 + 300 * SECOND, 7) == []

    def test_its_silence_ends_with_its_word_though_it_says_nothing_new(self) -> None:
        kcm = running_machine()
        kcm.handle(T0 + 5, do.WrapperDisconnected(TAG))
        assert self.look(kcm, T0 + 61 * SECOND)[-1].silent_since == T0 + 5
        kcm.handle(T0 + 70 * SECOND, do.WrapperConnected(TAG, T0))
        again = report("at_barrier", at_barrier_at=T0 - 60)
        assert [type(each) for each in said(kcm.handle(T0 + 70 * SECOND, do.WrapperReported(TAG, again)))] == [Report]
        assert said(kcm.handle(T0 + 71 * SECOND, do.WrapperReported(TAG, again))) == []

    def test_one_whose_heartbeat_goes_on_is_not_silent_and_its_first_beat_ends_a_silence(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        for beat in range(1, 10):
            told = self.look(kcm, T0 + 30 * beat * SECOND, heartbeat=beat)
            assert all(seen.silent_since is None for seen in told)
        assert self.look(kcm, T0 + 400 * SECOND, heartbeat=9)[-1].silent_since == T0 + 270 * SECOND
        assert [seen.silent_since for seen in self.look(kcm, T0 + 401 * SECOND, heartbeat=10)] == [None]

    def test_a_kcm_that_never_heard_it_goes_by_its_last_heartbeat(self) -> None:
        kcm = machine([TAG, "41"])
        self.look(kcm, T0, heartbeat=T0 - 500 * SECOND)
        told = self.look(kcm, T0 + 60 * SECOND, heartbeat=T0 - 500 * SECOND)
        assert [seen.silent_since for seen in told] == [T0 - 500 * SECOND]

    def test_while_the_shared_directory_is_out_of_reach_nobody_is_silent(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        self.look(kcm, T0 + 10 * SECOND)
        kcm.handle(T0 + 59 * SECOND, measured(T0 + 59 * SECOND, listed(RUNNING)))
        kcm.handle(T0 + 59 * SECOND, do.Inspected([TAG], {}, error=LATER))
        assert self.look(kcm, T0 + 100 * SECOND) == []

    def test_one_that_is_connected_queued_or_suspended_is_not_silent(self) -> None:
        connected, waits = running_machine(), queued_machine()
        suspended = running_machine()
        suspended.handle(T0, do.WrapperDisconnected(TAG))
        for at in (T0 + SECOND, T0 + 600 * SECOND):
            assert all(seen.silent_since is None for seen in self.look(connected, at))
            for kcm, state in ((waits, QUEUED), (suspended, SUSPENDED)):
                told = said(kcm.handle(at, measured(at, listed(state))))
                told += said(kcm.handle(at, do.Inspected([TAG], {TAG: do.DirectoryStatus("taken")})))
                assert all(each.silent_since is None for each in told if isinstance(each, BatchStatus))
