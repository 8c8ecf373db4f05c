"""`fcondor`: Condor with flocking. A job manager with jobs left after one cluster's cycle moves to the next cluster."""

from dataclasses import dataclass, field

from koalapy.experiments.interop.architectures.simulation import Simulation
from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.tally import Kind
from koalapy.model.units import Duration, Instant


@dataclass(eq=False, slots=True)
class _JobManager:
    """The job manager of one user, or of one cluster.

    `usage` in processor-microseconds, as it was at `at`; it halves every half-life (Condor's decay).
    """

    user: str
    home: int
    idle: list[GridJob] = field(default_factory=list)
    visits: int = 0  # the number of clusters that it moved to, from its home
    running: int = 0  # processors
    usage: float = 0.0
    at: int = 0

    def count(self, now: Instant, half_life: Duration) -> None:
        """Update the usage until `now`.

        Use since `at` adds up while it decays: the sum is the integral of `running`, weighted by the decay of each
        moment.
        """
        left = 0.5 ** ((now - self.at) / half_life)
        self.usage = self.usage * left + self.running * half_life * (1 - left) * _ONE_BY_LN2
        self.at = now


_ONE_BY_LN2 = 1.4426950408889634


def fcondor(simulation: Simulation) -> None:
    """Run with users served at each cycle of a cluster by increasing past usage; each gets all jobs that fit.

    Jobs that do not fit are passed by those that do. Any job manager may use any cluster (section 5.4).
    """
    clusters, half_life = simulation.system.clusters, simulation.options.half_life
    managers: dict[str, _JobManager] = {}
    at_cluster: list[dict[str, _JobManager]] = [{} for _ in clusters]  # those that have idle jobs, by user
    places = {cluster: index for index, cluster in enumerate(clusters)}

    def place(manager: _JobManager) -> int:
        return (manager.home + manager.visits) % len(clusters)

    def owner(job: GridJob) -> str:
        return job.user if simulation.options.job_managers == "user" else job.home

    def arrived(job: GridJob) -> None:
        user = owner(job)
        manager = managers.get(user)
        if manager is None:
            manager = managers[user] = _JobManager(user, places[job.home])
        manager.idle.append(job)
        at_cluster[place(manager)][user] = manager

    def ended(job: GridJob, _: str) -> None:
        manager = managers[owner(job)]
        manager.count(simulation.now, half_life)
        manager.running -= job.processors

    def match(index: int) -> None:
        for manager in at_cluster[index].values():
            manager.count(simulation.now, half_life)
        for manager in sorted(at_cluster[index].values(), key=lambda each: (each.usage, each.user)):
            del at_cluster[index][manager.user]
            _serve(simulation, manager, clusters[index])
            manager.visits = manager.visits + 1 if manager.idle else 0
            if manager.idle:
                simulation.tally.messages[Kind.NOTIFY] += 1
                at_cluster[place(manager)][manager.user] = manager

    simulation.arrived, simulation.ended = arrived, ended
    for index in range(len(clusters)):
        simulation.each(simulation.options.matchmaking_interval, lambda index=index: match(index))  # type: ignore[misc]
    simulation.run()


def _serve(simulation: Simulation, manager: _JobManager, cluster: str) -> None:
    simulation.tally.messages[Kind.NEGOTIATE] += 2 * len(manager.idle)
    left = []
    for job in manager.idle:
        if job.processors <= simulation.free[cluster]:
            simulation.free[cluster] -= job.processors
            manager.running += job.processors
            simulation.start(job, cluster)
        else:
            left.append(job)
    manager.idle = left
