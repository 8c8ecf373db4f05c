"""DAS-2 with a batch of jobs, simulated to their end: the real koalad, KCMs and wrappers over simulated clusters.

No faults are injected. Durations are those of the simulated world (`cluster/batch_parameters.py`,
`koalad/cluster_link.py`, `cluster/wrapper.py`). OpenPBS, as on DAS-2, is polled every ten seconds; messages take 1 to
100 ms between koalad and a head node.
"""

from collections.abc import Sequence
from typing import NamedTuple

from koalapy.experiments.dcs.workload import PROCESSORS_PER_NODE, SYSTEMS, Case
from koalapy.model.cluster import ClusterSettings
from koalapy.model.identity import InstanceId
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.model.settings import Settings
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies.placement import PlacementPolicy, cluster_minimisation, worst_fit
from koalapy.policies.queueing import QueueingPolicy, fcfs, fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.cluster import SimCluster, cluster_plan_of
from koalapy.world.koalad.host import Installation, SimKoalad
from koalapy.world.program_log import ProgramLog
from koalapy.world.world import memory_store

SAMPLE = Duration(10 * SECOND)
_BATCH = "pbs"  # on every cluster of DAS-2
_BEFORE = MINUTE  # by then clusters are connected and measured, and other users have jobs
_PATIENCE = Duration(24 * HOUR)
_QUEUES: dict[str, QueueingPolicy] = {"fcfs": fcfs, "fpfs": fpfs}
_PLACEMENTS: dict[str, PlacementPolicy] = {"worst-fit": worst_fit, "cluster-minimisation": cluster_minimisation}


class Load(NamedTuple):
    """The parts of all processors that are taken: by our jobs, and by those of other users."""

    ours: float
    others: float


class Das2:
    """A simulated DAS-2. `others`: the part of each cluster that its other users want, on average."""

    def __init__(self, case: Case, others: float, seed: int) -> None:
        self.agenda = Agenda()
        nodes = SYSTEMS[case.system]
        self._settings = Settings(
            clusters=tuple(ClusterSettings(name=name, batch=_BATCH) for name in nodes),
            queue=case.queue,
            placement=case.placement,
        )
        program_log = ProgramLog()
        self._clusters = {
            each.name: self._cluster(each, nodes[each.name], others, seed, program_log)
            for each in self._settings.clusters
        }
        installation = Installation(
            settings=self._settings,
            policies=Policies(_PLACEMENTS[case.placement], _QUEUES[case.queue]),
            open_store=memory_store(InstanceId("dcs05")),
        )
        self._koalad = SimKoalad(self.agenda, seed, installation, self._clusters)

    def play(self, batch: Sequence[Request]) -> tuple[list[Job], list[Load]]:
        """Return the jobs as they ended, and the load at every sample from their submission to the last end."""
        self._koalad.start()
        self._go_on(_BEFORE)
        for request in batch:
            assert self._koalad.submit(request)
        loads, latest = [], self.agenda.now + _PATIENCE
        self._go_on(Duration(0))
        while self._waits() and self.agenda.now < latest:
            loads.append(self._load())
            self._go_on(SAMPLE)
        return self._koalad.store.jobs(ids=self._koalad.accepted), loads

    def _waits(self) -> bool:
        engine = self._koalad.engine
        assert engine is not None
        return bool(engine.records.jobs)

    def _load(self) -> Load:
        systems = [cluster.batch for cluster in self._clusters.values()]
        total = sum(batch.size for batch in systems)
        taken = total - sum(node.free for batch in systems for node in batch.nodes)
        ours = sum(
            processors
            for cluster in self._clusters.values()
            for job in cluster.batch.listed()
            if cluster.is_ours(job)
            for _, processors in job.nodes
        )
        return Load(ours / total, (taken - ours) / total)

    def _go_on(self, duration: Duration) -> None:
        until = Instant(self.agenda.now + duration)
        self.agenda.at(until, lambda: None)  # moves the clock to this instant even if nothing else happens
        self.agenda.run(until)

    def _cluster(
        self, cluster: ClusterSettings, nodes: int, others: float, seed: int, program_log: ProgramLog
    ) -> SimCluster:
        settings = self._settings
        plan = cluster_plan_of(
            cluster,
            nodes=nodes,
            processors_per_node=PROCESSORS_PER_NODE,
            load=others,
            orphan_timeout_s=settings.orphan_timeout / SECOND,
            grace_s=settings.grace / SECOND,
        )
        return SimCluster(self.agenda, seed, plan, cluster.name, program_log)
