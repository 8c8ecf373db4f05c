"""Stuck batch jobs, which no cancel ends: koalad gets one event on each, with the batch system's own words."""

from typing import Any

import pytest
from kcm_machine import SECOND, T0, TAG, listed, operations, report, running_machine, to_koalad
from koalapy_adapters.batch.protocol import RUNNING
from koalapy_adapters.kcm.attempts.cancel import STUCK_AFTER, STUCK_CANCELS
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import Acknowledge, Cancel, CleanedUp, Event, Stuck

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
    assert not any(forced[:STUCK_CANCELS])
