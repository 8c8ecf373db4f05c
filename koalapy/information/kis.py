"""The information service (KIS, the resource monitor of DCS 3.3): connections, measurements and cluster summaries.

Nothing is placed for a while on clusters whose batch systems refuse one job after another. A cluster is polled more
often while something waits for it.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from koalapy.information.commitments import Commitments, Scavenged, processors_of, processors_taken
from koalapy.model.cluster import UNKNOWN_MACHINE, ClusterSettings, ClusterState, Machine
from koalapy.model.commands import WatchCluster
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen, replacer
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.isolated import beyond_isolation
from koalapy.model.lease import is_temporary
from koalapy.model.request import ComponentRequest
from koalapy.model.units import DAY, MINUTE, SECOND, Duration, Instant, format_duration, format_instant

MOST_REFUSED = 3  # jobs in a row
_FIRST_PAUSE, _LONGEST_PAUSE = Duration(30 * SECOND), Duration(10 * MINUTE)
_NO_PAUSE, _NEVER = Duration(0), Instant(0)
REFUSES = "refuses_jobs"  # code of the cluster's trouble
_NO_TIME = Duration(0)
Size = tuple[int, int]  # all processors of a cluster, and the most of them that one component could get
DRAINING = Reason("draining", "transient", "it is being drained, so nothing is placed there.", "")
NOT_MEASURED = Reason(
    "not_measured", "transient", "waiting for the first answer of its batch system.", "Wait a moment."
)
NEVER_CONNECTED = Reason("connecting", "transient", "koalad has not reached its head node yet.", "Wait a moment.")
_FOR_EVER = Instant(1 << 62)


@dataclass(frozen=True, slots=True)
class RefusedJobs:
    """The jobs that a cluster has refused since it last accepted a submission, of which it keeps `MOST_REFUSED`.

    The last of these begins a pause, and each refusal after a pause one twice as long, up to ten minutes. `until`: its
    end. `reason`: that of the last refusal. No store keeps this: after koalad's start other jobs are refused first.
    """

    jobs: frozenset[JobId] = frozenset()
    reason: Reason | None = None
    pause: Duration = _NO_PAUSE
    until: Instant = _NEVER

    def after(self, now: Instant, job: JobId, reason: Reason) -> "RefusedJobs":
        """Return them after one more refusal."""
        jobs = self.jobs if len(self.jobs) == MOST_REFUSED else self.jobs | {job}
        if len(jobs) < MOST_REFUSED or now < self.until:
            return replace(self, jobs=jobs, reason=reason)
        pause = Duration(min(2 * self.pause or _FIRST_PAUSE, _LONGEST_PAUSE))
        return RefusedJobs(jobs, reason, pause, Instant(now + pause))

    def trouble(self, now: Instant) -> Reason | None:
        """Return why the cluster cannot be used; None if it can."""
        if now >= self.until or self.reason is None:
            return None
        message = f"it refuses one job after another, the last one so: {self.reason.message}"
        advice = f"Nothing is placed there until {format_instant(self.until)}. {self.reason.advice}".strip()
        return Reason(REFUSES, "cluster", message, advice)


NONE_REFUSED = RefusedJobs()


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Everything that KIS knows of one cluster.

    `trouble`: why it cannot be used; None while it can. `whole`: its size with all nodes up, as far as is known.
    `smaller_since`: the first of the consecutive measurements that showed a smaller size, None if the last one did not.
    `smaller`: the largest size that these showed. `measured_since`: the first measurement of the present connection.
    `refused`: the jobs that its batch system refuses, one after another.
    """

    settings: ClusterSettings
    connected: bool = False
    version: str = ""
    machine: Machine = UNKNOWN_MACHINE
    state: ClusterState | None = None
    trouble: Reason | None = NEVER_CONNECTED
    whole: Size = (0, 0)
    smaller: Size = (0, 0)
    smaller_since: Instant | None = None
    measured_since: Instant | None = None
    refused: RefusedJobs = NONE_REFUSED


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """A cluster as the broker sees it now, in processors.

    `idle` is less what is committed and not yet shown. A cluster that cannot be used has nothing idle, and `trouble`
    gives the reason. `backlog`: processors of koalapy's jobs that wait in its queue. `state` is the last measurement,
    however old. Sweeps' processors count as idle in it, since a sweep gives them to any job that is placed on them.

    `whole`: the size of the cluster with all nodes up; None if that is its present size. `size_known`: whether the
    cluster was measured for long enough to know its size. `walltime_limit`: the longest walltime of a component that
    its own queue takes, beside the time at the barrier; None for any.
    """

    name: str
    settings: ClusterSettings
    total: int
    idle: int
    committed: int
    backlog: int
    trouble: Reason | None
    state: ClusterState | None
    whole: Size | None = None
    size_known: bool = True
    walltime_limit: Duration | None = None

    @property
    def largest(self) -> int:
        """The largest component, in processors, that fits on the idle cluster."""
        return largest(self.state) if self.state else self.total

    @property
    def size(self) -> Size:
        """All processors, and the largest component that fits on the idle cluster."""
        return self.total, self.largest

    @property
    def unmeasured(self) -> bool:
        """Return whether the cluster is connected and was not measured since."""
        return self.trouble is not None and self.trouble.code == NOT_MEASURED.code


