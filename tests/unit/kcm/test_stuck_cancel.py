"""Stuck batch jobs, which no cancel ends: koalad gets one event on each, with the batch system's own words."""

from typing import Any

import pytest
from kcm_machine import (
    SECOND,
    T0,
    TAG,
    listed,
    measured,
    operations,
    queued_machine,
    report,
    running_machine,
    to_koalad,
)
from koalapy_adapters.batch.protocol import RUNNING
from koalapy_adapters.kcm.attempts.cancel import FORCED_AFTER, STUCK_AFTER
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.attempts.monitor import SILENT
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages.kcm import CleanedUp, Event, Stuck
from koalapy_adapters.messages.koalad import Acknowledge, Cancel

REFUSED = dict(failure("refused", "cluster", "No."), command="qdel -f 41", words="koala has not the privileges")


def events_of_vain_cancels(
    kcm: Machine, until: int, error: dict[str, Any] | None = None, force: bool = False, forced: list[bool] | None = None
) -> list[Any]:
    """Cancel a job that stays listed, with this answer to each cancel, until an instant. Returns Stuck and CleanedUp.

    `forced`: gets for each cancel whether it was forced.
    """
    waiting = [*kcm.handle(T0, Cancel(9, TAG, force=force)), *kcm.handle(T0, do.StartLockTaken(TAG, False))]
    messages, now = [], T0
    while now < until:
        waiting += kcm.tick(now)
        while waiting:
            action = waiting.pop(0)
            messages += to_koalad([action])
            if isinstance(action, do.Send) and isinstance(action.message, Event):
                waiting += kcm.handle(now, Acknowledge(action.message.number))
            if isinstance(action, do.CancelJob):
                if forced is not None:
                    forced.append(action.forced)
                waiting += kcm.handle(now, do.JobCancelled(TAG, error))
            elif isinstance(action, do.CheckJobs):
                status = listed(RUNNING)._replace(reason="dr")
                waiting += kcm.handle(now, do.JobsChecked(["41"], {"41": status}))
        now += SECOND // 2
    return [each for each in messages if isinstance(each, (Stuck, CleanedUp))]


@pytest.mark.parametrize(("error", "words"), [(None, "dr"), (REFUSED, REFUSED["words"])], ids=["listed", "refused"])
def test_a_stuck_job_is_reported_once_with_the_batch_systems_words(error: dict[str, Any] | None, words: str) -> None:
    kcm = running_machine()
    kcm.handle(T0, do.WrapperReported(TAG, report("ended", ended_at=T0)))
    (stuck,) = events_of_vain_cancels(kcm, T0 + 4 * STUCK_AFTER, error)
    assert isinstance(stuck, Stuck)
    assert (stuck.tag, stuck.error["code"], stuck.error["words"]) == (TAG, "stuck", words)
    assert "41" in stuck.error["message"]
    assert stuck.at >= T0 + STUCK_AFTER


def test_a_job_is_not_stuck_before_its_time() -> None:
    assert events_of_vain_cancels(running_machine(), T0 + STUCK_AFTER) == []


def test_a_stuck_job_is_cancelled_on_and_cleaned_up_once_it_is_no_longer_listed() -> None:
    kcm = running_machine()
    kcm.handle(T0, do.WrapperReported(TAG, report("ended", ended_at=T0)))
    now = T0 + 4 * STUCK_AFTER
    events_of_vain_cancels(kcm, now)
    later = [action for step in range(120) for action in kcm.tick(now + step * SECOND)]
    assert do.CancelJob in operations(later)
    checked = kcm.handle(now + 120 * SECOND, do.JobsChecked(["41"], {}))
    assert CleanedUp in [type(each) for each in to_koalad(checked)]


@pytest.mark.parametrize("force", [False, True])
def test_cancels_of_a_job_that_may_still_run_are_forced_only_if_its_user_asks_for_it(force: bool) -> None:
    forced: list[bool] = []
    events_of_vain_cancels(running_machine(), T0 + 4 * STUCK_AFTER, force=force, forced=forced)
    assert any(forced) is force
    assert not forced[0]


def hung_cancel(kcm: Machine, force: bool) -> list[bool]:
    """Cancel a job by a command that never ends. Returns, for each cancel of this instant, whether it is forced."""
    actions = [*kcm.handle(T0, Cancel(9, TAG, force=force)), *kcm.handle(T0, do.StartLockTaken(TAG, False))]
    return forced_ones([*actions, *kcm.tick(T0)])


def forced_ones(actions: list[Any]) -> list[bool]:
    return [action.forced for action in actions if isinstance(action, do.CancelJob)]


def test_a_cancel_that_its_user_forces_does_not_wait_for_a_plain_one_that_hangs() -> None:
    kcm = running_machine()
    assert hung_cancel(kcm, force=True) == [False]
    assert forced_ones(kcm.tick(T0 + FORCED_AFTER - 1)) == []
    assert kcm.wakeup() == T0 + FORCED_AFTER
    assert forced_ones(kcm.tick(T0 + FORCED_AFTER)) == [True]
    asked = kcm.handle(T0 + FORCED_AFTER, do.JobCancelled(TAG))
    assert do.CheckJobs in operations([*asked, *kcm.tick(T0 + FORCED_AFTER + SECOND)])
    kcm.handle(T0 + FORCED_AFTER + SECOND, do.JobsChecked(["41"], {}))
    later = T0 + 10 * STUCK_AFTER
    assert forced_ones([*kcm.handle(later, do.JobCancelled(TAG, REFUSED)), *kcm.tick(later)]) == []


def test_a_job_that_shows_no_sign_of_life_is_forgotten_at_once_if_its_user_asks_for_it() -> None:
    kcm = running_machine()
    kcm.handle(T0, do.WrapperDisconnected(TAG))
    silent = T0 + 2 * SILENT
    kcm.handle(silent, do.Inspected([TAG], {TAG: do.DirectoryStatus(start_lock="taken")}, 7))
    kcm.handle(silent, measured(silent, listed(RUNNING)))
    kcm.handle(silent + SECOND, do.Inspected([TAG], {TAG: do.DirectoryStatus(start_lock="taken")}, 7))
    assert True in hung_cancel(kcm, force=True)


def test_a_wish_that_comes_while_a_plain_cancel_hangs_is_granted_too() -> None:
    kcm = queued_machine()
    assert hung_cancel(kcm, force=False) == [False]
    assert forced_ones(kcm.tick(T0 + STUCK_AFTER)) == []
    asked = kcm.handle(T0 + STUCK_AFTER, Cancel(10, TAG, force=True))
    assert forced_ones([*asked, *kcm.tick(T0 + STUCK_AFTER + FORCED_AFTER)]) == [True]


def test_a_job_that_is_gone_by_then_is_not_cancelled_by_force() -> None:
    kcm = running_machine()
    hung_cancel(kcm, force=True)
    actions = kcm.handle(T0, do.JobCancelled(TAG))
    actions += kcm.tick(T0 + SECOND)
    assert do.CheckJobs in operations(actions)
    kcm.handle(T0 + SECOND, do.JobsChecked(["41"], {}))
    assert forced_ones(kcm.tick(T0 + FORCED_AFTER)) == []
