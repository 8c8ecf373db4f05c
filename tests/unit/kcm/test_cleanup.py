"""The KCM's decisions on tags that koalad does not know: it lists and cleans them up only on demand."""

from typing import Any

from kcm_machine import (
    SECOND,
    T0,
    TAG,
    machine,
    measured,
    operations,
    queued_machine,
    to_koalad,
    to_wrapper,
)
from koalapy_adapters.batch.protocol import ENDED, RUNNING, JobStatus
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages.kcm import CleanedUp, Done, Refused
from koalapy_adapters.messages.koalad import Cancel, Clean, Examine, Tags
from koalapy_adapters.messages.relay import Stop
from koalapy_adapters.wrapper.liveness import until_ended

OTHER = "kzzzzz000000001"  # of another store
NOT_LISTED = do.Looked(OTHER)


def measured_machine() -> Any:
    kcm = machine()
    kcm.handle(T0, measured(T0))
    return kcm


def listed(state: str = "running", batch_id: str = "41") -> do.Looked:
    return do.Looked(OTHER, listed=JobStatus(batch_id, OTHER, state))


def test_tags_are_listed_and_examined_by_actions() -> None:
    kcm = measured_machine()
    assert kcm.handle(T0, Tags(5, OTHER)) == [do.ListTags(5, OTHER)]
    assert to_koalad(kcm.handle(T0, do.Listed(5, {"more": False}))) == [Done(5, False, {"more": False})]
    assert kcm.handle(T0, Examine(6, [OTHER])) == [do.ExamineTags(6, [OTHER])]
    failed = failure("shared_gone", "cluster", "Gone.")
    assert to_koalad(kcm.handle(T0, do.Listed(6, {}, failed))) == [Refused(6, failed)]


def test_a_directory_without_a_batch_job_is_removed_after_its_start_lock_and_a_look() -> None:
    kcm = measured_machine()
    actions = kcm.handle(T0, Clean(1, OTHER))
    assert do.TakeStartLock in operations(actions)
    assert do.Remove not in operations(actions)
    later = kcm.handle(T0, do.StartLockTaken(OTHER, True)) + kcm.tick(T0 + SECOND)
    assert do.Look in operations(actions + later)
    actions = kcm.handle(T0 + SECOND, NOT_LISTED)
    assert operations(actions) == [do.Remove]
    assert to_koalad(actions) == []  # the answer waits for the removal of the directory
    assert to_koalad(kcm.handle(T0 + SECOND, do.Removed(OTHER))) == [Done(1)]
    assert not [message for message in to_koalad(kcm.tick(T0 + 60 * SECOND)) if isinstance(message, CleanedUp)]


def test_a_batch_job_is_cancelled_and_its_directory_stays_while_it_is_listed() -> None:
    kcm = measured_machine()
    actions = kcm.handle(T0, Clean(1, OTHER, "41"))
    assert {do.TakeStartLock, do.CancelJob} <= set(operations(actions))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))  # its wrapper holds the start lock
    kcm.handle(T0, do.JobCancelled(OTHER))
    for seconds in range(1, 30):
        assert do.Remove not in operations(kcm.handle(T0 + seconds * SECOND, listed()))
    record = do.Inspected(
        [OTHER], {OTHER: do.DirectoryStatus("taken", {"phase": "ended", "batch_id": "41", "nodes": []}, 1)}
    )
    kcm.handle(T0 + 31 * SECOND, record)
    actions = kcm.handle(T0 + 32 * SECOND, NOT_LISTED)
    assert operations(actions) == [do.Remove]
    assert to_koalad(kcm.handle(T0 + 32 * SECOND, do.Removed(OTHER))) == [Done(1)]


