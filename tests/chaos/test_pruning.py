"""koalad and KCMs killed at every step of pruning: nothing of pruned jobs is left, and no other job is touched."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from engine_play import present

from koalapy.chaos.promises.watch import Watch
from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import PruneRequested
from koalapy.model.identity import JobId, tag_of
from koalapy.model.job import Job
from koalapy.model.parameters import Axis, Source, Space
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.world import World

SETTINGS = Settings(
    clusters=(ClusterSettings(name="alpha", batch="slurm"), ClusterSettings(name="beta", batch="sge")),
    orphan_timeout=Duration(2 * MINUTE),
)
LOOK = Duration(2 * SECOND)
KEEP = Duration(20 * SECOND)
YEAR = Duration(365 * 24 * HOUR)


def component(cluster: str | None, runs: Duration) -> ComponentRequest:
    does = arguments_of(Behaviour(runs=runs))
    return ComponentRequest(
        processors=1, executable=EXECUTABLE, arguments=does, cluster=cluster, walltime=Duration(50 * MINUTE)
    )


SHORT, LONG = Duration(3 * SECOND), Duration(40 * MINUTE)
AXIS = Axis(sources=(Source(names=("x",), loop=("1", "5", "1")),), count=5)
OLD = (
    Request(name="both", components=(component("alpha", SHORT), component("beta", SHORT))),
    Request(name="one", components=(component(None, SHORT),)),
    Request(name="sweep", components=(component(None, SHORT),), parameters=Space(axes=(AXIS,))),
)
LIVING = Request(name="living", components=(component("alpha", LONG),))


def prune(world: World, records: bool) -> bool:
    """Request a prune as maintenance does, pilots first; start a dead koalad again. Returns False once done."""
    koalad = world.koalad
    koalad.start()
    if not koalad.alive:
        return True
    before = Instant(koalad.now() - KEEP)
    jobs = tuple(koalad.store.prunable(before, 3, JobId(0), records))
    pilots = tuple(koalad.store.prunable_launchers(before, 3, JobId(0), records))
    koalad.request(PruneRequested(work=jobs, launchers=pilots, before=before, records=records))
    return bool(jobs or pilots)


def aged_world() -> tuple[World, Watch]:
    """A world whose first jobs ended before the retention time, and one runs. The watch checks every commit."""
    world = World(11, settings=SETTINGS)
    watch = Watch(world, lambda line: None)
    world.run_for(Duration(10 * SECOND))
    for request in OLD:
        world.koalad.submit(request, key=request.name)
    assert world.settle(HOUR)
    world.run_for(KEEP)
    world.koalad.submit(LIVING, key=LIVING.name)
    world.run_for(Duration(20 * SECOND))
    watch.check()
    return world, watch


def pruned(disturb: Callable[[World], None], records: bool = True) -> World:
    world, watch = aged_world()
    disturb(world)
    latest = world.agenda.now + 30 * MINUTE
    while prune(world, records):
        assert world.agenda.now < latest, world.koalad.store.jobs()
        world.run_for(LOOK)
        watch.check()
    return world


def directories(world: World) -> list[tuple[str, str]]:
    """The attempts' directories: cluster and name of each."""
    return [
        (name, path.rpartition("/")[2])
        for name, cluster in world.clusters.items()
        for path in cluster.shared.directories
        if path.count("/") == 3 and path.rpartition("/")[2].startswith(f"k{world.instance}")
    ]


def living_job(world: World) -> Job:
    (job,) = [job for job in world.koalad.store.jobs() if job.request.name == LIVING.name]
    return job


def only_the_living_job_is_left(world: World) -> bool:
    job, store = living_job(world), world.koalad.store
    tag = tag_of(world.instance, present(job).id)
    others = [each for each in store.jobs() if each.id != job.id]
    sweeps = [*store.sweeps(), *store.launchers_of(JobId(3))]
    story = [line for number in range(1, job.id) for line in store.history(JobId(number))]
    records = [*others, *sweeps, *story, *store.results(JobId(3))]
    return not records and directories(world) == [("alpha", tag)]


class Steps(NamedTuple):
    """The numbers of koalad's steps and of each KCM's actions in a prune."""

    koalad: int
    kcm: dict[str, int]


@pytest.fixture(scope="module")
def steps() -> Steps:
    before, after = aged_world()[0], pruned(lambda world: None)
    actions = {
        name: cluster.environment.kcm_crash_point.steps - before.clusters[name].environment.kcm_crash_point.steps
        for name, cluster in after.clusters.items()
    }
    return Steps(after.koalad.crash_point.steps - before.koalad.crash_point.steps, actions)


def test_only_final_jobs_are_pruned() -> None:
    world = pruned(lambda world: None)
    assert only_the_living_job_is_left(world)
    assert world.settle(HOUR)


def test_pruning_output_keeps_the_records() -> None:
    world = pruned(lambda world: None, records=False)
    assert len(directories(world)) == 1
    assert [each.id for each in world.koalad.store.jobs()] == [1, 2, 4]
    assert [each.id for each in world.koalad.store.sweeps()] == [3]
    assert any(world.koalad.store.results(JobId(3)))


@pytest.mark.parametrize("lossy", [False, True], ids=["its messages arrive", "its messages are lost"])
def test_a_koalad_killed_at_any_step_prunes_the_same(lossy: bool, steps: Steps) -> None:
    assert steps.koalad > 15
    for step in range(1, steps.koalad + 1):

        def kill(world: World, step: int = step) -> None:
            world.koalad.lossy, world.koalad.crash_point.left = lossy, step

        world = pruned(kill)
        assert only_the_living_job_is_left(world), step


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_kcm_killed_at_any_action_prunes_the_same(name: str, steps: Steps) -> None:
    assert steps.kcm[name] > 5
    for step in range(1, steps.kcm[name] + 1):

        def kill(world: World, step: int = step) -> None:
            world.clusters[name].environment.kcm_crash_point.left = step

        world = pruned(kill)
        assert only_the_living_job_is_left(world), step


@pytest.mark.parametrize("ahead", [YEAR, Duration(-YEAR)], ids=["ahead", "back"])
def test_a_clock_jump_of_a_year_prunes_no_active_job(ahead: Duration) -> None:
    world, watch = aged_world()
    world.koalad.kill()
    world.koalad.jump(ahead)
    for _ in range(20):
        prune(world, True)
        world.run_for(LOOK)
        watch.check()
    job = living_job(world)
    assert not job.state.final
    assert ("alpha", tag_of(world.instance, present(job).id)) in directories(world)
    assert world.settle(HOUR)
