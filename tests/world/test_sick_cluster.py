"""A batch system that refuses every job, beside a healthy one: no job fails, and the sick cluster is shown."""

import pytest
from refusal_words import ROWS, refusal

from koalapy.model.cluster import ClusterSettings
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.views.clusters import cluster_reports, cluster_troubles
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.world import World

SEED = 14  # the sick cluster is the larger one
JOBS = 20
EVERY = Duration(15 * SECOND)
SICK, HEALTHY = "sick", "well"
KINDS = sorted({(error.whose, error.code) for batch, words, *_ in ROWS for error in [refusal(batch, words)]})


class Grid:
    """A simulated grid with one sick cluster, on which every job would be placed first."""

    def __init__(self, words: str, *, healthy: bool = True) -> None:
        names = (SICK, HEALTHY) if healthy else (SICK,)
        clusters = tuple(ClusterSettings(name=name, batch="slurm") for name in names)
        self.world = World(SEED, settings=Settings(clusters=clusters))
        self.shell = self.world.clusters[SICK].shell
        self.shell.submit_faults.refusals = [words] * 10_000
        self.shown: set[str] = set()
        self.look(Duration(MINUTE))  # until both are measured

    @property
    def tries(self) -> int:
        """Number of submissions that the sick cluster has refused."""
        return 10_000 - len(self.shell.submit_faults.refusals)

    def submit(self, count: int, cluster: str | None = None) -> None:
        """Submit jobs one after another, and note what is shown of the clusters meanwhile."""
        program = Behaviour(runs=Duration(10 * SECOND))
        for _ in range(count):
            component = ComponentRequest(
                processors=1, executable=EXECUTABLE, arguments=arguments_of(program), cluster=cluster
            )
            assert self.world.koalad.submit(Request(name="work", components=(component,)))
            self.look(EVERY)

    def look(self, duration: Duration) -> None:
        until = Instant(self.world.agenda.now + duration)
        while self.world.agenda.now < until:
            self.world.run_for(Duration(5 * SECOND))
            engine = self.world.koalad.engine
            assert engine is not None
            troubles = cluster_troubles(cluster_reports(engine, self.world.koalad.now()))
            self.shown |= {each.partition(":")[0] for each in troubles if "refuses one job after another" in each}

    @property
    def states(self) -> list[JobState]:
        return [job.state for job in self.world.koalad.store.jobs()]


@pytest.mark.parametrize(("whose", "code"), KINDS, ids=[code for _, code in KINDS])
def test_no_job_fails_beside_a_healthy_cluster(whose: str, code: str) -> None:
    grid = Grid(f"{whose} {code}")
    grid.submit(JOBS)
    assert grid.world.settle(HOUR)
    assert grid.states == [JobState.DONE] * JOBS
    jobs = grid.world.koalad.store.jobs()
    assert {each.cluster for job in jobs for each in job.present} == {HEALTHY}
    assert [(job.submission_failures, job.completion_failures) for job in jobs] == [(0, 0)] * JOBS
    assert 0 < grid.tries <= JOBS
    own = whose == "request" or code == "submit_limit"
    assert grid.shown == (set() if own else {SICK})
    assert own or grid.tries < JOBS // 2  # jobs do not try it while it is left out


@pytest.mark.parametrize("words", ["transient batch_system_failing", "cluster unknown_words", "transient submit_limit"])
def test_a_cluster_that_refuses_all_for_some_minutes_loses_no_job(words: str) -> None:
    grid = Grid(words, healthy=False)
    grid.submit(6)
    grid.look(Duration(5 * MINUTE))
    assert grid.states == [JobState.WAITING] * 6
    assert grid.tries >= 6
    grid.shell.submit_faults.refusals.clear()
    assert grid.world.settle(HOUR)
    assert grid.states == [JobState.DONE] * 6


def test_a_job_that_is_refused_for_ever_fails_in_the_end_and_the_reason_has_all_of_it() -> None:
    grid = Grid("transient batch_system_failing", healthy=False)
    grid.submit(1)
    assert grid.world.settle(Duration(3 * HOUR))
    [job] = grid.world.koalad.store.jobs()
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert f"sick refused it {grid.tries} times: The batch system refused" in job.reason.message
    assert job.finished_at is not None
    assert job.finished_at - job.submitted_at > 30 * MINUTE
