"""The choices of a job: it is claimed on the first that fits, and on the next when the job could not start there.

The list is made when the job is placed, and stays with it. The end of the list counts as one submission failure (the
Scheduling Agent of "The EU-CrossGrid Approach for Grid Application Scheduling").
"""

from collections.abc import Sequence
from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.history import HistoryKind
from koalapy.model.job import Choice, Job
from koalapy.model.units import Instant

BUSY = Reason("busy", "transient", "its processors were not idle any more.", "")
_MOST_LISTED = 5  # choices whose reasons are in one sentence


def with_busy(choices: Sequence[Choice], before: int) -> tuple[Choice, ...]:
    """Return the choices; those before this place that were not tried count as refused, since they did not fit."""
    return tuple(
        [
            replace(each, refused=BUSY) if each.refused is None and place < before else each
            for place, each in enumerate(choices)
        ]
    )


def described(choice: Choice) -> dict[str, object]:
    """Return a choice for the history."""
    return {"clusters": [list(each) for each in choice.clusters], "rank": choice.rank}


def refuse(core: Core, now: Instant, job: Job, reason: Reason) -> None:
    """Note that the job did not start on its choice."""
    refused = replace(job.choices[job.choice], refused=reason)
    choices = (*job.choices[: job.choice], refused, *job.choices[job.choice + 1 :])
    core.records.note(
        now, job.id, HistoryKind.CHOICE_REFUSED, choice=job.choice + 1, choices=len(choices), clusters=str(refused),
        code=reason.code, message=str(reason),
    )  # fmt: skip
    core.records.change(job, choices=choices)


def has_another(job: Job) -> bool:
    """Return whether the job has a choice that was not tried yet, beside the one that is tried now."""
    return any(each.refused is None for place, each in enumerate(job.choices) if place != job.choice)


def no_choice(job: Job) -> Reason:
    """Return the reason of a job that could start on none of its choices, with what each of them refused."""
    refusals = [
        f"{each}: {(each.refused or BUSY).message.removeprefix(f'{each}: ')}" for each in job.choices[:_MOST_LISTED]
    ]
    more = "" if len(job.choices) <= _MOST_LISTED else f" And {len(job.choices) - _MOST_LISTED} more."
    count = "Its only choice" if len(job.choices) == 1 else f"Each of its {counted_as(len(job.choices), 'choice')}"
    message = f"{count} was refused: {' '.join(refusals)}{more}"
    return Reason("choices_refused", "transient", message, f"`koala show {job.id}` lists them.")
