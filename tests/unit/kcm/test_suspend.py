"""The KCM suspends and resumes attempts as koalad wishes, by its batch system."""

from typing import Any

import pytest
from kcm_machine import SECOND, T0, TAG, UNREACHABLE, listed, machine, measured, report, running_machine, to_koalad
from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.protocol import RUNNING, SUSPENDED, BatchSettings
from koalapy_adapters.errors import ClusterError, RequestError, Result
from koalapy_adapters.kcm.execution.batch_system import BatchSystem
from koalapy_adapters.kcm.execution.subprocess_runner import Ran
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages.koalad import Cancel, SetSuspended

SUSPEND, RESUME = do.SuspendJob(TAG, "41", True), do.SuspendJob(TAG, "41", False)


def jobs(actions: list[Any]) -> list[do.SuspendJob]:
    return [each for each in actions if isinstance(each, do.SuspendJob)]


def test_a_wish_is_carried_out_once_and_its_result_is_measured_soon() -> None:
    kcm = running_machine()
    kcm.handle(T0, measured(T0, listed(RUNNING)))
    assert jobs(kcm.handle(T0, SetSuspended(TAG, True))) == [SUSPEND]
    assert jobs(kcm.handle(T0, do.JobSuspended(TAG, True))) == []
    due = kcm.wakeup()
    assert due is not None
    assert due <= T0 + 2 * SECOND
    (seen,) = [each for each in to_koalad(kcm.handle(T0, measured(T0, listed(SUSPENDED)))) if hasattr(each, "state")]
    assert seen.state == "suspended"
    assert kcm.is_suspended(TAG)


def test_the_last_wish_counts() -> None:
    kcm = running_machine()
    kcm.handle(T0, SetSuspended(TAG, True))
    assert jobs(kcm.handle(T0, SetSuspended(TAG, False))) == []
    assert jobs(kcm.handle(T0, do.JobSuspended(TAG, True))) == [RESUME]
    assert jobs(kcm.handle(T0, do.JobSuspended(TAG, False))) == []


def test_a_failure_is_tried_again_until_the_attempt_ends() -> None:
    kcm = running_machine()
    kcm.handle(T0, SetSuspended(TAG, True))
    assert jobs(kcm.handle(T0, do.JobSuspended(TAG, True, UNREACHABLE))) == []
    assert jobs(kcm.tick(T0 + SECOND)) == [SUSPEND]
    kcm.handle(T0 + SECOND, do.JobSuspended(TAG, True, UNREACHABLE))
    kcm.handle(T0 + SECOND, do.WrapperReported(TAG, report("ended", ending="exited", exit_status=0, nodes=[])))
    assert jobs(kcm.tick(T0 + 60 * SECOND)) == []


@pytest.mark.parametrize("known", [[[TAG, "41"]], []], ids=["known", "unknown"])
def test_a_new_kcm_suspends_what_it_knows(known: list[list[str]]) -> None:
    kcm = machine(*known)
    assert jobs(kcm.handle(T0, SetSuspended(TAG, True))) == [SUSPEND] * len(known)


def test_an_attempt_that_is_being_ended_is_left_alone() -> None:
    kcm = running_machine()
    kcm.handle(T0, Cancel(2, TAG))
    assert jobs(kcm.handle(T0, SetSuspended(TAG, True))) == []


def test_a_batch_system_that_keeps_the_processors_suspends_nothing() -> None:
    ran: list[list[str]] = []

    def run(argv: list[str], timeout: float, handle: Any = None) -> Ran:
        ran.append(argv)
        return Ran(
            Result(
                argv, 0, '{"error": {"code": "not_running", "whose": "request", "message": "", "advice": ""}}\n', ""
            ),
            0,
        )

    with pytest.raises(ClusterError, match="keeps its processors"):
        BatchSystem(slurm, BatchSettings("me"), runner=run).suspend("41")
    assert ran == []
    from koalapy_adapters.batch import allocation

    with pytest.raises(RequestError):
        BatchSystem(allocation, BatchSettings("me"), runner=run).resume("41@/s/allocations/q")
    assert ran == [["/s/allocations/queue", "resume", "41@/s/allocations/q"]]