_evolve_known, evolve_summary = replacer(Known), replacer(ClusterSummary)


class Information:
    """The clusters of the grid, by name, in the order of the grid file.

    `commitments` is an index of the records. `reachable`: the connected clusters. `temporary`: the names of those that
    are pilots or leases. `availability_version` grows whenever a summary changes in anything that placing depends on.
    """

    def __init__(
        self,
        clusters: Iterable[ClusterSettings],
        instance: InstanceId,
        settles: Duration = DAY,
        beside_program: Duration = _NO_TIME,
    ) -> None:
        """Start with clusters that were never connected.

        `settles`: a smaller size that every measurement has shown for so long becomes the cluster's own size.
        `beside_program`: see Settings.
        """
        self._settles, self._beside_program = settles, beside_program
        self.clusters: dict[str, Known] = {settings.name: Known(settings=settings) for settings in clusters}
        self.temporary: tuple[str, ...] = tuple(filter(is_temporary, self.clusters))
        self.commitments = Commitments(instance, [known.settings for known in self.clusters.values()])
        self.reachable: frozenset[str] = frozenset()
        self.availability_version = 0
        self._expiry: Instant | None = None  # the last result of next_expiry, until a cluster changes
        self._summaries: dict[str, ClusterSummary] = {}
        self._good_until: dict[str, Instant] = {}  # by cluster, unless an event changes its summary
        self._all_good_until = Instant(0)  # the earliest of these
        self._refreshed_at = Instant(0)

    def join(self, settings: ClusterSettings) -> None:
        """Add a cluster that was never connected."""
        self.clusters[settings.name] = Known(settings=settings)
        self.temporary = tuple(filter(is_temporary, self.clusters))
        self.commitments.join(settings)

    def change(self, settings: ClusterSettings) -> None:
        """Replace the settings of a cluster. The caller enters its attempts into the commitments again."""
        known = self.clusters[settings.name] = _evolve_known(self.clusters[settings.name], {"settings": settings})
        self._expiry = None
        self.commitments.join(settings)
        self.commitments.measured(settings.name, known.state)

    def leave(self, cluster: str) -> None:
        """Drop a cluster, and all that is known of it."""
        del self.clusters[cluster]
        self.temporary = tuple(filter(is_temporary, self.clusters))
        self._expiry = None
        self.commitments.leave(cluster)
        self._summaries.pop(cluster, None)
        self._good_until.pop(cluster, None)
        self._note_reachable()
        self.availability_version += 1

    def connected(self, cluster: str, version: str, machine: Machine = UNKNOWN_MACHINE) -> None:
        """Note that a session with the cluster began; its old measurement is dropped."""
        known = self.clusters[cluster]
        version = version or known.version
        again: dict[str, object] = {"smaller_since": None, "measured_since": None}
        again |= {"machine": known.machine if machine == UNKNOWN_MACHINE else machine}
        self._update(known, {"connected": True, "version": version, "state": None, "trouble": NOT_MEASURED, **again})

    def lost(self, cluster: str, reason: Reason) -> None:
        """Note that the session with the cluster ended, and why."""
        self._update(self.clusters[cluster], {"connected": False, "trouble": reason})

    def measured(self, cluster: str, state: ClusterState) -> None:
        """Take over a measurement, unless it is older than the last one."""
        known = self.clusters[cluster]
        if known.state is None or state.measured_at >= known.state.measured_at:
            self._update(known, {"state": state, "trouble": None, **_sizes(known, state, self._settles)})

    def measurement_failed(self, cluster: str, reason: Reason) -> None:
        """Note that the batch system of a cluster did not answer, and why."""
        self._update(self.clusters[cluster], {"trouble": reason})

    def refused(self, now: Instant, cluster: str, job: JobId, reason: Reason) -> None:
        """Note that the batch system of a cluster has refused a job, for a reason that is not the job's own."""
        known = self.clusters[cluster]
        self._update(known, {"refused": known.refused.after(now, job, reason)})

    def accepted(self, cluster: str) -> None:
        """Note that the batch system of a cluster has accepted a submission."""
        if self.clusters[cluster].refused is not NONE_REFUSED:
            self._update(self.clusters[cluster], {"refused": NONE_REFUSED})

    def inherit(self, previous: "Information") -> None:
        """Take over the unbroken sizes of the clusters and the jobs refused there, which no measurement shows again."""
        for name in self.clusters.keys() & previous.clusters.keys():
            before = previous.clusters[name]
            self._update(self.clusters[name], {"whole": before.whole, "refused": before.refused})

    def is_connected(self, cluster: str | None) -> bool:
        """Return whether the cluster is in the grid and has a session."""
        return cluster in self.clusters and self.clusters[cluster].connected

    def could_take(self, component: ComponentRequest) -> list[str]:
        """Return the connected clusters on which the component would fit if they were idle."""
        return [
            name
            for name, known in self.clusters.items()
            if known.connected
            and known.state
            and processors_taken(component, known.settings) <= largest(known.state)
            and (known.settings.isolation is None or not beyond_isolation(component))
            and not _is_longer(component.queue_walltime, self.walltime_limit(name))
        ]

    def walltime_limit(self, cluster: str) -> Duration | None:
        """Return the longest walltime of a component that the cluster's own queue takes; None for any."""
        known = self.clusters.get(cluster)
        limit = None if known is None or known.state is None else known.state.walltime_limit
        return None if limit is None else Duration(max(0, limit - self._beside_program))

    def summaries(self, now: Instant) -> list[ClusterSummary]:
        """Return the present summaries, in the order of the grid file."""
        self.refresh(now)
        return list(self._summaries.values())

    def refresh(self, now: Instant) -> int:
        """Rebuild the summaries that may have changed. Return the availability's version (`availability_version`)."""
        still_good = self._summaries and self._refreshed_at <= now <= self._all_good_until
        changed: Iterable[str] = self.commitments.dirty if still_good else self.clusters
        if changed:
            for name in changed:
                self._refresh(now, self.clusters[name])
            self._all_good_until = min(self._good_until.values(), default=now)
            self.commitments.dirty.clear()
        self._refreshed_at = now
        return self.availability_version

    def next_expiry(self, now: Instant) -> Instant | None:
        """Return the first instant after `now` at which a usable cluster's measurement is too old, or a cluster that
        refuses jobs may be used again; None without one.
        """
        if self._expiry is not None and self._expiry > now:
            return self._expiry
        earliest: int = _FOR_EVER
        for known in self.clusters.values():
            if known.trouble is None and (state := known.state) is not None:
                if now < (expiry := state.measured_at + known.settings.max_age + 1) < earliest:
                    earliest = expiry
                if known.refused is not NONE_REFUSED and now < known.refused.until < earliest:
                    earliest = known.refused.until
        self._expiry = None if earliest == _FOR_EVER else Instant(earliest)
        return self._expiry

    def _refresh(self, now: Instant, known: Known) -> None:
        name = known.settings.name
        commitments = self.commitments
        committed, backlog = commitments.on(name)
        previous = self._summaries.get(name)
        scavenged, limit = commitments.scavenged_on(name), self.walltime_limit(name)
        summary = _summary(now, known, committed, backlog, scavenged, self._settles, limit)
        if previous is None or not same_availability(previous, summary):
            self.availability_version += 1
        self._summaries[name] = summary
        self._good_until[name] = _good_until(now, known, summary)

    def _update(self, previous: Known, changes: dict[str, object]) -> None:
        known, name = _evolve_known(previous, changes), previous.settings.name
        self.clusters[name] = known
        self._expiry = None
        self.commitments.measured(name, known.state)
        if known.connected is not previous.connected:
            self._note_reachable()

    def _note_reachable(self) -> None:
        self.reachable = frozenset(name for name, each in self.clusters.items() if each.connected)


