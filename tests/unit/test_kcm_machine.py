"""The KCM's decisions on Submit and Cancel: an event in, actions out, and time as an argument."""

from typing import Any

import kcm_talk as talk
import pytest
from koalapy_adapters.batch.protocol import CANCELLED, ENDED, EXITED, KILLED, LOST, QUEUED, RUNNING, JobStatus
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state import poll_schedule
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import (
    Acknowledge,
    Cancel,
    CleanedUp,
    Done,
    Refused,
    Stop,
    Submitted,
)

machine = talk.machine
submit = talk.submit
said = talk.said
told = talk.told
operations = talk.operations
measured = talk.measured
listed = talk.listed
queued_machine = talk.queued_machine
running_machine = talk.running_machine
second_start = talk.second_start
report = talk.report
TAG = talk.TAG
T0 = talk.T0
NO = talk.NO
LATER = talk.LATER
SECOND = talk.SECOND


class TestSubmit:
    def test_prepares_then_submits_then_answers(self) -> None:
        kcm = machine()
        assert operations(kcm.handle(T0, submit())) == [do.Prepare, do.Measure]
        assert operations(kcm.handle(T0, do.Prepared(TAG))) == [do.SubmitJob]
        assert said(kcm.handle(T0, do.JobSubmitted(TAG, "41"))) == [Submitted(1, TAG, "41")]

    def test_asked_twice_is_done_once_and_answered_twice(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit(1))
        assert operations(kcm.handle(T0, submit(2))) == []
        kcm.handle(T0, do.Prepared(TAG))
        answers = said(kcm.handle(T0, do.JobSubmitted(TAG, "41")))
        assert answers == [Submitted(1, TAG, "41"), Submitted(2, TAG, "41")]
        assert said(kcm.handle(T0, submit(3))) == [Submitted(3, TAG, "41")]

    def test_of_an_attempt_that_has_spoken_before_all_is_told_again(self) -> None:
        """koalad need not have known it then: its store was restored from a backup."""
        kcm = machine()
        (first,) = said(kcm.handle(T0, do.WrapperReported(TAG, report("ended", ended_at=T0))))
        answers = said(kcm.handle(T0, submit(1, doubt=True)))
        assert answers == [Submitted(1, TAG, "41"), first]

    def test_a_clear_no_revokes_before_it_is_said(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert kcm.handle(T0, do.JobSubmitted(TAG, error=NO)) == [do.TakeStartLock(TAG)]
        assert said(kcm.handle(T0, do.StartLockTaken(TAG, True))) == [Refused(1, NO)]
        assert said(kcm.handle(T0, submit(2))) == [Refused(2, NO)]

    def test_a_directory_that_cannot_be_made_refuses_at_once(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        full = failure("shared_full", "cluster", "Full.")
        assert said(kcm.handle(T0, do.Prepared(TAG, full))) == [Refused(1, full)]

    def test_a_doubt_after_the_submit_looks_before_it_answers(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert kcm.handle(T0, do.JobSubmitted(TAG, error=LATER, doubt=True)) == [do.Look(TAG, "", submitting=True)]
        assert said(kcm.handle(T0, do.Looked(TAG, listed(QUEUED), submitting=True))) == [Submitted(1, TAG, "41")]

    def test_in_doubt_a_directory_that_cannot_be_made_is_revoked_before_it_refuses(self) -> None:
        """The submit before may still reach the batch system, and the directory was there for it."""
        kcm = machine()
        kcm.handle(T0, submit(doubt=True))
        kcm.handle(T0, do.Looked(TAG, submitting=True))
        kcm.handle(T0, do.Inspected([TAG], {}, submitting=True))
        full = failure("shared_full", "cluster", "Full.")
        assert kcm.handle(T0, do.Prepared(TAG, full)) == [do.TakeStartLock(TAG)]
        for tries in range(1, 6):
            assert said(kcm.handle(T0, do.StartLockTaken(TAG, error=full))) == []
            assert do.TakeStartLock in operations(kcm.tick(T0 + 60 * tries * SECOND))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        assert said(kcm.handle(T0, do.Looked(TAG))) == [Refused(1, full)]

    def test_a_doubt_that_finds_nothing_revokes_and_makes_sure(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        kcm.handle(T0, do.JobSubmitted(TAG, error=LATER, doubt=True))
        assert kcm.handle(T0, do.Looked(TAG, submitting=True)) == [do.TakeStartLock(TAG)]
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        late = kcm.handle(T0, do.Looked(TAG, listed(QUEUED)))
        assert late == [do.CancelJob(TAG, "41")]
        assert said(late) == []
        assert do.Look in operations(kcm.handle(T0, do.JobCancelled(TAG)))
        assert said(kcm.handle(T0, do.Looked(TAG))) == [Refused(1, LATER)]

    @pytest.mark.parametrize(
        ("outcome", "answer"),
        [
            (do.Looked(TAG, listed=listed(QUEUED), submitting=True), [Submitted(1, TAG, "41")]),
            (do.Looked(TAG, accounted=listed(ENDED), submitting=True), [Submitted(1, TAG, "41")]),
            (do.Looked(TAG, error=LATER, submitting=True), []),
            (do.Looked(TAG, submitting=True), []),
        ],
        ids=["queued", "ended", "no answer", "not there"],
    )
    def test_with_doubt_looks_first(self, outcome: do.Looked, answer: list[Any]) -> None:
        kcm = machine()
        assert do.Look in operations(kcm.handle(T0, submit(doubt=True)))
        assert said(kcm.handle(T0, outcome)) == answer

    def test_with_doubt_and_no_answer_looks_again_and_never_submits(self) -> None:
        kcm = machine()
        kcm.handle(T0, measured(T0))
        kcm.handle(T0, submit(doubt=True))
        kcm.handle(T0, do.Looked(TAG, error=LATER, submitting=True))
        assert kcm.tick(T0 + SECOND) == [do.Look(TAG, "", submitting=True)]

    @pytest.mark.parametrize(
        ("sight", "next_deed"),
        [
            (None, do.Prepare),
            (do.DirectoryStatus(), do.Prepare),
            (do.DirectoryStatus(start_lock="void"), do.TakeStartLock),
        ],
        ids=["no directory", "unclaimed", "void"],
    )
    def test_with_doubt_the_directory_decides_last(self, sight: do.DirectoryStatus | None, next_deed: type) -> None:
        kcm = machine()
        kcm.handle(T0, submit(doubt=True))
        assert kcm.handle(T0, do.Looked(TAG, submitting=True)) == [do.Inspect([TAG], submitting=True)]
        sights = {} if sight is None else {TAG: sight}
        assert next_deed in operations(kcm.handle(T0, do.Inspected([TAG], sights, submitting=True)))

    def test_with_doubt_a_claim_means_that_it_runs(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit(doubt=True))
        kcm.handle(T0, do.Looked(TAG, submitting=True))
        sights = {TAG: do.DirectoryStatus("taken", report("ended"))}
        assert said(kcm.handle(T0, do.Inspected([TAG], sights, submitting=True))) == [Submitted(1, TAG, "41")]

    def test_one_that_hello_named_is_never_submitted_blindly(self) -> None:
        kcm = machine([TAG, ""])
        assert do.Look in operations(kcm.handle(T0, submit()))
        named = machine([TAG, "41"])
        assert said(named.handle(T0, submit())) == [Submitted(1, TAG, "41")]


def cancels(kcm: talk.Machine, actions: list[Any], count: int) -> list[bool]:
    """Whether each of the next cancels is forced, of a job that is listed as running whatever is done."""
    now, found = T0 + 50, []
    for _ in range(1000):
        later = []
        for action in actions:
            if isinstance(action, do.CancelJob):
                found.append(action.forced)
                later += kcm.handle(now, do.JobCancelled(TAG))
            if isinstance(action, do.CheckJobs):
                later += kcm.handle(now, do.JobsChecked(["41"], {"41": listed(RUNNING)}))
            if isinstance(action, do.Measure):
                later += kcm.handle(now, do.CapacityMeasured(now, error={}))
        if len(found) >= count:
            return found
        if not later:
            now = max(now, kcm.wakeup() or now)
        actions = later + kcm.tick(now)
    raise AssertionError(found)


def assert_gone_after(kcm: talk.Machine, wait: int, over: JobStatus) -> None:
    """So many seconds, and not one earlier, where the accounting has this of the job."""
    first = said(kcm.handle(T0, do.Looked(TAG, accounted=over)))
    assert (CleanedUp(TAG, T0) in first) == (wait == 0)
    before, after = T0 + (wait - 1) * SECOND, T0 + wait * SECOND
    if wait:
        assert CleanedUp(TAG, before) not in said(kcm.handle(before, do.Looked(TAG, accounted=over)))
        assert CleanedUp(TAG, after) in said(kcm.handle(after, do.Looked(TAG, accounted=over)))


class TestCancel:
    def test_of_a_queued_job_is_gone_with_the_first_look(self) -> None:
        kcm = queued_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        assert said(actions) == [Done(9)]
        assert operations(actions) == [do.TakeStartLock, do.CancelJob]
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        assert kcm.handle(T0 + 5, do.JobCancelled(TAG)) == [do.CheckJobs(["41"])]
        assert said(kcm.handle(T0 + 9, do.JobsChecked(["41"], {"41": listed(ENDED)}))) == [CleanedUp(TAG, T0 + 9)]

    def test_ends_a_submit_in_flight_first(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert operations(kcm.handle(T0, Cancel(9, TAG))) == [do.EndSubmit]
        assert do.TakeStartLock in operations(kcm.handle(T0, do.JobSubmitted(TAG, error=LATER, doubt=True)))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        gone = said(kcm.handle(T0, do.Looked(TAG)))
        assert [(type(message), message.tag if isinstance(message, CleanedUp) else message.id) for message in gone] == [
            (Refused, 1),
            (CleanedUp, TAG),
        ]

    def test_of_what_was_never_seen_revokes_it(self) -> None:
        kcm = machine()
        kcm.handle(T0, measured(T0))
        assert operations(kcm.handle(T0, Cancel(9, TAG))) == [do.TakeStartLock, do.Look, do.Inspect]
        assert said(kcm.handle(T0, do.Looked(TAG))) == []  # the claim is not known yet
        assert said(kcm.handle(T0, do.StartLockTaken(TAG, True))) == [CleanedUp(TAG, T0)]
        assert said(kcm.handle(T0, submit(2)))[0].id == 2

    def test_of_what_another_kcm_submitted_is_gone_only_when_it_is_revoked(self) -> None:
        """It may have been submitted in doubt: the one that ended need not be the only one."""
        kcm = machine([TAG, "41"])
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, error=LATER))
        kcm.handle(T0, do.JobCancelled(TAG))
        assert said(kcm.handle(T0, do.JobsChecked(["41"], {"41": listed(ENDED)}))) == []
        assert do.TakeStartLock in operations(kcm.tick(T0 + SECOND))
        assert said(kcm.handle(T0 + SECOND, do.StartLockTaken(TAG, True))) == [CleanedUp(TAG, T0 + SECOND)]

    def test_a_connected_wrapper_is_stopped_in_band_before_the_batch_system_is_asked(self) -> None:
        kcm = running_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        assert told(actions) == [Stop(False)]
        assert operations(actions) == [do.TakeStartLock]
        assert operations(kcm.tick(T0 + 4 * SECOND)) == []
        assert do.CancelJob in operations(kcm.tick(T0 + 5 * SECOND))  # the program's grace of 2 s, and 3 s

    def test_a_job_that_ended_and_stays_listed_is_to_be_forgotten_in_the_end(self) -> None:
        """As Grid Engine's do whose execd does not know the qmaster that was started anew."""
        kcm = running_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        actions += kcm.handle(T0, do.StartLockTaken(TAG, False))
        actions += kcm.handle(T0 + 50, do.WrapperReported(TAG, report("ended", ended_at=T0)))
        assert cancels(kcm, actions, 8) == [False, False, False, True, False, True, False, True]

    def test_a_job_that_may_run_is_not_to_be_forgotten_unless_its_user_forces_it(self) -> None:
        kcm = running_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        actions += kcm.handle(T0, do.StartLockTaken(TAG, False))
        assert cancels(kcm, actions, 8) == [False] * 8

    def test_force_does_not_wait_for_the_grace(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Cancel(9, TAG))
        actions = kcm.handle(T0, Cancel(10, TAG, force=True))
        assert told(actions) == [Stop(True)]
        assert operations(actions) == [do.CancelJob]

    def test_a_stopped_wrapper_that_says_so_is_gone_when_its_job_is(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        actions = kcm.handle(T0 + 50, do.WrapperReported(TAG, report("ended", ended_at=T0)))
        assert do.CheckJobs in operations(actions)
        again = kcm.handle(T0 + 60, do.JobsChecked(["41"], {"41": listed(RUNNING)}))
        assert said(again) == []
        assert do.CheckJobs in operations(kcm.tick(T0 + 60 + SECOND // 20))
        assert said(kcm.handle(T0 + SECOND, do.JobsChecked(["41"], {}))) == [CleanedUp(TAG, T0 + SECOND)]

    def test_a_claimed_attempt_that_vanished_is_gone_only_after_the_orphan_timeout(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        kcm.handle(T0, Acknowledge(1))
        assert said(kcm.handle(T0 + 604 * SECOND, do.Looked(TAG))) == []
        assert said(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG))) == [CleanedUp(TAG, T0 + 605 * SECOND)]

    def test_a_claimed_attempt_that_the_batch_system_lost_is_gone_only_after_the_orphan_timeout(self) -> None:
        kcm = queued_machine()
        lost = listed(ENDED)._replace(ending=LOST)
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {"41": lost}))
        kcm.handle(T0, Acknowledge(1))
        assert said(kcm.handle(T0 + 604 * SECOND, do.Looked(TAG, accounted=lost))) == []
        gone = said(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG, accounted=lost)))
        assert gone == [CleanedUp(TAG, T0 + 605 * SECOND)]

    @pytest.mark.parametrize(("closed", "over"), [(True, True), (False, False)])
    def test_that_the_batch_system_decided_is_believed_where_the_node_was_in_reach(
        self, closed: bool, over: bool
    ) -> None:
        """The server forgets a job whose node is cut off, and says that it was cancelled; the program runs on."""
        kcm = running_machine()
        kcm.handle(T0, Cancel(9, TAG, force=True))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        kcm.handle(T0, do.WrapperDisconnected(TAG, closed))
        kcm.handle(T0, do.JobCancelled(TAG))
        cancelled = listed(ENDED)._replace(ending=CANCELLED)
        assert (CleanedUp(TAG, T0) in said(kcm.handle(T0, do.JobsChecked(["41"], {"41": cancelled})))) == over
        later = said(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG, accounted=cancelled)))
        assert (CleanedUp(TAG, T0 + 605 * SECOND) in later) == (not over)

    @pytest.mark.parametrize(
        ("nodes", "released", "wait"),
        [(1, True, 0), (2, False, 0), (2, True, 67)],
        ids=["one node", "several, not released", "several"],
    )
    def test_that_the_batch_job_ended_says_nothing_of_programs_on_its_other_nodes(
        self, nodes: int, released: bool, wait: int
    ) -> None:
        """Its wrapper was killed: on a node that is cut off only the agent can end the program, after silence."""
        kcm = running_machine()
        said_last: dict[str, Any] = {"nodes": [[f"n{each}", "10.0.0.1", 2] for each in range(nodes)]}
        if released:
            said_last["released_at"] = T0
        kcm.handle(T0, do.WrapperReported(TAG, report("running" if released else "at_barrier", **said_last)))
        kcm.handle(T0, do.WrapperDisconnected(TAG, True))
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        over = listed(ENDED)._replace(ending=KILLED)
        assert_gone_after(kcm, wait, over)

    def test_of_a_second_start_is_gone_only_when_the_first_surely_is(self) -> None:
        """The batch system started it again, perhaps for a node that was only cut off: the program may run there."""
        kcm = running_machine()
        restarted = report("ended", ending="restarted")
        assert said(kcm.handle(T0, do.WrapperReported(TAG, restarted)))[0].ending == "restarted"
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        over = listed(ENDED)._replace(restarts=1)
        for at in (0, 604):
            assert CleanedUp(TAG, T0 + at * SECOND) not in said(
                kcm.handle(T0 + at * SECOND, do.Looked(TAG, accounted=over))
            )
        assert CleanedUp(TAG, T0 + 605 * SECOND) in said(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG, accounted=over)))

    @pytest.mark.parametrize("ending", [EXITED, LOST], ids=["it said so", "cancelled before it could"])
    @pytest.mark.parametrize(
        ("nodes", "closed", "wait"),
        [(1, True, 0), (1, False, 605), (2, True, 67)],
        ids=["seen to leave", "not seen to leave", "seen to leave one of several nodes"],
    )
    def test_of_a_second_start_is_gone_as_the_first_was_seen_to_leave(
        self, nodes: int, closed: bool, wait: int, ending: str
    ) -> None:
        """Grid Engine writes of the first start only that it is rescheduled, before its node has answered."""
        kcm = running_machine()
        names = [[f"n{each}", "10.0.0.1", 2] for each in range(nodes)]
        kcm.handle(T0, do.WrapperReported(TAG, report("running", nodes=names, released_at=T0)))
        kcm.handle(T0, do.WrapperDisconnected(TAG, closed))
        if ending == EXITED:
            second_start(kcm)
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        over = listed(ENDED)._replace(ending=ending, restarts=1)
        assert_gone_after(kcm, wait, over)

    def test_of_a_second_start_waits_for_a_first_that_came_again(self) -> None:
        """It closed a connection on which it heard nothing, and is cut off before it says a word on the next."""
        kcm = running_machine()
        kcm.handle(T0, do.WrapperDisconnected(TAG, True))
        kcm.handle(T0, do.WrapperConnected(TAG, T0))
        kcm.handle(T0, do.WrapperDisconnected(TAG, False))
        second_start(kcm)
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        over = listed(ENDED)._replace(ending=EXITED, restarts=1)
        assert CleanedUp(TAG, T0) not in said(kcm.handle(T0, do.Looked(TAG, accounted=over)))

    def test_of_a_second_start_ends_with_the_first_ones_record(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, do.WrapperReported(TAG, report("ended", ending="restarted")))
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        sights = {TAG: do.DirectoryStatus("taken", report("ended", ending="killed"), 7)}
        assert said(kcm.handle(T0, do.Inspected([TAG], sights))) == []
        assert said(kcm.handle(T0, do.Looked(TAG))) == [CleanedUp(TAG, T0)]

    @pytest.mark.parametrize(
        "sign",
        [
            do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", None, 77)}),
            do.Inspected([TAG], {}, 0, LATER),
        ],
        ids=["a heartbeat", "a directory out of reach"],
    )
    def test_a_sign_starts_the_orphan_timeout_again(self, sign: do.Inspected) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        kcm.handle(T0 + 10 * SECOND, sign)
        assert CleanedUp(TAG, T0 + 605 * SECOND) not in said(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG)))
        assert CleanedUp(TAG, T0 + 615 * SECOND) in said(kcm.handle(T0 + 615 * SECOND, do.Looked(TAG)))

    def test_is_repeated_until_the_job_is_gone(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        kcm.handle(T0, do.JobCancelled(TAG, LATER))
        kcm.handle(T0, do.JobsChecked(["41"], {"41": listed(RUNNING)}))
        assert do.CancelJob in operations(kcm.tick(T0 + 2 * SECOND))

    def test_asked_again_after_the_end_says_it_again(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        assert said(kcm.handle(T0 + 1, Cancel(10, TAG))) == [Done(10), CleanedUp(TAG, T0 + 1)]

    def test_many_are_checked_in_one_call(self) -> None:
        tags = [f"kabcde00000000{number}" for number in range(5)]
        kcm = machine(*[[tag, str(40 + place)] for place, tag in enumerate(tags)])
        for tag in tags:
            kcm.handle(T0, Cancel(9, tag))
            kcm.handle(T0, do.StartLockTaken(tag, True))
        first = kcm.handle(T0, do.JobCancelled(tags[0]))
        assert operations(first) == [do.CheckJobs]
        for tag in tags[1:]:
            assert operations(kcm.handle(T0, do.JobCancelled(tag))) == []
        assert do.CheckJobs not in operations(kcm.handle(T0 + 9, do.JobsChecked(["40"], {})))
        after = kcm.tick(T0 + 9 + poll_schedule.FIRST)
        assert do.CheckJobs(["41", "42", "43", "44"]) in after

    def test_no_command_is_spent_on_what_the_claim_is_about_to_say(self) -> None:
        """With a thousand cancels their revocations take longer than one cancel command for all of them."""
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        assert do.Look not in operations(kcm.tick(T0 + 20 * SECOND))
        assert said(kcm.handle(T0 + 20 * SECOND, do.StartLockTaken(TAG, True))) == [CleanedUp(TAG, T0 + 20 * SECOND)]

    @pytest.mark.parametrize("outcome", [do.StartLockTaken(TAG, False), do.StartLockTaken(TAG, error=LATER)])
    def test_a_claim_that_is_not_won_is_followed_by_a_look(self, outcome: do.StartLockTaken) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        assert do.Look in operations(kcm.handle(T0 + SECOND, outcome))
