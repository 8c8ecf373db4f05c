"""Batch jobs that no cancel ends: koalad is told once, with the batch system's own words."""

from typing import Any

import kcm_talk as talk
import pytest
from koalapy_adapters.batch.protocol import RUNNING
from koalapy_adapters.kcm.attempts import stuck_cancel
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import Acknowledge, Cancel, CleanedUp, Event, Stuck

T0, SECOND, TAG = talk.T0, talk.SECOND, talk.TAG
REFUSED = dict(failure("refused", "cluster", "No."), command="qdel -f 41", words="koala has not the privileges")


def cancelled_in_vain(
    kcm: Machine, until: int, error: dict[str, Any] | None = None, force: bool = False, forced: list[bool] | None = None
) -> list[Any]:
    """All that koalad is told while every cancel is answered so and the queue lists the job still, to this instant.

    `forced`: takes of each cancel whether the batch system was asked to forget the job.
    """
    waiting = [*kcm.handle(T0, Cancel(9, TAG, force=force)), *kcm.handle(T0, do.StartLockTaken(TAG, False))]
    told, now = [], T0
    while now < until:
        waiting += kcm.tick(now)
        while waiting:
            action = waiting.pop(0)
            told += talk.said([action])
            if isinstance(action, do.Send) and isinstance(action.message, Event):
                waiting += kcm.handle(now, Acknowledge(action.message.number))
            if isinstance(action, do.CancelJob):
                if forced is not None:
                    forced.append(action.forced)
                waiting += kcm.handle(now, do.JobCancelled(TAG, error))
            elif isinstance(action, do.CheckJobs):
                listed = talk.listed(RUNNING)._replace(reason="dr")
                waiting += kcm.handle(now, do.JobsChecked(["41"], {"41": listed}))
        now += SECOND // 2
    return [each for each in told if isinstance(each, (Stuck, CleanedUp))]


@pytest.mark.parametrize(("error", "words"), [(None, "dr"), (REFUSED, REFUSED["words"])], ids=["listed", "refused"])
def test_koalad_is_told_once_with_the_batch_systems_words(error: dict[str, Any] | None, words: str) -> None:
    kcm = talk.running_machine()
    kcm.handle(T0, do.WrapperReported(TAG, talk.report("ended", ended_at=T0)))
    (told,) = cancelled_in_vain(kcm, T0 + 4 * stuck_cancel.PATIENCE, error)
    assert isinstance(told, Stuck)
    assert (told.tag, told.error["code"], told.error["words"]) == (TAG, "stuck", words)
    assert "41" in told.error["message"]
    assert told.at >= T0 + stuck_cancel.PATIENCE


def test_a_cancel_has_its_time() -> None:
    assert cancelled_in_vain(talk.running_machine(), T0 + stuck_cancel.PATIENCE) == []


def test_it_is_cancelled_on_and_said_to_be_gone_when_it_is() -> None:
    kcm = talk.running_machine()
    kcm.handle(T0, do.WrapperReported(TAG, talk.report("ended", ended_at=T0)))
    now = T0 + 4 * stuck_cancel.PATIENCE
    cancelled_in_vain(kcm, now)
    later = [action for step in range(120) for action in kcm.tick(now + step * SECOND)]
    assert do.CancelJob in talk.operations(later)
    gone = kcm.handle(now + 120 * SECOND, do.JobsChecked(["41"], {}))
    assert CleanedUp in [type(each) for each in talk.said(gone)]


@pytest.mark.parametrize("force", [False, True])
def test_a_job_that_may_still_run_is_forgotten_only_where_its_user_waits_for_nothing(force: bool) -> None:
    forced: list[bool] = []
    cancelled_in_vain(talk.running_machine(), T0 + 4 * stuck_cancel.PATIENCE, force=force, forced=forced)
    assert any(forced) is force
    assert not any(forced[: stuck_cancel.CANCELS])