def same_availability(one: ClusterSummary, other: ClusterSummary) -> bool:
    """Return whether two summaries of one cluster agree in everything that placing depends on."""
    if one is other:
        return True
    same = one.idle == other.idle and one.total == other.total and one.backlog == other.backlog
    same = same and one.whole == other.whole and one.size_known is other.size_known and one.settings is other.settings
    if not same or (one.trouble is None) is not (other.trouble is None) or one.unmeasured is not other.unmeasured:
        return False
    return one.state is other.state or _placing_state(one.state) == _placing_state(other.state)


def _placing_state(state: ClusterState | None) -> tuple[object, ...] | None:
    return (
        (state.free_nodes, state.waiting_local, state.largest, state.largest_idle, state.walltime_limit)
        if state
        else None
    )


def _is_longer(asked: Duration | None, limit: Duration | None) -> bool:
    return asked is not None and limit is not None and asked > limit


def largest(state: ClusterState) -> int:
    """Return the largest component, in processors, that fits on the idle cluster."""
    return state.total if state.largest is None else min(state.total, state.largest)


def _sizes(known: Known, state: ClusterState, settles: Duration) -> dict[str, object]:
    """Return the changes that a measurement makes to the known sizes of a cluster.

    A batch system whose nodes are down, or have not reported yet, may show a part of them, or none. That size becomes
    the cluster's own only after it has settled.
    """
    size, at = (state.total, largest(state)), state.measured_at
    if known.whole == size and known.smaller_since is None and known.measured_since is not None:
        return {}
    first = at if known.measured_since is None else known.measured_since
    whole = known.whole if known.whole == size else _larger(known.whole, size)
    if whole == size:
        return {"whole": whole, "smaller_since": None, "measured_since": first}
    since = at if known.smaller_since is None else known.smaller_since
    smaller = size if known.smaller_since is None else _larger(known.smaller, size)
    if at - since >= settles:
        return {"whole": smaller, "smaller_since": None, "measured_since": first}
    return {"whole": whole, "smaller": smaller, "smaller_since": since, "measured_since": first}