def test_a_wrapper_that_left_without_a_report_is_waited_for_until_the_orphan_timeout() -> None:
    kcm = measured_machine()
    kcm.handle(T0, Clean(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    assert do.Remove not in operations(kcm.handle(T0 + 300 * SECOND, NOT_LISTED))
    assert do.Remove in operations(kcm.handle(T0 + 700 * SECOND, NOT_LISTED))


def test_the_start_lock_of_a_directory_that_its_own_store_removed_is_taken_anew() -> None:
    kcm = measured_machine()
    kcm.handle(T0, Clean(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    assert do.Remove not in operations(kcm.handle(T0 + SECOND, NOT_LISTED))
    kcm.handle(T0 + SECOND, do.Inspected([OTHER], {OTHER: do.DirectoryStatus("taken", directory="/there")}))
    assert do.TakeStartLock not in operations(kcm.tick(T0 + 2 * SECOND))
    actions = kcm.handle(T0 + 2 * SECOND, do.Inspected([OTHER], {})) + kcm.tick(T0 + 3 * SECOND)
    assert operations(actions).count(do.TakeStartLock) == 1
    assert operations(kcm.handle(T0 + 3 * SECOND, do.StartLockTaken(OTHER, True))) == [do.Remove]
    assert to_koalad(kcm.handle(T0 + 3 * SECOND, do.Removed(OTHER))) == [Done(1)]


def test_the_start_lock_of_a_cancelled_attempt_is_not_taken_anew_if_its_directory_was_removed() -> None:
    """A user may have removed the directory of a running program."""
    kcm = measured_machine()
    kcm.handle(T0, Cancel(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    kcm.handle(T0 + SECOND, NOT_LISTED)
    actions = kcm.handle(T0 + 2 * SECOND, do.Inspected([OTHER], {})) + kcm.tick(T0 + 3 * SECOND)
    assert do.TakeStartLock not in operations(actions)


def test_an_accounted_end_counts_once_agents_on_other_nodes_had_time_to_end() -> None:
    kcm = measured_machine()
    kcm.handle(T0, Clean(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    ended = do.Looked(OTHER, accounted=JobStatus("41", OTHER, ENDED))
    assert do.Remove not in operations(kcm.handle(T0 + SECOND, ended))
    assert do.Remove in operations(kcm.handle(T0 + until_ended(600 * SECOND, 5 * SECOND), ended))


def test_an_end_counts_although_the_batch_system_has_forgotten_it_meanwhile() -> None:
    """Slurm without accounting knows an ended job for MinJobAge, which may be shorter than the agents' silence."""
    kcm = measured_machine()
    kcm.handle(T0, Clean(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    ended = do.Looked(OTHER, accounted=JobStatus("41", OTHER, ENDED))
    assert do.Remove not in operations(kcm.handle(T0 + SECOND, ended))
    late = T0 + until_ended(600 * SECOND, 5 * SECOND)
    assert do.Remove not in operations(kcm.handle(late - 5 * SECOND, NOT_LISTED))
    assert do.Remove in operations(kcm.handle(late, NOT_LISTED))


def test_a_job_that_is_listed_again_after_its_end_has_not_ended() -> None:
    kcm = measured_machine()
    kcm.handle(T0, Clean(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    kcm.handle(T0 + SECOND, do.Looked(OTHER, accounted=JobStatus("41", OTHER, ENDED)))
    kcm.handle(T0 + 2 * SECOND, do.Looked(OTHER, listed=JobStatus("41", OTHER, RUNNING)))
    late = T0 + 2 * SECOND + until_ended(600 * SECOND, 5 * SECOND)
    assert do.Remove not in operations(kcm.handle(late, NOT_LISTED))


def test_a_repeated_clean_is_done_once_and_answered_twice() -> None:
    kcm = measured_machine()
    kcm.handle(T0, Clean(1, OTHER))
    assert operations(kcm.handle(T0, Clean(2, OTHER))) == []
    kcm.handle(T0, do.StartLockTaken(OTHER, True))
    assert operations(kcm.handle(T0 + SECOND, NOT_LISTED)) == [do.Remove]
    assert operations(kcm.handle(T0 + SECOND, Clean(3, OTHER))) == []
    assert to_koalad(kcm.handle(T0 + SECOND, do.Removed(OTHER))) == [Done(1), Done(2), Done(3)]


def test_a_directory_that_cannot_be_removed_is_tried_again() -> None:
    kcm = measured_machine()
    kcm.handle(T0, Clean(1, OTHER))
    kcm.handle(T0, do.StartLockTaken(OTHER, True))
    kcm.handle(T0 + SECOND, NOT_LISTED)
    busy = do.Removed(OTHER, failure("shared_gone", "cluster", "Busy."))
    assert to_koalad(kcm.handle(T0 + SECOND, busy)) == []
    again = [action for seconds in range(2, 120) for action in kcm.tick(T0 + seconds * SECOND)]
    assert do.Remove in operations(again)
    assert Done(1) in to_koalad(kcm.handle(T0 + 200 * SECOND, do.Removed(OTHER)))


def test_a_connected_wrapper_that_koalad_does_not_know_is_stopped_in_band() -> None:
    kcm = measured_machine()
    kcm.handle(T0, do.WrapperConnected(TAG, T0))
    assert to_wrapper(kcm.handle(T0, Clean(1, TAG, "41"))) == [Stop()]


def test_an_attempt_that_koalad_knows_is_not_cleaned() -> None:
    kcm = queued_machine()
    (refused,) = to_koalad(kcm.handle(T0, Clean(9, TAG, "41")))
    assert (refused.id, refused.error["code"]) == (9, "known_tag")


def test_a_cancel_during_a_clean_is_answered_too() -> None:
    kcm = measured_machine()
    kcm.handle(T0, Clean(1, OTHER))
    assert to_koalad(kcm.handle(T0, Cancel(2, OTHER))) == [Done(2)]
    kcm.handle(T0, do.StartLockTaken(OTHER, True))
    actions = kcm.handle(T0 + SECOND, NOT_LISTED)
    assert [type(message) for message in to_koalad(actions)] == [CleanedUp]
    assert operations(actions) == [do.Remove]


def test_a_kcm_that_was_replaced_ends_without_numbers() -> None:
    actions = measured_machine().handle(T0, do.Inspected([OTHER], {}, 34359738369))
    assert actions == [do.Quit("a newer KCM is at work on this cluster")]
