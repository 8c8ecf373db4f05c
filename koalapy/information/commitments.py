"""The commitments: the processors of attempts on each cluster, updated with every change of an attempt."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.identity import AttemptId, InstanceId, Tag, tag_of
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest


@dataclass(frozen=True, slots=True)
class Scavenged:
    """The processors of sweeps' Launchers on one cluster.

    `coming`: claimed, and not yet shown as allocated. `nodes`: pairs (processors per node, nodes) that the batch system
    shows as theirs: `held` by live Launchers, and `freed` by those that ended since the last measurement.
    """

    coming: int = 0
    held: tuple[tuple[int, int], ...] = ()
    freed: tuple[tuple[int, int], ...] = ()

    @property
    def nodes(self) -> tuple[tuple[int, int], ...]:
        return (*self.held, *self.freed)

    @property
    def processors(self) -> int:
        return processors_of(self.nodes)


# Attempts that are suspended for a job, and the attempts of that job.
Pair = tuple[Collection[AttemptId], Collection[AttemptId]]


def processors_of(nodes: Iterable[tuple[int, int]]) -> int:
    """Return the sum of processors over pairs (processors per node, nodes)."""
    return sum(size * count for size, count in nodes)


class Commitments:
    """An index of the attempts: each one counts from its claim until it is cleaned up."""

    def __init__(self, instance: InstanceId, clusters: Iterable[ClusterSettings]) -> None:
        self._instance = instance
        self._clusters = {settings.name: _ClusterCommitments(settings) for settings in clusters}
        self._pairs: Mapping[str, Collection[Pair]] = {}
        self.dirty: dict[str, None] = {}  # clusters whose numbers may have changed since this was last cleared

    def on(self, cluster: str) -> tuple[int, int]:
        """Return the committed processors of a cluster, and the backlog of koalapy's jobs there.

        Processors are committed if the batch system does not show them as taken yet. The backlog is that of batch jobs
        that the batch system lists as pending. Patient jobs that it does not list yet are included. Processors of
        sweeps are not committed: a sweep gives them up for any other job. A suspended attempt keeps its processors
        committed, less those that the job has for which it is suspended.
        """
        found = self._clusters[cluster]
        pairs = self._pairs.get(cluster)
        shared = sum([found.shared(*map(self._tags, pair)) for pair in pairs]) if pairs else 0
        return found.committed - shared, found.backlog

    def pair(self, pairs: Mapping[str, Collection[Pair]]) -> None:
        """Replace the suspended attempts on each cluster, each with those of the job that has their processors."""
        if pairs != self._pairs:
            self.dirty |= dict.fromkeys(name for name in (*self._pairs, *pairs) if name in self._clusters)
            self._pairs = pairs

    def _tags(self, attempts: Iterable[AttemptId]) -> list[Tag]:
        return [tag_of(self._instance, each) for each in attempts]

    def scavenged_on(self, cluster: str) -> Scavenged:
        """Return the processors of sweeps' Launchers on the cluster."""
        return self._clusters[cluster].scavenged

    def ended_on(self, cluster: str) -> int:
        """Return the processors of jobs' attempts that ended since the last measurement, which shows them as taken."""
        return sum(self._clusters[cluster].ended.values())

    def join(self, settings: ClusterSettings) -> None:
        """Count the attempts of a cluster by these settings from now on. `began` enters those that are there already.

        The batch system's last measurement is forgotten.
        """
        self._clusters[settings.name] = _ClusterCommitments(settings)
        self.dirty[settings.name] = None

    def leave(self, cluster: str) -> None:
        """Drop a cluster with all its attempts."""
        del self._clusters[cluster]
        self.dirty.pop(cluster, None)

    def measured(self, cluster: str, state: ClusterState | None) -> None:
        """Take over the newest measurement of a cluster; None forgets the last one."""
        self._clusters[cluster].measured(state)
        self.dirty[cluster] = None

    def began(self, job: Job | None, attempt: Attempt) -> None:
        cluster = self._clusters.get(attempt.cluster)
        if cluster is None:
            return  # the grid file does not contain the cluster any more
        taken = processors_taken(attempt.request, cluster.settings)
        patient = job is None or job.patient
        entry = taken, attempt.owner_kind is OwnerKind.SWEEP, patient
        cluster.add(tag_of(self._instance, attempt.id), entry)
        self.dirty[attempt.cluster] = None

    def let_go(self, attempt: Attempt) -> None:
        cluster = self._clusters.get(attempt.cluster)
        if cluster is not None:
            cluster.remove(tag_of(self._instance, attempt.id), attempt.cleaned_up)
            self.dirty[attempt.cluster] = None


