"""The promise about a koalad that has just started: a job that may have run on a silent cluster is not placed."""

from collections.abc import Sequence

from koalapy.chaos.promises.decided import Decided
from koalapy.chaos.violation import Promise, promise
from koalapy.core.startup import LONGEST_LOGIN
from koalapy.model.change import Change, Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import ClusterLeft, Event
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.units import Instant


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
