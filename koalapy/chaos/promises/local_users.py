"""The promise to local users: in a healed world they get the nodes of sweeps."""

from collections.abc import Collection

from koalapy_adapters.batch.protocol import QUEUED, RUNNING

from koalapy.chaos.violation import Promise, promise
from koalapy.model.identity import FIRST_PILOT, AttemptId, InstanceId, Tag, attempt_of, is_tag
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.cluster import SimCluster
from koalapy.world.world import World

PATIENCE = Duration(2 * MINUTE)  # for a reconnect, a poll, programs' grace, and the batch system


class LocalUsers:
    """The checker for local jobs. `look` is called repeatedly in a healed world."""

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
    return instance if attempt is not None and attempt.job >= FIRST_PILOT else None