def _larger(one: Size, other: Size) -> Size:
    return max(one[0], other[0]), max(one[1], other[1])


def _summary(
    now: Instant,
    known: Known,
    committed: int,
    backlog: int,
    scavenged: Scavenged,
    settles: Duration,
    walltime_limit: Duration | None,
) -> ClusterSummary:
    settings, state = known.settings, known.state
    trouble = known.trouble or (DRAINING if settings.draining else known.refused.trouble(now) or _staleness(now, known))
    if state is None:
        return ClusterSummary(
            name=settings.name, settings=settings, total=0, idle=0, committed=committed, backlog=backlog,
            trouble=trouble, state=None, size_known=False,
        )  # fmt: skip
    if scavenged.held or scavenged.freed:
        state = _without_sweeps(state, scavenged)
    since = known.measured_since
    return ClusterSummary(
        name=settings.name,
        settings=settings,
        total=state.total,
        idle=state.idle - committed if not trouble and state.idle > committed else 0,
        committed=committed,
        backlog=backlog,
        trouble=trouble,
        state=state,
        whole=known.whole if known.whole != (state.total, largest(state)) else None,
        size_known=since is not None and state.measured_at - since >= settles,
        walltime_limit=walltime_limit,
    )


def _without_sweeps(state: ClusterState, scavenged: Scavenged) -> ClusterState:
    """Return the measurement as if the sweeps had no Launchers there.

    A batch system that suspends Launchers for others may show their processors as idle. It then shows more in use and
    idle than there is, and that excess is idle already.
    """
    nodes = _left_after(state.idle + state.ours + state.others - state.total, scavenged.nodes)
    processors = sum(nodes)
    free = Counter(dict(state.free_nodes))
    if free or not state.idle:  # otherwise the measurement has no numbers of nodes
        free.update(nodes)
    return replace(
        state,
        idle=state.idle + processors,
        scavenged=processors_of(scavenged.held),
        free_nodes=tuple(sorted(free.items())),
        largest_idle=None if state.largest_idle is None else state.largest_idle + processors,
    )


