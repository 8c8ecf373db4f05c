"""Jobs of a store that was restored from a backup: where they have got to since, so that nothing of them runs twice.

What koalad did after the backup it has forgotten, but the clusters have not: each tells the attempts of such jobs that
left a trace there. A job goes on with the newest of them, where it is; one that may be on a cluster that has not been
heard yet waits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from koalapy.coallocation.stopping import account_held
from koalapy.model.events import ComponentReported
from koalapy.model.identity import FIRST_LAUNCHER, MAX_JOBS, AttemptId, JobId
from koalapy.model.job import Component, Counters, Job
from koalapy.model.records import Records
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import SECOND, Duration, Instant

UNTIL_HEARD = Instant(4_102_444_800_000_000)  # the year 2100: no measure of time, but of what is to be known first
JOBS_AHEAD = (
    100_000  # ids that one koalad may have given out since its backup: far more than a day's, and of 16 million
)

LONGEST_LOGIN = Duration(90 * SECOND)

_SHOWS_RELEASE = ("released", "running")


def ahead(counters: Counters) -> Counters:
    """After a backup was restored: ids that may be in use already are left out, and jobs of before are in doubt."""
    return replace(
        counters,
        next_job=min(counters.next_job + JOBS_AHEAD, FIRST_LAUNCHER),
        doubtful_below=counters.next_job,
        next_launcher=min(counters.next_launcher + JOBS_AHEAD, MAX_JOBS),
    )


class FirstContact:
    """After a start, whether every cluster has been reached, or was seen to be out of reach, once.

    Until then no waiting job goes anywhere: a cluster may still tell that the store is a backup's, and that a job which
    waits in it has run since. A koalad that began with no waiting job does not wait.
    """

    def __init__(self, clusters: Iterable[str], jobs: Iterable[Job]) -> None:
        self._missing = dict.fromkeys(clusters) if any(job.state.queued for job in jobs) else {}
        self._until: Instant | None = None

    @property
    def missing(self) -> list[str]:
        return list(self._missing)

    def met(self, cluster: str) -> None:
        self._missing.pop(cluster, None)

    def told(self) -> None:
        """What was waited for is known: the store is a backup's."""
        self._missing.clear()

    def awaited(self, now: Instant) -> bool:
        """Not for ever: a cluster of which nothing is heard for so long is out of reach, too."""
        if self._until is None:
            self._until = Instant(now + LONGEST_LOGIN)
        if now >= self._until:
            self._missing.clear()
        return bool(self._missing)

    def wakeup(self) -> Instant | None:
        return self._until if self._missing else None


class Whereabouts:
    """What the clusters have told since koalad started."""

    def __init__(self, clusters: Iterable[str]) -> None:
        self._clusters = tuple(clusters)
        self._unheard = dict.fromkeys(self._clusters)
        self._newest: dict[tuple[JobId, int], tuple[int, str]] = {}  # of a component: attempt and cluster

    @property
    def unheard(self) -> list[str]:
        return list(self._unheard)

    def hear(self, cluster: str, recalled: Sequence[AttemptId]) -> None:
        self._unheard.pop(cluster, None)
        for job, component, number in recalled:
            known, _ = self._newest.get((job, component), (0, ""))
            if number > known:
                self._newest[job, component] = number, cluster

    def settle(self, records: Records, now: Instant) -> bool:
        """Every doubtful job in the wait queue is bound to where it was found, or left out of all clusters.

        Whether that changed anything.
        """
        changed = False
        for job in doubtful(records):
            settled = self._settled(job) if job.state.queued and job.runner is None else job
            if settled == job:
                continue
            changed = True
            records.put(settled)
            for before, after in zip(job.components, settled.components, strict=True):
                if before != after:
                    cluster, attempt = after.request.cluster, after.attempt + 1
                    records.note(
                        now, job.id, "attempt_recalled", component=after.index, attempt=attempt, cluster=cluster
                    )
        return changed

    def _settled(self, job: Job) -> Job:
        kept = tuple((cluster, until) for cluster, until in job.excluded if until != UNTIL_HEARD)
        if self._unheard:
            return replace(job, excluded=(*kept, *((cluster, UNTIL_HEARD) for cluster in self._clusters)))
        components = tuple(self._bound(job.id, each) for each in job.components)
        request = replace(job.request, components=tuple(each.request for each in components))
        return replace(job, request=request, components=components, excluded=kept)

    def _bound(self, job: JobId, component: Component) -> Component:
        """The next attempt is the newest one that was made."""
        number, cluster = self._newest.get((job, component.index), (0, ""))
        if number <= component.attempt:
            return component
        return replace(component, attempt=number - 1, request=replace(component.request, cluster=cluster))


def doubtful(records: Records) -> list[Job]:
    below = records.counters.doubtful_below
    return [job for job in records.jobs.values() if job.id < below] if below else []


def released_before(records: Records, now: Instant, job: Job, event: ComponentReported) -> Job:
    """A report that shows a release which this store knows nothing of: it was given after the backup, to all."""
    shown = event.released_at is not None or event.started_at is not None or event.phase in _SHOWS_RELEASE
    if not shown or job.state is not JobState.CLAIMING or job.id >= records.counters.doubtful_below:
        return job
    job = account_held(job, now).to(JobState.RUNNING)
    for component in job.present:
        if not component.state.final:
            released_at = event.released_at or now
            job = job.with_component(component.index, state=ComponentState.RELEASED, released_at=released_at)
    records.put(job)
    records.note(now, job.id, "job_found_released")
    return job
