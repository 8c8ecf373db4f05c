"""Who waits although it fits: counted from what koalad was told, for jobs that every placement policy could place."""

from collections.abc import Iterator, Mapping

from koalapy.model.change import Change
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.simulation.chaos.promises.decided import Decided
from koalapy.simulation.chaos.promises.heard import Told
from koalapy.simulation.chaos.promises.launchers import Launchers
from koalapy.simulation.chaos.violation import Promise, promise

PATIENCE = Duration(10 * SECOND)  # of koalad's clock
_BETWEEN = SECOND  # two looks


class Waiting:
    """`committed` after every commit, and `passed` before every decision: of what the one before has left."""

    def __init__(self, settings: Settings) -> None:
        self._strict, self._most = settings.queue == "fcfs", settings.max_overtakes
        self._networks = {each.name: each.network for each in settings.clusters}
        self._jobs: dict[JobId, Job] = {}
        self._fits: dict[JobId, Instant] = {}  # since when
        self._looked_at: Instant | None = None

    def restarted(self) -> None:
        """A koalad that starts waits for its clusters, and its clock may be another."""
        self._fits, self._looked_at = {}, None

    def committed(self, change: Change) -> None:
        for job in change.jobs:
            if job.state is JobState.WAITING and job.runner is None and job.glide is None:
                self._jobs[job.id] = job
            else:
                self._jobs.pop(job.id, None)

    def passed(self, decided: Decided, jobs: Mapping[JobId, Job]) -> None:
        """`jobs`: all that were ever committed."""
        if self._looked_at is not None and decided.at < self._looked_at + _BETWEEN:
            return
        self._looked_at, before = decided.at, self._fits
        if not all(told.met for told in decided.heard.clusters.values()):
            self._fits = {}
            return
        self._fits = {
            job.id: before.get(job.id, decided.at) for job in self._fitting(decided, Launchers(jobs, decided))
        }
        for identity, since in self._fits.items():
            waited = decided.at - since
            promise(waited <= PATIENCE, Promise.FITS, "job", identity, "waits", waited, "us although it fits")

    def _fitting(self, decided: Decided, launchers: Launchers) -> Iterator[Job]:
        """In the queue's order, as far as its policy lets jobs pass those that wait for processors."""
        if not self._jobs:
            return
        usable = decided.heard.usable(decided.at)
        idle = {name: _idle(told, launchers) for name, told in usable.items()}
        first: Job | None = None
        for job in sorted(self._jobs.values(), key=lambda job: (job.request.priority, job.place)):
            left = {name: count for name, count in idle.items() if not _left_out(job, name, decided.at)}
            if self._fits_on(job, left, decided):
                yield job
            elif self._strict:
                return
            elif first is None and not _stalled(job, left):
                first = job
            if first is not None and first.overtaken >= self._most:
                return

    def _fits_on(self, job: Job, idle: Mapping[str, int], decided: Decided) -> bool:
        """Whether some cluster has room for all components that name none, where those that name one have it theirs.

        Then it matters to no policy which of the others it chooses before.
        """
        needed = [each for each in job.request.components if not each.optional]
        alone = not job.request.communication or len(job.request.components) == 1
        for network in [None] if alone else sorted(set(self._networks.values())):
            there = {name: count for name, count in idle.items() if network in (None, self._networks[name])}
            if _placeable(needed, there, decided):
                return True
        return False


def _placeable(needed: list[ComponentRequest], idle: dict[str, int], decided: Decided) -> bool:
    for each in needed:
        if each.cluster is not None:
            idle[each.cluster] = idle.get(each.cluster, -1) - decided.processors.taken(each.cluster, each)
            if idle[each.cluster] < 0:
                return False
    free = [each for each in needed if each.cluster is None]
    return not free or any(
        sum(decided.processors.taken(name, each) for each in free) <= count for name, count in idle.items()
    )


def _idle(told: Told, launchers: Launchers) -> int:
    """What sweeps have counts as idle; what was promised since it was measured does not."""
    assert told.state is not None
    return told.state.idle + launchers.shown(told) - launchers.promised(told)


def _left_out(job: Job, cluster: str, now: Instant) -> bool:
    return any(name == cluster and now < until for name, until in job.excluded)


def _stalled(job: Job, idle: Mapping[str, int]) -> bool:
    """It waits for a cluster, not for processors."""
    named = {each.cluster for each in job.request.components if each.cluster and not each.optional}
    return not idle or not named <= idle.keys()
