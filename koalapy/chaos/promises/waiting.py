"""Promises about waiting: no fitting job waits, and no job is placed that may have run on a silent cluster.

The first is computed from koalad's events for jobs that every policy could place, the second for a koalad that has just
started.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from koalapy.chaos.promises import limits
from koalapy.chaos.promises.claims import is_matched, may_be_too_large
from koalapy.chaos.promises.knowledge import Decided, KnownCluster
from koalapy.chaos.promises.launchers import Launchers
from koalapy.chaos.violation import Promise, promise
from koalapy.core.startup import LONGEST_LOGIN
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change, Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import ClusterLeft, Event
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.isolated import beyond_isolation, needs_terminal
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant

PATIENCE = Duration(10 * SECOND)  # of koalad's clock
_BETWEEN = SECOND  # two checks


class Waiting:
    """The checker of waiting jobs. `committed` follows every commit, `passed` precedes every decision."""

    def __init__(self, settings: Settings) -> None:
        self._strict, self._most = settings.queue == "fcfs", settings.max_overtakes
        self._borrows = settings.borrow is not None
        self._jobs: dict[JobId, Job] = {}
        self._fits: dict[JobId, Instant] = {}  # since which instant
        self._looked_at: Instant | None = None

    def restarted(self) -> None:
        """Begin anew: a starting koalad waits for its clusters, and its clock may differ."""
        self._fits, self._looked_at = {}, None

    def committed(self, change: Change) -> None:
        for job in change.jobs:
            if job.state is JobState.WAITING:
                self._jobs[job.id] = job
            else:
                self._jobs.pop(job.id, None)

    def passed(self, decided: Decided, pilots: Mapping[AttemptId, Attempt]) -> None:
        """Check that no job has waited for long although it fits. `pilots`: all that were ever committed."""
        if self._looked_at is not None and decided.at < self._looked_at + _BETWEEN:
            return
        self._looked_at, before = decided.at, self._fits
        if not all(seen.met for seen in decided.knowledge.clusters.values()):
            self._fits = {}
            return
        self._fits = {
            job.id: before.get(job.id, decided.at) for job in self._fitting(decided, Launchers(pilots, decided))
        }
        for identity, since in self._fits.items():
            waited = decided.at - since
            promise(waited <= PATIENCE, Promise.FITS, "job", identity, "waits", waited, "us although it fits")

    def _fitting(self, decided: Decided, launchers: Launchers) -> Iterator[Job]:
        """Yield fitting jobs in the queue's order, as far as the policy lets them overtake jobs that do not fit.

        Of a job with requirements or a rank it is not known here whether it fits. Nor is it of a lease for sweeps
        whether that is being given up.
        """
        if not self._jobs:
            return
        doubtful = _leases_of_sweeps(decided)
        usable = {name: seen for name, seen in decided.usable.items() if name not in doubtful}
        idle = {name: _idle(seen, launchers) for name, seen in usable.items()}
        queues = {name: limits.left(seen, decided) for name, seen in usable.items()}
        isolating = {name for name, seen in usable.items() if seen.settings.isolation is not None}
        first: Job | None = None
        for job in sorted(self._jobs.values(), key=lambda job: (job.request.priority, job.position)):
            shut = set() if _may_be_isolated(job) else isolating
            left = {
                name: count for name, count in idle.items() if name not in shut and not _excluded(job, name, decided.at)
            }
            if not is_matched(job) and (
                self._fits_on(job, left, decided) or self._may_queue(job, left, queues, decided)
            ):
                yield job
            elif self._strict:
                return
            elif self._borrows and may_be_too_large(job, usable.values()):
                if job.overtaken >= self._most:
                    return  # if it is not stalled
            elif first is None and not _stalled(job, left):
                first = job
            if first is not None and first.overtaken >= self._most:
                return

    def _may_queue(self, job: Job, usable: Mapping[str, int], queues: Mapping[str, int], decided: Decided) -> bool:
        """Return whether the job has waited long enough for batch queues, and their backlogs have room for it."""
        if job.request.when_busy is not WhenBusy.QUEUE or job.waiting_since is None:
            return False
        limit = job.request.held_limit
        if len(job.request.components) > 1 and limit is not None and job.held_processor_us >= limit:
            return False
        waits = 0 if job.request.pilot is not None else decided.engine.settings.queue_after
        patient = decided.at >= job.waiting_since + waits
        return patient and self._fits_on(job, {name: queues[name] for name in usable}, decided)

    def _fits_on(self, job: Job, room: Mapping[str, int], decided: Decided) -> bool:
        """Return whether all needed components fit into these processors of one network, however a policy places them.

        A component names its cluster or goes to any cluster with room, the largest component first.
        """
        needed = [each.smallest() for each in job.request.components if not each.optional]
        named = [each for each in needed if each.cluster is not None]
        free = sorted((each for each in needed if each.cluster is None), key=lambda each: -each.processors)
        alone = not job.request.communication or len(job.request.components) == 1
        networks = {name: seen.settings.network for name, seen in decided.knowledge.clusters.items()}
        for network in [None] if alone else sorted(set(networks.values())):
            there = {name: count for name, count in room.items() if network in (None, networks[name])}
            apart = {name for name, seen in decided.knowledge.clusters.items() if seen.settings.only_named}
            if _placeable([*named, *free], there, decided.processors.taken, apart):
                return True
        return False


def _may_be_isolated(job: Job) -> bool:
    """Return whether all programs of the job can run isolated."""
    return not (needs_terminal(job.request) or any(map(beyond_isolation, job.request.components)))


def _leases_of_sweeps(decided: Decided) -> set[str]:
    return {each.cluster for each in decided.engine.core.leases.borrowed.values() if each.sweeps}


def _placeable(
    components: Sequence[ComponentRequest],
    room: Mapping[str, int],
    taken: Callable[[str, ComponentRequest], int],
    apart: Collection[str],
) -> bool:
    """Return whether each component has room in its turn, whatever the places of those before it.

    `apart`: clusters that take only components that name them.
    """
    if not components:
        return True
    first, *others = components
    left = {name: count - taken(name, first) for name, count in room.items() if first.cluster in (None, name)}
    choices = [name for name, count in left.items() if count >= 0 and (first.cluster or name not in apart)]
    return bool(choices) and all(_placeable(others, {**room, name: left[name]}, taken, apart) for name in choices)


def _idle(seen: KnownCluster, launchers: Launchers) -> int:
    """Return the idle processors: those of sweeps count as idle, those committed since the measurement do not."""
    assert seen.state is not None
    return seen.state.idle + launchers.shown(seen) - launchers.committed(seen)


def _excluded(job: Job, cluster: str, now: Instant) -> bool:
    return any(name == cluster and now < until for name, until in job.excluded)


def _stalled(job: Job, idle: Mapping[str, int]) -> bool:
    """Return whether the job waits for a cluster, not for processors."""
    named = {each.cluster for each in job.request.components if each.cluster and not each.optional}
    return not idle or not named <= idle.keys()


class Starts:
    """The checker of the first claims of each koalad: of jobs that waited when it started."""

    def __init__(self) -> None:
        self._waited: dict[JobId, None] = {}
        self._clusters: list[str] = []
        self._since: Instant | None = None

    def started(self, snapshot: Snapshot, clusters: Sequence[ClusterSettings]) -> None:
        """Begin with a koalad of these clusters, none of which has answered yet."""
        self._waited = {job.id: None for job in snapshot.jobs if job.state.queued}
        self._clusters, self._since = [each.name for each in clusters], None

    def handling(self, now: Instant, events: Sequence[Event]) -> None:
        """Note when koalad began. A cluster that leaves, and joins again later, is not awaited."""
        self._since = now if self._since is None else self._since
        left = {event.name for event in events if isinstance(event, ClusterLeft)}
        self._clusters = [each for each in self._clusters if each not in left]

    def committed(self, change: Change, decided: Decided) -> None:
        """Check the claims of a change, unless the clusters have had their time to answer."""
        known = decided.knowledge.clusters
        silent = {name for name in self._clusters if name in known and not known[name].met}
        if not silent or self._since is None or decided.at >= self._since + LONGEST_LOGIN:
            return
        jobs = {job.id: job for job in change.jobs}
        for line in change.history:
            if line.kind == HistoryKind.JOB_CLAIMED and line.job in self._waited:
                request = jobs[line.job].written or jobs[line.job].request
                asked = [each.cluster for each in request.components]
                kept = None not in asked and silent.isdisjoint(asked)
                promise(kept, Promise.ANSWERED, "job", line.job, "on", *asked, "is claimed before", *sorted(silent))
