"""The cause of an attempt's end: the batch system's answer, where the wrapper's report leaves it open."""

from typing import Any

import pytest
from kcm_machine import SECOND, T0, TAG, UNREACHABLE, listed, operations, report, running_machine, to_koalad
from koalapy_adapters.batch.protocol import (
    CANCELLED,
    ENDED,
    EXITED,
    KILLED,
    LOST,
    MEMORY,
    PREEMPTED,
    RUNNING,
    WALLTIME,
    JobStatus,
)
from koalapy_adapters.kcm.attempts.cause import PATIENCE
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages.kcm import Done, Event, Report
from koalapy_adapters.messages.koalad import Acknowledge, Cancel
from koalapy_adapters.wrapper import failure_texts

EXIT_143: dict[str, Any] = {"ending": "exited", "exit_status": 143, "error": {"code": "process_failed"}}
SIGNALLED: dict[str, Any] = {"ending": "killed", "exit_status": 143, "error": failure_texts.SIGNALLED}


def ended(**more: Any) -> tuple[Machine, list[Report]]:
    """A machine whose attempt was released, with what it reports to koalad at once upon this end."""
    kcm = running_machine()
    kcm.handle(T0, do.WrapperReported(TAG, report("running", released_at=T0, started_at=T0)))
    error = more.pop("error", None)
    whole = error and {"whose": "request", "message": "It failed.", **error}
    last = report("ended", released_at=T0, started_at=T0, ended_at=T0, error=whole, **more)
    return kcm, ends(kcm, kcm.handle(T0, do.WrapperReported(TAG, last)))


def ends(kcm: Machine, actions: list[Any]) -> list[Report]:
    """The reported ends among these actions. koalad acknowledges all events, so that none comes again."""
    sent = [action.message for action in actions if isinstance(action, do.Send) and isinstance(action.message, Event)]
    for event in sent:
        kcm.handle(T0, Acknowledge(event.number))
    reports = [body for body in to_koalad(actions) if isinstance(body, Report)]
    return [body for body in reports if body.phase == "ended"]


def looks(kcm: Machine) -> int:
    """Let time pass until the machine looks for the job. Returns the instant."""
    for now in range(T0, T0 + PATIENCE, SECOND // 4):
        if do.Look in operations(kcm.tick(now)):
            return now
    raise AssertionError("it never looked")


def answered(status: JobStatus | None, **more: Any) -> Report:
    """The report that koalad gets once the accounting has this status."""
    kcm, at_once = ended(**more)
    assert at_once == []
    now = looks(kcm)
    [final] = ends(kcm, kcm.handle(now, do.Looked(TAG, None, status)))
    assert ends(kcm, kcm.tick(T0 + 2 * PATIENCE)) == []
    return final


@pytest.mark.parametrize("end", [EXIT_143, SIGNALLED], ids=["exited", "signalled"])
@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (PREEMPTED, "it was preempted"),
        (CANCELLED, "somebody cancelled it there"),
        (LOST, "it lost the job, or a node of it"),
    ],
)
def test_the_batch_systems_word_decides_and_is_named(end: dict[str, Any], ending: str, words: str) -> None:
    final = answered(JobStatus("41", TAG, ENDED, "ITS_WORD", ending=ending), **end)
    assert final.ending == "killed"
    assert final.error is not None
    assert final.error["message"] == f"The batch system stopped the job: {words}."
    assert (final.error["words"], final.exit_status) == ("ITS_WORD", 143)


def test_memory_is_named() -> None:
    final = answered(JobStatus("41", TAG, ENDED, ending=MEMORY), **(EXIT_143 | {"exit_status": 137}))
    assert final.error is not None
    assert (final.ending, final.error["code"], final.error["whose"]) == ("failed", "memory_exceeded", "request")


@pytest.mark.parametrize(
    "status",
    [
        JobStatus("41", TAG, ENDED, "FAILED", exit_status=143, ending=EXITED),
        JobStatus("41", TAG, ENDED, exit_status=143, ending=KILLED),
        JobStatus("41", TAG, ENDED, exit_status=143, ending=WALLTIME),
        JobStatus("41", TAG, ENDED, ending=LOST),
    ],
    ids=["exited", "killed", "walltime", "lost"],
)
def test_a_batch_system_that_knows_no_more_leaves_the_programs_own_end(status: JobStatus) -> None:
    final = answered(status, **EXIT_143)
    assert final.error is not None
    assert (final.ending, final.error["code"]) == ("exited", "process_failed")


def test_a_wrapper_that_was_killed_after_its_record_ended_by_that() -> None:
    assert answered(JobStatus("41", TAG, ENDED, exit_status=137, ending=KILLED), **EXIT_143).ending == "killed"


@pytest.mark.parametrize(
    "end",
    [
        {"ending": "exited", "exit_status": 0},
        {"ending": "exited", "exit_status": 3, "error": {"code": "process_failed"}},
        {"ending": "walltime", "exit_status": 143, "error": failure_texts.WALLTIME},
        {"ending": "killed", "exit_status": 139, "error": failure_texts.ORPHANED},
    ],
    ids=["well", "three", "walltime", "orphan"],
)
def test_other_ends_are_reported_at_once(end: dict[str, Any]) -> None:
    assert len(ended(**end)[1]) == 1


def test_a_batch_system_that_still_lists_the_job_or_does_not_answer_is_asked_again_for_some_time() -> None:
    kcm, _ = ended(**EXIT_143)
    found: list[Any] = []
    answers = [do.Looked(TAG, listed(RUNNING)), do.Looked(TAG, None, None, UNREACHABLE), do.Looked(TAG, None)]
    asked = 0
    now = T0
    while not found and now < T0 + 2 * PATIENCE:
        now += SECOND // 4
        actions = kcm.tick(now)
        found += ends(kcm, actions)
        if do.Look in operations(actions):
            found += ends(kcm, kcm.handle(now, answers[asked % len(answers)]))
            asked += 1
    assert asked >= len(answers)
    assert (now, [final.ending for final in found]) == (T0 + PATIENCE, ["exited"])


def test_a_look_that_never_ends_does_not_keep_the_report() -> None:
    kcm, _ = ended(**EXIT_143)
    looks(kcm)
    assert kcm.wakeup() is not None
    assert len(ends(kcm, kcm.tick(T0 + PATIENCE))) == 1


def test_a_cancel_does_not_wait_for_the_batch_systems_word() -> None:
    kcm, _ = ended(**EXIT_143)
    actions = kcm.handle(T0 + SECOND, Cancel(9, TAG))
    assert Done(9) in to_koalad(actions)
    assert [final.ending for final in ends(kcm, actions)] == ["exited"]


def test_the_record_that_is_found_meanwhile_is_not_reported_beside() -> None:
    kcm, _ = ended(**EXIT_143)
    kcm.handle(T0, do.WrapperDisconnected(TAG, True))
    record = report("ended", released_at=T0, started_at=T0, ended_at=T0, ending="exited", exit_status=143)
    found = do.DirectoryStatus(start_lock="taken", record=record)
    assert ends(kcm, kcm.handle(T0 + SECOND, do.Inspected([TAG], {TAG: found}, 7))) == []
    assert len(ends(kcm, kcm.tick(T0 + PATIENCE))) == 1
