"""Constraints that give way: a job whose claim has failed asks for fewer processors, step by step.

So do the agents of the multistage co-allocation service upon a failure (its section 3). Here a job that has failed also
does so whenever it has waited for a while. What a job gets is the most that is idle of what it asks for (see
`koalapy.broker.ranges`).
"""

from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.history import HistoryKind
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.model.settings import Settings
from koalapy.model.units import Instant


def lower(core: Core, now: Instant, job: Job, after: str) -> bool:
    """Ask for half of the processors of each component that allows it. `after`: what happened, for the history.

    They are those with which the job was tried, which may be fewer than it asked for. A job on a group of clusters
    becomes one component again, and asks for fewer then. Its choices were of the number before, so that it needs a new
    list. Returns False if no component allows fewer.
    """
    whole = job.written or job.request
    tried = _tried(job, whole)
    components = tuple(
        [
            each if each.least is None else replace(each, processors=processors).lowered()
            for each, processors in zip(whole.components, tried, strict=True)
        ]
    )
    if components == whole.components:
        return False
    numbers = {
        index: [old.processors, new.processors]
        for index, (old, new) in enumerate(zip(whole.components, components, strict=True))
        if old.processors != new.processors
    }
    lowered = replace(whole, components=components)
    if job.written is None:
        core.records.change(job, request=lowered, choices=(), choice=0, lowered_at=now)
    else:
        core.records.change(job, written=lowered, lowered_at=now)
    core.records.note(now, job.id, HistoryKind.JOB_LOWERED, processors=numbers, after=after)
    core.mark_dirty()
    return True


def _tried(job: Job, whole: Request) -> list[int]:
    """Return the processors of each component with which the job was tried last, else those that it asks for."""
    if len(whole.components) > 1:
        return [each.processors for each in job.request.components]
    if job.choices:
        return [sum(processors for _, processors in job.choices[job.choice].clusters)]
    return [job.request.processors]


def lowered_from(job: Job, settings: Settings) -> Instant | None:
    """Return the instant from which a waiting job asks for fewer processors than after its last failed claim.

    None if it never does.
    """
    if job.waiting_since is None or job.lowered_at is None:
        return None
    if all(each.lowered() is each for each in job.request.components):
        return None
    patience = settings.queue_after if job.request.relax_after is None else job.request.relax_after
    return Instant(max(job.waiting_since, job.lowered_at) + patience)
