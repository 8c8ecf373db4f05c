"""A batch job that ended before its wrapper began: told with its reason, and only where nothing else explains it."""

from typing import Any

import kcm_talk as talk
import pytest
from koalapy_adapters.batch.protocol import ENDED, NOT_STARTED, JobStatus
from koalapy_adapters.kcm.attempts import failed_start
from koalapy_adapters.kcm.attempts.monitor import SETTLE
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages import BatchStatus, Cancel, Report

TAG, T0 = talk.TAG, talk.T0
DIRECTORY = "/home/me/.koala/abcde/" + TAG


def settle(sight: do.DirectoryStatus, ending: str = "exited", exit_status: int | None = 2) -> list[Any]:
    """What is said of an attempt that the batch system lists as ended, with this in its directory all the time."""
    kcm, now = talk.queued_machine(), T0
    status = talk.listed(ENDED)._replace(ending=ending, exit_status=exit_status)
    said = talk.said(kcm.handle(now, talk.measured(now, status)))
    for wait in (0, *SETTLE):
        now += wait
        said += talk.said(kcm.tick(now))
        said += talk.said(kcm.handle(now, do.Inspected([TAG], {TAG: sight})))
    return [message for message in said if isinstance(message, Report | BatchStatus)]


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
    ids=["nothing", "no pushed file", "full", "quota", "no python", "no word"],
)  # fmt: skip
def test_what_it_left_tells_why(output: str | None, code: str, word: str) -> None:
    [ended] = settle(do.DirectoryStatus(directory=DIRECTORY, output=output))
    assert (ended.phase, ended.ending, ended.error["code"], ended.error["whose"]) == (
        "ended",
        "failed",
        code,
        "cluster",
    )
    assert word in ended.error["message"] + ended.error["advice"]
    assert ended.error["message"].count("\n") == 0


@pytest.mark.parametrize(
    ("sight", "ending"),
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
def test_what_has_another_reason_keeps_it(sight: do.DirectoryStatus, ending: str) -> None:
    [seen] = settle(sight, ending)
    assert isinstance(seen, BatchStatus)


def test_one_that_the_batch_system_could_not_start_never_began() -> None:
    [ended] = settle(do.DirectoryStatus(directory=DIRECTORY), NOT_STARTED, None)
    assert ended.error["code"] == "not_shared"


def test_a_claim_that_shows_late_is_waited_for() -> None:
    kcm = talk.queued_machine()
    kcm.handle(T0, talk.measured(T0, talk.listed(ENDED)))
    assert talk.said(kcm.handle(T0, do.Inspected([TAG], {TAG: do.DirectoryStatus(directory=DIRECTORY)}))) == []
    kcm.tick(T0 + SETTLE[0])
    record = {"phase": "ended", "tag": TAG, "batch_id": "41", "nodes": [], "ending": "exited", "exit_status": 0}
    sight = do.DirectoryStatus("taken", record, directory=DIRECTORY)
    ended = talk.said(kcm.handle(T0 + SETTLE[0], do.Inspected([TAG], {TAG: sight})))[0]
    assert (ended.phase, ended.exit_status) == ("ended", 0)


def test_one_that_is_being_cancelled_says_nothing_more() -> None:
    kcm = talk.queued_machine()
    kcm.handle(T0, Cancel(5, TAG))
    kcm.handle(T0, talk.measured(T0, talk.listed(ENDED)))
    said = talk.said(kcm.handle(T0, do.Inspected([TAG], {TAG: do.DirectoryStatus(directory=DIRECTORY)})))
    assert not [message for message in said if isinstance(message, Report)]


def test_the_last_line_is_quoted_and_no_more_than_a_line() -> None:
    error = failed_start.why(DIRECTORY, JobStatus("41", TAG, ENDED, exit_status=127), "first\n  last  \n\n")
    assert error["words"] == "last"
    assert error["message"].endswith("(exit status 127): last")
