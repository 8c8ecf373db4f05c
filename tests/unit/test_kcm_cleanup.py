"""The KCM's decisions on tags that koalad does not know: told when asked, and ended only when asked."""

from typing import Any

import kcm_talk as talk
from koalapy_adapters.batch.protocol import ENDED, JobStatus
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import Cancel, Clean, CleanedUp, Done, Examine, Refused, Stop, Tags
from koalapy_adapters.wrapper.liveness import until_ended

operations, measured, said, told = talk.operations, talk.measured, talk.said, talk.told
T0, SECOND = talk.T0, talk.SECOND
OTHER = "kzzzzz000000001"  # of another store
NOT_LISTED = do.Looked(OTHER)


def machine() -> Any:
    kcm = talk.machine()
    kcm.handle(T0, measured(T0))
    return kcm


def listed(state: str = "running", batch_id: str = "41") -> do.Looked:
    return do.Looked(OTHER, listed=JobStatus(batch_id, OTHER, state))


def test_tags_are_listed_and_examined_by_the_hands() -> None:
    kcm = machine()
    assert kcm.handle(T0, Tags(5, OTHER)) == [do.ListTags(5, OTHER)]
    assert said(kcm.handle(T0, do.Listed(5, {"more": False}))) == [Done(5, False, {"more": False})]
    assert kcm.handle(T0, Examine(6, [OTHER])) == [do.ExamineTags(6, [OTHER])]
    gone = failure("shared_gone", "cluster", "Gone.")
    assert said(kcm.handle(T0, do.Listed(6, {}, gone))) == [Refused(6, gone)]


def test_a_directory_without_a_batch_job_is_revoked_looked_for_and_removed() -> None:
    kcm = machine()
    actions = kcm.handle(T0, Clean(1, OTHER))
    assert do.TakeStartLock in operations(actions)
    assert do.Remove not in operations(actions)
    later = kcm.handle(T0, do.StartLockTaken(OTHER, True)) + kcm.tick(T0 + SECOND)
    assert do.Look in operations(actions + later)
    actions = kcm.handle(T0 + SECOND, NOT_LISTED)
    assert operations(actions) == [do.Remove]
    assert said(actions) == []  # it is not over before the directory is gone
    assert said(kcm.handle(T0 + SECOND, do.Removed(OTHER))) == [Done(1)]
    assert not [message for message in said(kcm.tick(T0 + 60 * SECOND)) if isinstance(message, CleanedUp)]


def test_a_batch_job_is_cancelled_and_its_directory_stays_while_it_is_listed() -> None:
    kcm = machine()
    actions = kcm.handle(T0, Clean(1, OTHER, "41"))
    assert {do.TakeStartLock, do.CancelJob} <= set(operations(actions))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))  # its wrapper holds the claim
    kcm.handle(T0, do.JobCancelled(OTHER))
    for seconds in range(1, 30):
        assert do.Remove not in operations(kcm.handle(T0 + seconds * SECOND, listed()))
    record = do.Inspected(
        [OTHER], {OTHER: do.DirectoryStatus("taken", {"phase": "ended", "batch_id": "41", "nodes": []}, 1)}
    )
    kcm.handle(T0 + 31 * SECOND, record)
    actions = kcm.handle(T0 + 32 * SECOND, NOT_LISTED)
    assert operations(actions) == [do.Remove]
    assert said(kcm.handle(T0 + 32 * SECOND, do.Removed(OTHER))) == [Done(1)]


