"""A whole simulated grid from one seed: clusters of mixed kinds, koalad, and the agenda of all events."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from random import Random

from koalapy.config.hours import parse_hours
from koalapy.model.cluster import ClusterSettings, Scavenge
from koalapy.model.events import CancelRequested, ReleaseRequested
from koalapy.model.identity import InstanceId
from koalapy.model.job import Job
from koalapy.model.pilot import job_of_pilot
from koalapy.model.settings import BY_HAND, DYNAMIC, Preempt, PreemptBy, Race, Scavenging, Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies.admission import AdmissionPolicy, by_hand, dynamic
from koalapy.policies.fairshare import EQUIPARTITION_ALL, EQUIPARTITION_PERSITE
from koalapy.policies.placement import PlacementPolicy, best_fit, cluster_minimisation, worst_fit
from koalapy.policies.queueing import QueueingPolicy, fcfs, fpfs
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.shares import FairShare
from koalapy.scheduler.schedule import Policies
from koalapy.store.contract import Store
from koalapy.store.memory import MemoryStore
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.cluster import ClusterPlan, SimCluster
from koalapy.world.koalad.host import Installation, SimKoalad
from koalapy.world.koalad.matchmaker import NOT_BETA
from koalapy.world.pilots import SimPilots
from koalapy.world.program_log import ProgramLog
from koalapy.world.random_requests import Habits
from koalapy.world.random_streams import stream
from koalapy.world.streams import StreamLog

INSTANCE = InstanceId("s1m00")
NAMES = ("alpha", "beta", "gamma", "delta")
FILES = 0.15  # of all clusters have `relay: files`
_KINDS = ("slurm", "slurm", "sge", "sge", "pbs", "local")
_PLACEMENTS: dict[str, PlacementPolicy] = {
    "worst-fit": worst_fit,
    "cluster-minimisation": cluster_minimisation,
    "best-fit": best_fit,
}
_SHARES: dict[str, FairShare] = {
    "equipartition-persite": EQUIPARTITION_PERSITE,
    "equipartition-all": EQUIPARTITION_ALL,
}
_ADMISSIONS: dict[str, AdmissionPolicy] = {BY_HAND: by_hand, DYNAMIC: dynamic}
_PREEMPTING = 0.8  # of all grids let jobs of priority 0 preempt others
_SUSPENDING = 0.5  # of these suspend jobs where that makes room
_RACING = 1 / 3  # of all grids let components wait in several queues
_FREEING = 0.7  # of the clusters give the processors of suspended jobs to others
_LIMITED = 0.3  # probability of each limit on sweeps
_HOURS = ("*/2 * * * *", "0-9,20-29,40-49 * * * *", "0-44 * * * *")  # runs last minutes
_QUEUES: dict[str, QueueingPolicy] = {"fcfs": fcfs, "fpfs": fpfs}


class World:
    """A world before its first event, which is koalad's start. The same seed and the same calls give the same world."""

    def __init__(
        self,
        seed: int,
        open_store: Callable[[], Store] | None = None,
        settings: Settings | None = None,
        agenda: Agenda | None = None,
    ) -> None:
        """`agenda`: that of several worlds together."""
        rng = stream(seed, "world")
        self.seed = seed
        self.agenda = agenda or Agenda()
        self.program_log, self.streams = ProgramLog(), StreamLog(self.agenda)
        self._on_built: list[Callable[[SimCluster], None]] = []
        self.habits = Habits()
        scavenging = draw_scavenging(
            stream(seed, "world/sweeps")
        )  # a separate stream, so that other draws stay the same
        drawn = replace(draw_settings(rng), scavenging=scavenging) if settings is None else settings
        drawn = with_limits(stream(seed, "world/limits"), drawn) if settings is None else settings
        if settings is None:
            drawn = replace(drawn, preempt=draw_preempt(stream(seed, "world/preempt")))
            drawn = with_suspending(stream(seed, "world/suspend"), drawn)
            wait = stream(seed, "world/hold").choice((0, 20, 60, 300))
            drawn = replace(drawn, barrier_wait=Duration(wait * SECOND))
            drawn = replace(drawn, race=draw_race(stream(seed, "world/race")))
        self.settings = replace(drawn, settles=Duration(0))  # a run does not last for a day
        self.clusters = {each.name: self._cluster(rng, each) for each in self.settings.clusters}
        policies = Policies(_PLACEMENTS[self.settings.placement], _QUEUES[self.settings.queue])
        installation = Installation(
            settings=self.settings,
            policies=policies,
            open_store=open_store or memory_store(),
            sweep_policies=ScavengingPolicies(
                fairshare=_SHARES[self.settings.scavenging.policy],
                admission=_ADMISSIONS[self.settings.scavenging.admission],
            ),
        )
        self.koalad = SimKoalad(self.agenda, seed, installation, self.clusters)
        self.instance = self.koalad.store.instance
        self.pilots = SimPilots(self)
        self.agenda.after(Duration(0), self.koalad.start)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each cluster of the present grid, in processors."""
        names = self.koalad.grid.names
        return {name: cluster.batch.size for name, cluster in self.clusters.items() if name in names}

    def run(self, until: Instant) -> None:
        """Run all events until an instant."""
        self.agenda.run(until)

    def run_for(self, duration: Duration) -> None:
        self.run(Instant(self.agenda.now + duration))

    # ---- clusters that are no part of the grid yet

    def build(self, name: str) -> SimCluster:
        """Return the cluster of this name. It is built at the first call, with random settings."""
        if name not in self.clusters:
            rng = stream(self.seed, f"{name}/settings")
            self.clusters[name] = cluster = self._cluster(rng, draw_cluster(rng, name))
            for call in self._on_built:
                call(cluster)
        return self.clusters[name]

    def add(self, plan: ClusterPlan) -> SimCluster:
        """Build a cluster that is no part of the grid yet."""
        name = plan.settings.name
        self.clusters[name] = cluster = SimCluster(self.agenda, self.seed, plan, name, self.program_log, self.streams)
        for call in self._on_built:
            call(cluster)
        return cluster

    def on_built(self, call: Callable[[SimCluster], None]) -> None:
        """Call with each cluster, also with those that are built later."""
        self._on_built.append(call)
        for cluster in self.clusters.values():
            call(cluster)

    # ---- the end of faults

    def end_faults(self) -> None:
        """End all faults: disks are free, networks work, and koalad runs."""
        self.koalad.crash_point.left = None
        self.koalad.disk_full, self.koalad.commits_to_fail = False, 0
        self.koalad.recipients.healthy = True
        self.koalad.wake()
        for cluster in self.clusters.values():
            cluster.mend()
        self.koalad.start()
        for name in self.clusters:
            self.koalad.log_in(name)

    def quiescent(self) -> bool:
        """Return whether no job, stream, message under way or batch job of koalapy is left."""
        pilots = [name for name in self.koalad.grid.names if job_of_pilot(name) is not None]
        clusters = all(cluster.quiescent for cluster in self.clusters.values())
        return self.koalad.quiescent and not pilots and clusters and self.streams.settled

    def settle(self, patience: Duration) -> bool:
        """Run until the world is quiescent, and release held jobs. Returns whether it was in time."""
        latest = self.agenda.now + patience
        while not self.quiescent():
            if self.agenda.now > latest:
                return False
            self.release_held()
            self.run_for(Duration(10 * SECOND))
        return True

    def release_held(self) -> None:
        """Release held jobs, and cancel those for which the suitable clusters left in the grid are too small."""
        if (engine := self.koalad.engine) is None:
            return
        sizes = {
            each.name: (each.network, self.sizes[each.name])
            for each in engine.settings.clusters
            if each.name in self.sizes
        }
        for work in engine.records.all_work():
            if work.state is JobState.HELD:
                self.koalad.request(ReleaseRequested(work.id))
            elif work.state is JobState.WAITING and isinstance(work, Job) and _suits_nowhere(work, sizes):
                self.koalad.request(CancelRequested(work.id))

    def resume_clusters(self) -> None:
        """Resume each cluster that is drained."""
        for name in list(self.koalad.grid.draining):
            self.koalad.grid.drain(name, False)

    def _cluster(self, rng: Random, settings: ClusterSettings) -> SimCluster:
        by_files = (
            stream(self.seed, f"{settings.name}/relay").random() < FILES
        )  # a separate stream, so that other draws stay the same
        plan = replace(draw_plan(rng, self.settings, settings), relay="files" if by_files else "tcp")
        return SimCluster(self.agenda, self.seed, plan, settings.name, self.program_log, self.streams)


def _suits_nowhere(job: Job, sizes: Mapping[str, tuple[str, int]]) -> bool:
    """Return whether a job not for beta fits on no other clusters. `sizes`: the network and processors of each."""
    needed = [each for each in job.request.components if not each.optional]
    if all(each.requirements != NOT_BETA for each in needed):
        return False
    others = [name for name in sizes if name != "beta"]
    return not any(
        all(
            sum(each.processors for each, at in zip(needed, chosen, strict=True) if at == name) <= sizes[name][1]
            for name in others
        )
        and (not job.request.communication or len({sizes[name][0] for name in chosen}) == 1)
        for chosen in product(others, repeat=len(needed))
    )


def memory_store(instance: InstanceId = INSTANCE) -> Callable[[], Store]:
    """Return a function that opens one store in memory, again after each kill."""
    opened: list[MemoryStore] = []

    def open_() -> Store:
        opened.append(opened.pop().reopened() if opened else MemoryStore(instance))
        return opened[-1]

    return open_


# ---- random grids


def draw_settings(rng: Random) -> Settings:
    """Draw settings with short time-outs, so that much happens in few events."""
    return Settings(
        clusters=tuple(draw_cluster(rng, name) for name in NAMES[: rng.choice((2, 3, 3, 4))]),
        queue=rng.choice(("fcfs", "fpfs", "fpfs")),
        placement=rng.choice(("worst-fit", "worst-fit", "cluster-minimisation", "best-fit")),
        max_overtakes=rng.choice((0, 1, 2, 20)),
        claim_timeout=Duration(rng.choice((40, 60)) * SECOND),
        barrier_timeout=Duration(rng.choice((20, 40, 60)) * SECOND),
        max_submission_failures=rng.choice((1, 2, 3)),
        max_completion_failures=rng.choice((0, 1, 3)),
        queue_after=Duration(rng.choice((0, 30, 120)) * SECOND),
        orphan_timeout=Duration(2 * MINUTE),
    )


def draw_race(rng: Random) -> Race:
    """Draw in how many queues a component may wait at once."""
    most = rng.choice((2, 3, 4)) if rng.random() < _RACING else 1
    return Race(most=most, processors=rng.choice((None, 2, 1_000)))


def draw_preempt(rng: Random) -> Preempt:
    how = PreemptBy.VACATE if rng.random() < _PREEMPTING else PreemptBy.OFF
    return Preempt(how=how, lowest=rng.choice((5, 10)))


def with_suspending(rng: Random, settings: Settings) -> Settings:
    """Draw whether jobs are suspended, and the clusters where that makes room, from a stream of their own."""
    clusters = [replace(each, frees_when_suspended=rng.random() < _FREEING) for each in settings.clusters]
    suspends = settings.preempt.how is PreemptBy.VACATE and rng.random() < _SUSPENDING
    preempt = replace(settings.preempt, how=PreemptBy.SUSPEND) if suspends else settings.preempt
    return replace(settings, clusters=tuple(clusters), preempt=preempt)


def draw_scavenging(rng: Random) -> Scavenging:
    return Scavenging(
        policy=rng.choice(list(_SHARES)),
        walltime=rng.choice((Duration(3 * MINUTE), HOUR)),
        max_runners=rng.choice((None, None, 1, 2)),
    )


def with_limits(rng: Random, settings: Settings) -> Settings:
    """Draw each cluster's limits on sweeps, and how sweeps are admitted, from a stream of their own."""
    rules = settings.scavenging
    if rng.random() < _LIMITED:
        rules = replace(rules, admission=DYNAMIC, nodes_per_runner=rng.choice((1, 2, 4)))
    clusters = tuple(replace(each, scavenge=_draw_scavenge(rng)) for each in settings.clusters)
    if all(each.scavenge.off for each in clusters):
        clusters = (replace(clusters[0], scavenge=Scavenge()), *clusters[1:])
    return replace(settings, scavenging=rules, clusters=clusters)


