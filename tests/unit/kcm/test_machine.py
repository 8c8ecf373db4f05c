"""The KCM's decisions on Submit and Cancel: an event in, actions out, and time as an argument."""

from typing import Any

import pytest
from kcm_machine import (
    NO_SUCH_QUEUE,
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
    second_start,
    submit,
    to_koalad,
    to_wrapper,
)
from koalapy_adapters.batch.protocol import CANCELLED, ENDED, EXITED, KILLED, LOST, QUEUED, RUNNING, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state import poll_schedule
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages.kcm import CleanedUp, Done, Refused, Submitted
from koalapy_adapters.messages.koalad import Acknowledge, Cancel
from koalapy_adapters.messages.relay import Stop


class TestSubmit:
    def test_a_submit_prepares_then_submits_then_answers(self) -> None:
        kcm = machine()
        assert operations(kcm.handle(T0, submit())) == [do.Prepare, do.Measure]
        assert operations(kcm.handle(T0, do.Prepared(TAG))) == [do.SubmitJob]
        assert to_koalad(kcm.handle(T0, do.JobSubmitted(TAG, "41"))) == [Submitted(1, TAG, "41")]

    def test_a_repeated_submit_is_done_once_and_answered_twice(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit(1))
        assert operations(kcm.handle(T0, submit(2))) == []
        kcm.handle(T0, do.Prepared(TAG))
        answers = to_koalad(kcm.handle(T0, do.JobSubmitted(TAG, "41")))
        assert answers == [Submitted(1, TAG, "41"), Submitted(2, TAG, "41")]
        assert to_koalad(kcm.handle(T0, submit(3))) == [Submitted(3, TAG, "41")]

    def test_a_submit_in_doubt_repeats_the_last_report_of_the_wrapper(self) -> None:
        """koalad may not know the report: its store may have been restored from a backup."""
        kcm = machine()
        (first,) = to_koalad(kcm.handle(T0, do.WrapperReported(TAG, report("ended", ended_at=T0))))
        answers = to_koalad(kcm.handle(T0, submit(1, doubt=True)))
        assert answers == [Submitted(1, TAG, "41"), first]

    def test_an_attempt_is_void_before_its_submit_is_refused(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert kcm.handle(T0, do.JobSubmitted(TAG, error=NO_SUCH_QUEUE)) == [do.TakeStartLock(TAG)]
        assert to_koalad(kcm.handle(T0, do.StartLockTaken(TAG, True))) == [Refused(1, NO_SUCH_QUEUE)]
        assert to_koalad(kcm.handle(T0, submit(2))) == [Refused(2, NO_SUCH_QUEUE)]

    def test_a_submit_without_a_directory_is_refused_at_once(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        full = failure("shared_full", "cluster", "Full.")
        assert to_koalad(kcm.handle(T0, do.Prepared(TAG, full))) == [Refused(1, full)]

    def test_a_doubtful_submit_is_answered_only_after_a_look(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert kcm.handle(T0, do.JobSubmitted(TAG, error=UNREACHABLE, doubt=True)) == [
            do.Look(TAG, "", submitting=True)
        ]
        assert to_koalad(kcm.handle(T0, do.Looked(TAG, listed(QUEUED), submitting=True))) == [Submitted(1, TAG, "41")]

    def test_a_submit_in_doubt_without_a_directory_is_void_before_it_is_refused(self) -> None:
        """An earlier submit, whose directory existed, may still reach the batch system."""
        kcm = machine()
        kcm.handle(T0, submit(doubt=True))
        kcm.handle(T0, do.Looked(TAG, submitting=True))
        kcm.handle(T0, do.Inspected([TAG], {}, submitting=True))
        full = failure("shared_full", "cluster", "Full.")
        assert kcm.handle(T0, do.Prepared(TAG, full)) == [do.TakeStartLock(TAG)]
        for tries in range(1, 6):
            assert to_koalad(kcm.handle(T0, do.StartLockTaken(TAG, error=full))) == []
            assert do.TakeStartLock in operations(kcm.tick(T0 + 60 * tries * SECOND))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        assert to_koalad(kcm.handle(T0, do.Looked(TAG))) == [Refused(1, full)]

    def test_a_doubtful_submit_is_void_and_searched_again_before_it_is_refused(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        kcm.handle(T0, do.JobSubmitted(TAG, error=UNREACHABLE, doubt=True))
        assert kcm.handle(T0, do.Looked(TAG, submitting=True)) == [do.TakeStartLock(TAG)]
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        late = kcm.handle(T0, do.Looked(TAG, listed(QUEUED)))
        assert late == [do.CancelJob(TAG, "41")]
        assert to_koalad(late) == []
        assert do.Look in operations(kcm.handle(T0, do.JobCancelled(TAG)))
        assert to_koalad(kcm.handle(T0, do.Looked(TAG))) == [Refused(1, UNREACHABLE)]

    @pytest.mark.parametrize(
        ("outcome", "answer"),
        [
            (do.Looked(TAG, listed=listed(QUEUED), submitting=True), [Submitted(1, TAG, "41")]),
            (do.Looked(TAG, accounted=listed(ENDED), submitting=True), [Submitted(1, TAG, "41")]),
            (do.Looked(TAG, error=UNREACHABLE, submitting=True), []),
            (do.Looked(TAG, submitting=True), []),
        ],
        ids=["queued", "ended", "no answer", "not there"],
    )
    def test_a_submit_in_doubt_is_searched_first(self, outcome: do.Looked, answer: list[Any]) -> None:
        kcm = machine()
        assert do.Look in operations(kcm.handle(T0, submit(doubt=True)))
        assert to_koalad(kcm.handle(T0, outcome)) == answer

    def test_a_submit_in_doubt_without_an_answer_is_searched_again_and_never_made(self) -> None:
        kcm = machine()
        kcm.handle(T0, measured(T0))
        kcm.handle(T0, submit(doubt=True))
        kcm.handle(T0, do.Looked(TAG, error=UNREACHABLE, submitting=True))
        assert kcm.tick(T0 + SECOND) == [do.Look(TAG, "", submitting=True)]

    @pytest.mark.parametrize(
        ("status", "next_action"),
        [
            (None, do.Prepare),
            (do.DirectoryStatus(), do.Prepare),
            (do.DirectoryStatus(start_lock="void"), do.TakeStartLock),
        ],
        ids=["no directory", "no start lock", "void"],
    )
    def test_the_directory_decides_on_a_submit_in_doubt_that_is_not_listed(
        self, status: do.DirectoryStatus | None, next_action: type
    ) -> None:
        kcm = machine()
        kcm.handle(T0, submit(doubt=True))
        assert kcm.handle(T0, do.Looked(TAG, submitting=True)) == [do.Inspect([TAG], submitting=True)]
        found = {} if status is None else {TAG: status}
        assert next_action in operations(kcm.handle(T0, do.Inspected([TAG], found, submitting=True)))

    def test_a_taken_start_lock_shows_that_a_submit_in_doubt_was_made(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit(doubt=True))
        kcm.handle(T0, do.Looked(TAG, submitting=True))
        statuses = {TAG: do.DirectoryStatus("taken", report("ended"))}
        assert to_koalad(kcm.handle(T0, do.Inspected([TAG], statuses, submitting=True))) == [Submitted(1, TAG, "41")]

    def test_an_attempt_that_hello_names_is_never_submitted_without_a_look(self) -> None:
        kcm = machine([TAG, ""])
        assert do.Look in operations(kcm.handle(T0, submit()))
        named = machine([TAG, "41"])
        assert to_koalad(named.handle(T0, submit())) == [Submitted(1, TAG, "41")]


def cancels(kcm: Machine, actions: list[Any], count: int) -> list[bool]:
    """Return for each of the next cancels whether it is forced, while the job stays listed as running."""
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


def assert_cleaned_up_after(kcm: Machine, wait: int, ended: JobStatus) -> None:
    """Assert that the attempt is cleaned up after `wait` seconds, not one earlier, if the accounting shows `ended`."""
    first = to_koalad(kcm.handle(T0, do.Looked(TAG, accounted=ended)))
    assert (CleanedUp(TAG, T0) in first) == (wait == 0)
    before, after = T0 + (wait - 1) * SECOND, T0 + wait * SECOND
    if wait:
        assert CleanedUp(TAG, before) not in to_koalad(kcm.handle(before, do.Looked(TAG, accounted=ended)))
        assert CleanedUp(TAG, after) in to_koalad(kcm.handle(after, do.Looked(TAG, accounted=ended)))


class TestCancel:
    def test_a_cancelled_queued_job_is_cleaned_up_with_the_first_check(self) -> None:
        kcm = queued_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        assert to_koalad(actions) == [Done(9)]
        assert operations(actions) == [do.TakeStartLock, do.CancelJob]
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        assert kcm.handle(T0 + 5, do.JobCancelled(TAG)) == [do.CheckJobs(["41"])]
        assert to_koalad(kcm.handle(T0 + 9, do.JobsChecked(["41"], {"41": listed(ENDED)}))) == [CleanedUp(TAG, T0 + 9)]

    def test_a_cancel_ends_a_submit_in_flight_first(self) -> None:
        kcm = machine()
        kcm.handle(T0, submit())
        kcm.handle(T0, do.Prepared(TAG))
        assert operations(kcm.handle(T0, Cancel(9, TAG))) == [do.EndSubmit]
        assert do.TakeStartLock in operations(kcm.handle(T0, do.JobSubmitted(TAG, error=UNREACHABLE, doubt=True)))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        messages = to_koalad(kcm.handle(T0, do.Looked(TAG)))
        assert [
            (type(message), message.tag if isinstance(message, CleanedUp) else message.id) for message in messages
        ] == [
            (Refused, 1),
            (CleanedUp, TAG),
        ]

    def test_a_cancel_makes_an_unknown_attempt_void(self) -> None:
        kcm = machine()
        kcm.handle(T0, measured(T0))
        assert operations(kcm.handle(T0, Cancel(9, TAG))) == [do.TakeStartLock, do.Look, do.Inspect]
        assert to_koalad(kcm.handle(T0, do.Looked(TAG))) == []  # the outcome of the start lock is not known yet
        assert to_koalad(kcm.handle(T0, do.StartLockTaken(TAG, True))) == [CleanedUp(TAG, T0)]
        assert to_koalad(kcm.handle(T0, submit(2)))[0].id == 2

    def test_an_attempt_of_another_kcm_is_cleaned_up_only_once_it_is_void(self) -> None:
        """It may have been submitted in doubt: it may have more than the batch job that ended."""
        kcm = machine([TAG, "41"])
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, error=UNREACHABLE))
        kcm.handle(T0, do.JobCancelled(TAG))
        assert to_koalad(kcm.handle(T0, do.JobsChecked(["41"], {"41": listed(ENDED)}))) == []
        assert do.TakeStartLock in operations(kcm.tick(T0 + SECOND))
        assert to_koalad(kcm.handle(T0 + SECOND, do.StartLockTaken(TAG, True))) == [CleanedUp(TAG, T0 + SECOND)]

    def test_a_connected_wrapper_is_stopped_in_band_before_its_batch_job_is_cancelled(self) -> None:
        kcm = running_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        assert to_wrapper(actions) == [Stop(False)]
        assert operations(actions) == [do.TakeStartLock]
        assert operations(kcm.tick(T0 + 4 * SECOND)) == []
        assert do.CancelJob in operations(kcm.tick(T0 + 5 * SECOND))  # the program's grace of 2 s, and 3 s

    def test_cancels_of_an_ended_job_that_stays_listed_are_forced_in_the_end(self) -> None:
        """Grid Engine keeps a job listed if its execd does not know the restarted qmaster."""
        kcm = running_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        actions += kcm.handle(T0, do.StartLockTaken(TAG, False))
        actions += kcm.handle(T0 + 50, do.WrapperReported(TAG, report("ended", ended_at=T0)))
        assert cancels(kcm, actions, 8) == [False, False, False, True, False, True, False, True]

    def test_cancels_of_a_job_that_may_run_are_not_forced_unless_its_user_asks_for_it(self) -> None:
        kcm = running_machine()
        actions = kcm.handle(T0, Cancel(9, TAG))
        actions += kcm.handle(T0, do.StartLockTaken(TAG, False))
        assert cancels(kcm, actions, 8) == [False] * 8

    def test_a_forced_cancel_does_not_wait_for_the_grace(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Cancel(9, TAG))
        actions = kcm.handle(T0, Cancel(10, TAG, force=True))
        assert to_wrapper(actions) == [Stop(True)]
        assert operations(actions) == [do.CancelJob]

    def test_a_stopped_attempt_is_cleaned_up_once_its_job_is_no_longer_listed(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        actions = kcm.handle(T0 + 50, do.WrapperReported(TAG, report("ended", ended_at=T0)))
        assert do.CheckJobs in operations(actions)
        again = kcm.handle(T0 + 60, do.JobsChecked(["41"], {"41": listed(RUNNING)}))
        assert to_koalad(again) == []
        assert do.CheckJobs in operations(kcm.tick(T0 + 60 + SECOND // 20))
        assert to_koalad(kcm.handle(T0 + SECOND, do.JobsChecked(["41"], {}))) == [CleanedUp(TAG, T0 + SECOND)]

    def test_a_started_attempt_that_is_missing_is_cleaned_up_only_after_the_orphan_timeout(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        kcm.handle(T0, Acknowledge(1))
        assert to_koalad(kcm.handle(T0 + 604 * SECOND, do.Looked(TAG))) == []
        assert to_koalad(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG))) == [CleanedUp(TAG, T0 + 605 * SECOND)]

    def test_a_started_attempt_that_the_batch_system_lost_is_cleaned_up_only_after_the_orphan_timeout(self) -> None:
        kcm = queued_machine()
        lost = listed(ENDED)._replace(ending=LOST)
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {"41": lost}))
        kcm.handle(T0, Acknowledge(1))
        assert to_koalad(kcm.handle(T0 + 604 * SECOND, do.Looked(TAG, accounted=lost))) == []
        messages = to_koalad(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG, accounted=lost)))
        assert messages == [CleanedUp(TAG, T0 + 605 * SECOND)]

    @pytest.mark.parametrize(("closed", "at_once"), [(True, True), (False, False)])
    def test_a_batch_cancel_counts_at_once_only_if_the_wrapper_closed_its_connection(
        self, closed: bool, at_once: bool
    ) -> None:
        """The server reports the job of an unreachable node as cancelled while its program runs on."""
        kcm = running_machine()
        kcm.handle(T0, Cancel(9, TAG, force=True))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        kcm.handle(T0, do.WrapperDisconnected(TAG, closed))
        kcm.handle(T0, do.JobCancelled(TAG))
        cancelled = listed(ENDED)._replace(ending=CANCELLED)
        assert (CleanedUp(TAG, T0) in to_koalad(kcm.handle(T0, do.JobsChecked(["41"], {"41": cancelled})))) == at_once
        later = to_koalad(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG, accounted=cancelled)))
        assert (CleanedUp(TAG, T0 + 605 * SECOND) in later) == (not at_once)

    @pytest.mark.parametrize(
        ("nodes", "released", "wait"),
        [(1, True, 0), (2, False, 0), (2, True, 67)],
        ids=["one node", "several, not released", "several"],
    )
    def test_after_the_end_of_a_batch_job_its_other_nodes_have_time_to_end_a_released_program(
        self, nodes: int, released: bool, wait: int
    ) -> None:
        """Its wrapper was killed: on an unreachable node only the agent can end the program, after a time-out."""
        kcm = running_machine()
        last_report: dict[str, Any] = {"nodes": [[f"n{each}", "10.0.0.1", 2] for each in range(nodes)]}
        if released:
            last_report["released_at"] = T0
        kcm.handle(T0, do.WrapperReported(TAG, report("running" if released else "at_barrier", **last_report)))
        kcm.handle(T0, do.WrapperDisconnected(TAG, True))
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        ended = listed(ENDED)._replace(ending=KILLED)
        assert_cleaned_up_after(kcm, wait, ended)

    def test_a_restarted_attempt_is_cleaned_up_only_once_its_first_start_surely_ended(self) -> None:
        """The batch system may have restarted it because of an unreachable node, on which its program still runs."""
        kcm = running_machine()
        restarted = report("ended", ending="restarted")
        assert to_koalad(kcm.handle(T0, do.WrapperReported(TAG, restarted)))[0].ending == "restarted"
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        ended = listed(ENDED)._replace(restarts=1)
        for at in (0, 604):
            assert CleanedUp(TAG, T0 + at * SECOND) not in to_koalad(
                kcm.handle(T0 + at * SECOND, do.Looked(TAG, accounted=ended))
            )
        assert CleanedUp(TAG, T0 + 605 * SECOND) in to_koalad(
            kcm.handle(T0 + 605 * SECOND, do.Looked(TAG, accounted=ended))
        )

    @pytest.mark.parametrize("ending", [EXITED, LOST], ids=["restart reported", "cancelled before its report"])
    @pytest.mark.parametrize(
        ("nodes", "closed", "wait"),
        [(1, True, 0), (1, False, 605), (2, True, 67)],
        ids=["closed", "not closed", "closed on one of several nodes"],
    )
    def test_a_restarted_attempt_is_cleaned_up_soon_if_its_first_wrapper_closed_its_connection(
        self, nodes: int, closed: bool, wait: int, ending: str
    ) -> None:
        """Grid Engine records only that the first start is rescheduled, before its node has answered."""
        kcm = running_machine()
        names = [[f"n{each}", "10.0.0.1", 2] for each in range(nodes)]
        kcm.handle(T0, do.WrapperReported(TAG, report("running", nodes=names, released_at=T0)))
        kcm.handle(T0, do.WrapperDisconnected(TAG, closed))
        if ending == EXITED:
            second_start(kcm)
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        ended = listed(ENDED)._replace(ending=ending, restarts=1)
        assert_cleaned_up_after(kcm, wait, ended)

    def test_a_restarted_attempt_waits_for_a_first_wrapper_that_connected_again(self) -> None:
        """The first wrapper closed a silent connection, and became unreachable before it reported over the next."""
        kcm = running_machine()
        kcm.handle(T0, do.WrapperDisconnected(TAG, True))
        kcm.handle(T0, do.WrapperConnected(TAG, T0))
        kcm.handle(T0, do.WrapperDisconnected(TAG, False))
        second_start(kcm)
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        ended = listed(ENDED)._replace(ending=EXITED, restarts=1)
        assert CleanedUp(TAG, T0) not in to_koalad(kcm.handle(T0, do.Looked(TAG, accounted=ended)))

    def test_a_restarted_attempt_is_cleaned_up_with_the_exit_record_of_its_first_start(self) -> None:
        kcm = running_machine()
        kcm.handle(T0, do.WrapperReported(TAG, report("ended", ending="restarted")))
        kcm.handle(T0, do.WrapperDisconnected(TAG))
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        statuses = {TAG: do.DirectoryStatus("taken", report("ended", ending="killed"), 7)}
        assert to_koalad(kcm.handle(T0, do.Inspected([TAG], statuses))) == []
        assert to_koalad(kcm.handle(T0, do.Looked(TAG))) == [CleanedUp(TAG, T0)]

    @pytest.mark.parametrize(
        "sign",
        [
            do.Inspected([TAG], {TAG: do.DirectoryStatus("taken", None, 77)}),
            do.Inspected([TAG], {}, 0, UNREACHABLE),
        ],
        ids=["a heartbeat", "an unreachable directory"],
    )
    def test_a_heartbeat_or_an_unreachable_directory_restarts_the_orphan_timeout(self, sign: do.Inspected) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, False))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        kcm.handle(T0 + 10 * SECOND, sign)
        assert CleanedUp(TAG, T0 + 605 * SECOND) not in to_koalad(kcm.handle(T0 + 605 * SECOND, do.Looked(TAG)))
        assert CleanedUp(TAG, T0 + 615 * SECOND) in to_koalad(kcm.handle(T0 + 615 * SECOND, do.Looked(TAG)))

    def test_a_cancel_is_repeated_while_the_job_is_listed(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        kcm.handle(T0, do.JobCancelled(TAG, UNREACHABLE))
        kcm.handle(T0, do.JobsChecked(["41"], {"41": listed(RUNNING)}))
        assert do.CancelJob in operations(kcm.tick(T0 + 2 * SECOND))

    def test_a_cancel_after_the_clean_up_is_answered_again(self) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.StartLockTaken(TAG, True))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        assert to_koalad(kcm.handle(T0 + 1, Cancel(10, TAG))) == [Done(10), CleanedUp(TAG, T0 + 1)]

    def test_many_cancelled_jobs_are_checked_in_one_call(self) -> None:
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

    def test_no_look_is_made_before_the_outcome_of_the_start_lock_is_known(self) -> None:
        """The start locks of a thousand attempts take longer than one cancel command for all of them."""
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        assert do.Look not in operations(kcm.tick(T0 + 20 * SECOND))
        assert to_koalad(kcm.handle(T0 + 20 * SECOND, do.StartLockTaken(TAG, True))) == [
            CleanedUp(TAG, T0 + 20 * SECOND)
        ]

    @pytest.mark.parametrize("outcome", [do.StartLockTaken(TAG, False), do.StartLockTaken(TAG, error=UNREACHABLE)])
    def test_a_start_lock_that_is_not_won_is_followed_by_a_look(self, outcome: do.StartLockTaken) -> None:
        kcm = queued_machine()
        kcm.handle(T0, Cancel(9, TAG))
        kcm.handle(T0, do.JobCancelled(TAG))
        kcm.handle(T0, do.JobsChecked(["41"], {}))
        assert do.Look in operations(kcm.handle(T0 + SECOND, outcome))