def test_a_wrapper_that_vanished_without_a_word_is_waited_for_as_long_as_an_orphan_lives() -> None:
    kcm = machine()
    kcm.handle(T0, Clean(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    assert do.Remove not in operations(kcm.handle(T0 + 300 * SECOND, NOT_LISTED))
    assert do.Remove in operations(kcm.handle(T0 + 700 * SECOND, NOT_LISTED))


def test_what_its_own_store_has_removed_meanwhile_is_revoked_anew() -> None:
    kcm = machine()
    kcm.handle(T0, Clean(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    assert do.Remove not in operations(kcm.handle(T0 + SECOND, NOT_LISTED))
    kcm.handle(T0 + SECOND, do.Inspected([OTHER], {OTHER: do.DirectoryStatus("taken", directory="/there")}))
    assert do.TakeStartLock not in operations(kcm.tick(T0 + 2 * SECOND))
    actions = kcm.handle(T0 + 2 * SECOND, do.Inspected([OTHER], {})) + kcm.tick(T0 + 3 * SECOND)
    assert operations(actions).count(do.TakeStartLock) == 1
    assert operations(kcm.handle(T0 + 3 * SECOND, do.StartLockTaken(OTHER, True))) == [do.Remove]
    assert said(kcm.handle(T0 + 3 * SECOND, do.Removed(OTHER))) == [Done(1)]


def test_what_is_cancelled_and_not_cleaned_up_is_not_revoked_anew_where_its_directory_is_gone() -> None:
    """Somebody may have removed it under a program that runs."""
    kcm = machine()
    kcm.handle(T0, Cancel(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    kcm.handle(T0 + SECOND, NOT_LISTED)
    actions = kcm.handle(T0 + 2 * SECOND, do.Inspected([OTHER], {})) + kcm.tick(T0 + 3 * SECOND)
    assert do.TakeStartLock not in operations(actions)


def test_the_accounting_says_that_it_is_over_and_agents_on_other_nodes_have_had_their_time() -> None:
    kcm = machine()
    kcm.handle(T0, Clean(1, OTHER, "41"))
    kcm.handle(T0, do.StartLockTaken(OTHER, False))
    over = do.Looked(OTHER, accounted=JobStatus("41", OTHER, ENDED))
    assert do.Remove not in operations(kcm.handle(T0 + SECOND, over))
    assert do.Remove in operations(kcm.handle(T0 + until_ended(600 * SECOND, 5 * SECOND), over))


def test_asked_twice_is_done_once_and_answered_twice() -> None:
    kcm = machine()
    kcm.handle(T0, Clean(1, OTHER))
    assert operations(kcm.handle(T0, Clean(2, OTHER))) == []
    kcm.handle(T0, do.StartLockTaken(OTHER, True))
    assert operations(kcm.handle(T0 + SECOND, NOT_LISTED)) == [do.Remove]
    assert operations(kcm.handle(T0 + SECOND, Clean(3, OTHER))) == []
    assert said(kcm.handle(T0 + SECOND, do.Removed(OTHER))) == [Done(1), Done(2), Done(3)]


def test_a_directory_that_cannot_be_removed_is_tried_again() -> None:
    kcm = machine()
    kcm.handle(T0, Clean(1, OTHER))
    kcm.handle(T0, do.StartLockTaken(OTHER, True))
    kcm.handle(T0 + SECOND, NOT_LISTED)
    busy = do.Removed(OTHER, failure("shared_gone", "cluster", "Busy."))
    assert said(kcm.handle(T0 + SECOND, busy)) == []
    again = [action for seconds in range(2, 120) for action in kcm.tick(T0 + seconds * SECOND)]
    assert do.Remove in operations(again)
    assert Done(1) in said(kcm.handle(T0 + 200 * SECOND, do.Removed(OTHER)))


def test_a_wrapper_past_a_restored_backup_is_stopped_in_band() -> None:
    kcm = machine()
    kcm.handle(T0, do.WrapperConnected(talk.TAG, T0))
    assert told(kcm.handle(T0, Clean(1, talk.TAG, "41"))) == [Stop()]


def test_what_koalad_has_submitted_is_not_cleaned() -> None:
    kcm = talk.queued_machine()
    (refused,) = said(kcm.handle(T0, Clean(9, talk.TAG, "41")))
    assert (refused.id, refused.error["code"]) == (9, "known_tag")


def test_a_cancel_meanwhile_is_answered_too() -> None:
    kcm = machine()
    kcm.handle(T0, Clean(1, OTHER))
    assert said(kcm.handle(T0, Cancel(2, OTHER))) == [Done(2)]
    kcm.handle(T0, do.StartLockTaken(OTHER, True))
    actions = kcm.handle(T0 + SECOND, NOT_LISTED)
    assert [type(message) for message in said(actions)] == [CleanedUp]
    assert operations(actions) == [do.Remove]
