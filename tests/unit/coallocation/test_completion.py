"""The output of a job that has ended: what its collection means for the job, and what its history has of it."""

from typing import Any

import pytest
from engine_play import Play, component

from koalapy.model.errors import Reason
from koalapy.model.events import CancelRequested, OutputCollected, OutputKept
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import KeptOutput
from koalapy.model.request import KeepOutput
from koalapy.model.states import JobState

FULL = Reason("no_space", "request", "The disk is full.", "")


def details(play: Play, job: JobId, kind: HistoryKind) -> list[dict[str, Any]]:
    return [dict(each.details) for each in play.history if each.job == job and each.kind == kind]


def ended(play: Play, **request: object) -> JobId:
    """Run a job to the end of its program."""
    job = play.submit(component(4, "alpha"), **request)
    play.run(job)
    play.end(play.attempts(job)[0])
    play.obey()
    return job


@pytest.mark.parametrize(("reason", "state"), [(None, JobState.DONE), (FULL, JobState.FAILED)])
def test_a_job_is_done_once_its_output_has_come_and_fails_if_it_cannot(reason: Reason | None, state: JobState) -> None:
    play = Play()
    job = ended(play, stage_out=("result",), directory="/home/me")
    assert play.job(job).state is JobState.RUNNING
    play.apply(OutputCollected(job=job, reason=reason, files=2, size=7, notes=("One is empty.",)))
    assert (play.job(job).state, play.job(job).reason) == (state, reason)
    message = {} if reason is None else {"message": str(reason)}
    came = {"files": 2, "size": 7, "notes": ["One is empty."]}
    assert details(play, job, HistoryKind.OUTPUT_COLLECTED) == [message | came]


def test_output_that_comes_after_a_cancel_changes_no_end() -> None:
    play = Play()
    job = ended(play, stage_out=("result",), directory="/home/me")
    play.apply(CancelRequested(job))
    play.obey()
    play.apply(OutputCollected(job=job))
    assert play.job(job).state is JobState.CANCELLED


@pytest.mark.parametrize(("reason", "kept"), [(None, KeptOutput.KEPT), (FULL, KeptOutput.LOST)])
def test_the_history_has_what_is_kept_of_the_output(reason: Reason | None, kept: KeptOutput) -> None:
    play = Play()
    job = ended(play, keep_output=KeepOutput.HOME)
    play.apply(OutputKept(job=play.job(job), reason=reason, size=5, omitted_bytes=3, notes=("No errors.",)))
    assert play.job(job).kept_output is kept
    message = {} if reason is None else {"message": str(reason)}
    counts = {"size": 5, "omitted_bytes": 3, "notes": ["No errors."]}
    assert details(play, job, HistoryKind.OUTPUT_KEPT) == [message | counts]
