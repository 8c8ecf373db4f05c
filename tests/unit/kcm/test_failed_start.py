"""Batch jobs that ended before their wrapper began: the KCM reports a reason if nothing else explains the end."""

from typing import Any

import pytest
from kcm_machine import T0, TAG, listed, measured, queued_machine, to_koalad
from koalapy_adapters.batch.protocol import ENDED, NOT_STARTED, JobStatus
from koalapy_adapters.kcm.attempts.monitor import RECORD_DELAYS, why_never_began
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages.kcm import BatchStatus, Report
from koalapy_adapters.messages.koalad import Cancel

DIRECTORY = "/home/me/.koala/abcde/" + TAG


def messages_on(status: do.DirectoryStatus, ending: str = "exited", exit_status: int | None = 2) -> list[Any]:
    """Return the messages on an attempt that the batch system lists as ended and whose directory does not change."""
    kcm, now = queued_machine(), T0
    found = listed(ENDED)._replace(ending=ending, exit_status=exit_status)
    messages = to_koalad(kcm.handle(now, measured(now, found)))
    for wait in (0, *RECORD_DELAYS):
        now += wait
        messages += to_koalad(kcm.tick(now))
        messages += to_koalad(kcm.handle(now, do.Inspected([TAG], {TAG: status})))
    return [message for message in messages if isinstance(message, Report | BatchStatus)]


@pytest.mark.parametrize(
    ("output", "code", "word"),
    [
        (None, "not_shared", "shared:"),
        ("python3: can't open file '/x/1f.pyz': [Errno 2] No such file or directory\n", "not_shared", "shared:"),
        ("it cannot be claimed ([Errno 28] No space left on device: '/x').", "shared_full", "room"),
        ("x: Disk quota exceeded", "shared_full", "quota"),
        ("/var/spool/script: 3: exec: python3: not found\n", "wrapper_not_started", "python"),
        ("", "wrapper_not_started", "exit status 2"),
    ],
    ids=["nothing", "no pushed file", "full", "quota", "no python", "no output"],
)  # fmt: skip
def test_the_reason_is_read_from_the_output_of_the_batch_job(output: str | None, code: str, word: str) -> None:
    [ended] = messages_on(do.DirectoryStatus(directory=DIRECTORY, output=output))
    assert (ended.phase, ended.ending, ended.error["code"], ended.error["whose"]) == (
        "ended",
        "failed",
        code,
        "cluster",
    )
    assert word in ended.error["message"] + ended.error["advice"]
    assert ended.error["message"].count("\n") == 0


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (do.DirectoryStatus(directory=DIRECTORY, start_lock="taken"), "exited"),
        (do.DirectoryStatus(directory=DIRECTORY, start_lock="void"), "exited"),
        (do.DirectoryStatus(), "exited"),
        (do.DirectoryStatus(directory=DIRECTORY), "cancelled"),
        (do.DirectoryStatus(directory=DIRECTORY), "walltime"),
        (do.DirectoryStatus(directory=DIRECTORY), "lost"),
    ],
    ids=["taken", "void", "no directory", "cancelled", "walltime", "lost"],
)
def test_an_end_with_another_reason_keeps_it(status: do.DirectoryStatus, ending: str) -> None:
    [seen] = messages_on(status, ending)
    assert isinstance(seen, BatchStatus)


def test_a_job_that_the_batch_system_could_not_start_has_not_begun() -> None:
    [ended] = messages_on(do.DirectoryStatus(directory=DIRECTORY), NOT_STARTED, None)
    assert ended.error["code"] == "not_shared"


def test_a_start_lock_that_becomes_visible_late_is_waited_for() -> None:
    kcm = queued_machine()
    kcm.handle(T0, measured(T0, listed(ENDED)))
    assert to_koalad(kcm.handle(T0, do.Inspected([TAG], {TAG: do.DirectoryStatus(directory=DIRECTORY)}))) == []
    kcm.tick(T0 + RECORD_DELAYS[0])
    record = {"phase": "ended", "tag": TAG, "batch_id": "41", "nodes": [], "ending": "exited", "exit_status": 0}
    status = do.DirectoryStatus("taken", record, directory=DIRECTORY)
    ended = to_koalad(kcm.handle(T0 + RECORD_DELAYS[0], do.Inspected([TAG], {TAG: status})))[0]
    assert (ended.phase, ended.exit_status) == ("ended", 0)


def test_a_cancelled_attempt_has_no_failed_start() -> None:
    kcm = queued_machine()
    kcm.handle(T0, Cancel(5, TAG))
    kcm.handle(T0, measured(T0, listed(ENDED)))
    messages = to_koalad(kcm.handle(T0, do.Inspected([TAG], {TAG: do.DirectoryStatus(directory=DIRECTORY)})))
    assert not [message for message in messages if isinstance(message, Report)]


def test_only_the_last_line_of_the_output_is_quoted() -> None:
    error = why_never_began(DIRECTORY, JobStatus("41", TAG, ENDED, exit_status=127), "first\n  last  \n\n")
    assert error["words"] == "last"
    assert error["message"].endswith("(exit status 127): last")
