"""The answer to a Submit, given to all who asked for it."""

from typing import Any, List

from koalapy_adapters.kcm.state.actions import Send
from koalapy_adapters.kcm.state.attempt import UNANSWERED, Attempt, Core, Stage, failure
from koalapy_adapters.kcm.sweeps import launcher_end
from koalapy_adapters.messages.kcm import Refused, Submitted

VOID = failure(
    "void", "ours", "The attempt was made void before it could start.", "Submit the component as a new attempt."
)


def accept(core: Core, now: int, attempt: Attempt, batch_id: str) -> List[Any]:
    """It is in the batch system, or was. Who asks need not have known it when its wrapper reported, or it was seen."""
    attempt.batch_id = batch_id or attempt.batch_id
    if attempt.stage in UNANSWERED:
        attempt.submitted_at = now
        core.poll_schedule.soon(now)
    attempt.stage, attempt.retry_at = Stage.IN, None
    answers = _answer(attempt, [Submitted(id, attempt.tag, attempt.batch_id) for id in attempt.asked])
    attempt.seen = None  # the next look at the queue shows it again
    return answers + (launcher_end.report(core, now, attempt.tag, attempt.report) if attempt.report is not None else [])


def refuse(attempt: Attempt) -> List[Any]:
    """Nothing of it is left in the batch system, and nothing comes."""
    attempt.stage, attempt.retry_at = Stage.OUT, None
    error = attempt.error = attempt.error or VOID
    return _answer(attempt, [Refused(id, error) for id in attempt.asked])


def given_up(attempt: Attempt) -> List[Any]:
    """It is gone: requests that still wait for an answer are refused."""
    return refuse(attempt) if attempt.asked or attempt.stage in UNANSWERED else []


def _answer(attempt: Attempt, messages: List[Any]) -> List[Any]:
    attempt.asked = []
    return [Send(message) for message in messages]
