"""When time alone changes something for a job."""

from koalapy.broker.patience import waits_for
from koalapy.coallocation import absence, barrier
from koalapy.information.kis import Information
from koalapy.model.job import Component, Job
from koalapy.model.settings import Settings
from koalapy.model.units import Instant


def next_moment(now: Instant, job: Job, settings: Settings, clusters: Information) -> Instant | None:
    """None: never. Of a job of the run list it may have passed already."""
    if job.state.queued and job.runner is None:
        return min([moment for moment in waits_for(job, settings) if moment > now], default=None)
    if not job.state.active:
        return None
    deadline = barrier.deadline(job, settings)
    unknown = [each for each in job.components if each.unknown_since is not None]
    if not unknown:  # as nearly always
        return deadline
    moments = [deadline, *(_lost_at(each, settings, clusters) for each in unknown)]
    return min([moment for moment in moments if moment is not None], default=None)


def _lost_at(component: Component, settings: Settings, clusters: Information) -> Instant | None:
    in_reach = not component.gone and clusters.is_connected(component.cluster)
    return absence.lost_at(component, settings) if in_reach else None