def _draw_scavenge(rng: Random) -> Scavenge:
    return Scavenge(
        off=rng.random() < _LIMITED / 3,
        idle_share=rng.choice((0.25, 0.5, 0.75)) if rng.random() < _LIMITED else 0.0,
        max_nodes=rng.choice((1, 2)) if rng.random() < _LIMITED else None,
        hours=parse_hours(rng.choice(_HOURS)) if rng.random() < _LIMITED else None,
    )


def draw_cluster(rng: Random, name: str) -> ClusterSettings:
    exclusive = rng.random() < 0.2
    return ClusterSettings(
        name=name,
        batch=rng.choice(_KINDS),
        network=rng.choice(("default", "default", "default", "other")),
        processors_per_node=4 if exclusive else None,
        exclusive=exclusive,
        backlog=rng.choice((None, None, 2, 20)),
    )


def draw_plan(rng: Random, settings: Settings, cluster: ClusterSettings) -> ClusterPlan:
    return ClusterPlan(
        settings=cluster,
        nodes=rng.choice((2, 3, 4)),
        processors_per_node=cluster.processors_per_node or rng.choice((2, 4)),
        load=rng.choice((0.0, 0.0, 0.2, 0.5)),
        reruns_lost=rng.choice((0.0, 0.5)),
        poll_s=cluster.poll / SECOND,
        orphan_timeout_s=settings.orphan_timeout / SECOND,
        grace_s=settings.grace / SECOND,
    )