def _left_after(processors: int, nodes: Iterable[tuple[int, int]]) -> list[int]:
    """Return the processors of each of the nodes, after `processors` were subtracted from the first ones."""
    left: list[int] = []
    for size in (size for size, count in nodes for _ in range(count)):
        if processors < size:
            left.append(size)
        processors = max(0, processors - size)
    return left


def _staleness(now: Instant, known: Known) -> Reason | None:
    age = now - known.state.measured_at if known.state else 0
    if age <= known.settings.max_age:
        return None
    message = f"its batch system last answered {format_duration(age)} ago."  # type: ignore[arg-type]
    return Reason("stale", "transient", message, "Nothing is placed there until it answers again.")


def _good_until(now: Instant, known: Known, summary: ClusterSummary) -> Instant:
    """Return the last instant for which the summary is true. The text of a stale one changes with every instant."""
    if known.trouble or known.state is None or known.settings.draining:
        return _FOR_EVER
    if summary.trouble is not None and summary.trouble.code == REFUSES:
        return Instant(known.refused.until - 1)
    return now if summary.trouble else Instant(known.state.measured_at + known.settings.max_age)


class PollUrgency:
    """The urgency that was last sent to each connected cluster."""

    def __init__(self) -> None:
        self._sent: dict[str, bool] = {}
        self._sent_for: tuple[bool, Collection[str], frozenset[str]] | None = None

    def forget(self, cluster: str) -> None:
        """Forget what was sent to the cluster: its KCM may be a new one, or it has left."""
        self._sent.pop(cluster, None)
        self._sent_for = None

    def changes(self, information: Information, waiting: bool, claimed: Collection[str]) -> list[WatchCluster]:
        """Return the commands for clusters whose urgency has changed.

        `waiting`: jobs wait for any cluster; otherwise only clusters in `claimed` are urgent.
        """
        sent_for = waiting, () if waiting else tuple(claimed), information.reachable
        if sent_for == self._sent_for:
            return []
        self._sent_for = sent_for
        changed = []
        for name, known in information.clusters.items():
            urgent = waiting or name in claimed
            if known.connected and self._sent.get(name) != urgent:
                self._sent[name] = urgent
                changed.append(WatchCluster(cluster=name, urgent=urgent))
        return changed
