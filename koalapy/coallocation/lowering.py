"""Constraints that give way: a job that does not get the processors that it wants asks for fewer, step by step.

The agents of the multistage co-allocation service do so upon a failure (its section 3). Here a job also does so when it
has waited for a while.
"""

from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.job import Job
from koalapy.model.settings import Settings
from koalapy.model.units import Instant


def lower(core: Core, now: Instant, job: Job, after: str) -> bool:
    """Halve the processors of each component that allows it. `after`: what happened, for the history.

    A job on a group of clusters becomes one component again, and asks for fewer then. Its choices were of the number
    before, so that it needs a new list. Returns False if no component allows fewer.
    """
    whole = job.written or job.request
    components = tuple([each.lowered() for each in whole.components])
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
    core.records.note(now, job.id, "job_lowered", processors=numbers, after=after)
    core.mark_dirty()
    return True


def lowered_from(job: Job, settings: Settings) -> Instant | None:
    """Return the instant from which a waiting job asks for fewer processors; None if it never does."""
    if job.waiting_since is None or all(each.least is None for each in job.request.components):
        return None
    if all(each.lowered() is each for each in job.request.components):
        return None
    patience = settings.queue_after if job.request.relax_after is None else job.request.relax_after
    return Instant(max(job.waiting_since, job.lowered_at or job.waiting_since) + patience)