# processors taken; whether the attempt is a Launcher; whether its job entered batch queues (patient)
_Entry = tuple[int, bool, bool]
_NOTHING = Scavenged()
_NO_TAGS: frozenset[Tag] = frozenset()


class _ClusterCommitments:
    """The live attempts of one cluster, and the tags that its batch system listed in the last measurement."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.committed = self.backlog = 0
        self._coming = 0
        self._held: Counter[int] = Counter()
        self._freed: dict[Tag, int] = {}
        self.ended: dict[Tag, int] = {}
        self._entries: dict[Tag, _Entry] = {}
        self._shown: frozenset[Tag] = frozenset()
        self._pending: frozenset[Tag] = frozenset()

    @property
    def scavenged(self) -> Scavenged:
        if not (self._coming or self._held or self._freed):
            return _NOTHING
        return Scavenged(self._coming, _sorted(self._held), _sorted(Counter(self._freed.values())))

    def add(self, tag: Tag, entry: _Entry) -> None:
        self._entries[tag] = entry
        self._count(tag, entry, 1)

    def remove(self, tag: Tag, cleaned_up: bool) -> None:
        entry = self._entries.pop(tag)
        self._count(tag, entry, -1)
        taken, is_pilot, _ = entry
        if tag in self._shown:
            if is_pilot:
                self._freed[tag] = taken
            elif cleaned_up:
                self.ended[tag] = taken

    def shared(self, suspended: Collection[Tag], others: Collection[Tag]) -> int:
        """Return the processors that are counted twice, for suspended attempts and for those that have theirs."""
        taken = [sum([self._entries[tag][0] for tag in tags if tag in self._entries]) for tags in (suspended, others)]
        coming = [tag for tag in (*suspended, *others) if tag in self._entries and tag not in self._shown]
        return min(*taken, sum([self._entries[tag][0] for tag in coming]))

    def measured(self, state: ClusterState | None) -> None:
        allocated = frozenset(state.allocated) if state else _NO_TAGS
        pending = frozenset(state.pending) if state and state.pending else _NO_TAGS
        if self.ended:
            self.ended = {tag: taken for tag, taken in self.ended.items() if tag in allocated}
        turned = [tag for tag in (allocated ^ self._shown) | (pending ^ self._pending) if tag in self._entries]
        if not turned and not self._freed:
            self._shown, self._pending = allocated, pending
            return  # the sums do not change
        for tag in turned:
            self._count(tag, self._entries[tag], -1)
        self._shown, self._pending = allocated, pending
        if self._freed:
            self._freed = {tag: taken for tag, taken in self._freed.items() if tag in self._shown}
        for tag in turned:
            self._count(tag, self._entries[tag], 1)

    def _count(self, tag: Tag, entry: _Entry, sign: int) -> None:
        taken, is_pilot, patient = entry
        if is_pilot:
            self._count_launcher(tag, taken, sign)
            return
        if tag not in self._shown:
            self.committed += sign * taken
        if tag in self._pending or (patient and tag not in self._shown):
            self.backlog += sign * taken

    def _count_launcher(self, tag: Tag, taken: int, sign: int) -> None:
        if tag not in self._shown:
            self._coming += sign * taken
        elif self._held[taken] + sign:
            self._held[taken] += sign
        else:
            del self._held[taken]


def _sorted(nodes: Counter[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(nodes.items()))


def processors_taken(component: ComponentRequest, cluster: ClusterSettings) -> int:
    """Return the processors that a component takes on a cluster: whole nodes if its allocation is exclusive."""
    size = cluster.processors_per_node
    if not size or not (component.exclusive or cluster.exclusive):
        return component.processors
    per_node = min(component.processors_per_node or size, size)
    return -(-component.processors // per_node) * size
