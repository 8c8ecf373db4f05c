"""Promises about batch queues: other stores' jobs are not touched, no submit is doubled, no deadline is exceeded.

In a world without faults local users get the nodes of sweeps.
"""

import heapq
from collections.abc import Collection, Sequence

from koalapy_adapters.batch.protocol import QUEUED, RUNNING

from koalapy.chaos.violation import Promise, promise
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, Tag, attempt_of, is_tag
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.cluster import SimCluster
from koalapy.world.world import World

_LATE = Duration(2 * SECOND)  # until a wrapper begins to leave, which may take longer


class Queues:
    """The checker of batch queues. `passes` is called with every event."""

    def __init__(self, instance: InstanceId) -> None:
        self._instance = instance
        self._looked: dict[tuple[object, Tag], None] = {}  # since the last submit
        self._waiting: dict[tuple[Tag, str], Instant] = {}  # wrappers at their barriers: their deadlines
        self._deadlines: list[tuple[Instant, Tag, str]] = []

    def touched(self, cluster: str, verb: str, batch_id: str, name: str) -> None:
        """Check that a batch job that a KCM has changed is koalapy's."""
        ours = is_tag(name) and attempt_of(Tag(name))[0] == self._instance
        promise(ours, Promise.OTHERS, f"{verb} of {batch_id} on {cluster}, which is {name}")

    # ---- submits

    def looking(self, kcm: object, tag: Tag) -> None:
        """A KCM looks whether the tag is in the queue."""
        self._looked[kcm, tag] = None

    def submitting(self, kcm: object, tag: Tag, listed: Sequence[str]) -> None:
        """Check a submit of a tag that is in the queue as `listed`: the KCM must have looked before."""
        looked = (kcm, tag) in self._looked
        promise(looked or not listed, Promise.DOUBT, tag, "is submitted though it is there as", *listed)
        self._looked.pop((kcm, tag), None)

    # ---- barriers

    def reached_barrier(self, tag: Tag, batch_id: str, deadline: Instant) -> None:
        self._waiting[tag, batch_id] = deadline
        heapq.heappush(self._deadlines, (deadline, tag, batch_id))

    def left_barrier(self, tag: Tag, batch_id: str) -> None:
        """The wrapper was released, or has ended."""
        self._waiting.pop((tag, batch_id), None)

    def passes(self, now: Instant) -> None:
        while self._deadlines and self._deadlines[0][0] + _LATE < now:
            deadline, tag, batch_id = heapq.heappop(self._deadlines)
            waits = self._waiting.get((tag, batch_id)) == deadline
            promise(not waits, Promise.DEADLINE, tag, "is still at its barrier in", batch_id)


PATIENCE = Duration(2 * MINUTE)  # for a reconnect, a poll, programs' grace, and the batch system


class LocalUsers:
    """The checker for local jobs. `look` is called repeatedly once all faults have ended."""

    def __init__(self, world: World, given_up: Collection[AttemptId]) -> None:
        """`given_up`: attempts on clusters that have left: no koalad ends them."""
        self._world, self._given_up = world, given_up
        self._seen: dict[SimBatchJob, Instant] = {}  # since when a local job waits, or a Launcher runs

    def look(self) -> None:
        now, seen = self._world.agenda.now, self._seen
        self._seen = {}
        for cluster in self._world.clusters.values():
            waiting, launchers = _waiting(cluster), self._launchers(cluster)
            self._seen |= {job: seen.get(job, now) for job in (*waiting, *launchers)}
            held = sum(processors for job in launchers if self._lasts(job) for _, processors in job.nodes)
            free = sum(node.free for node in cluster.batch.nodes)
            for job in waiting:
                kept = held and self._lasts(job) and job.processors <= free + held
                promise(
                    not kept, Promise.GIVEN_BACK, job.name, "waits on", cluster.name, "for", held, "that sweeps hold"
                )

    def _launchers(self, cluster: SimCluster) -> list[SimBatchJob]:
        running = [job for job in cluster.batch.listed() if job.state == RUNNING]
        ours = [job for job in running if _launcher_of(job.name) == self._world.instance]
        return [job for job in ours if attempt_of(Tag(job.name))[1] not in self._given_up]

    def _lasts(self, job: SimBatchJob) -> bool:
        return self._world.agenda.now - self._seen[job] > PATIENCE


def _waiting(cluster: SimCluster) -> list[SimBatchJob]:
    """Return the waiting jobs of other users. Launchers of another store are not counted: nobody yields to them."""
    queued = [job for job in cluster.batch.listed() if job.state == QUEUED and not job.stuck]
    return [job for job in queued if not cluster.is_ours(job) and _launcher_of(job.name) is None]


def _launcher_of(name: str) -> InstanceId | None:
    """Return the store whose Launcher has this name; None for another batch job."""
    instance, attempt = attempt_of(Tag(name)) if is_tag(name) else (None, None)
    return instance if attempt is not None and attempt.job >= FIRST_LAUNCHER else None
