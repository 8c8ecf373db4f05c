"""A simulated koalad whose grid changes: the steps, koalad killed between them, and clusters that come back."""

from dataclasses import replace

import pytest
from engine_play import present

from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import CancelRequested
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request, RetryOn
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.world import World

SETTINGS = Settings(
    clusters=(ClusterSettings(name="alpha", batch="slurm"), ClusterSettings(name="beta", batch="sge")),
    max_completion_failures=1,
    orphan_timeout=Duration(2 * MINUTE),
)


@pytest.fixture
def world() -> World:
    world = World(3, settings=SETTINGS)
    world.run_for(MINUTE)
    return world


def submit(world: World, cluster: str | None = None, runs: int = 60, **fields: object) -> Job:
    component = ComponentRequest(
        processors=1,
        executable=EXECUTABLE,
        arguments=arguments_of(Behaviour(runs=Duration(runs * SECOND))),
        cluster=cluster,
        walltime=Duration(5 * MINUTE),
    )
    assert world.koalad.submit(Request(name="job", components=(component,), **fields))  # type: ignore[arg-type]
    world.run_for(Duration(30 * SECOND))
    return job(world, len(world.koalad.accepted) - 1)


def job(world: World, index: int) -> Job:
    found = world.koalad.store.job(world.koalad.accepted[index])
    assert found is not None
    return found


def names(world: World) -> list[str]:
    """The clusters of the grid, of koalad's engine and of its links, which are the same."""
    koalad = world.koalad
    assert koalad.engine is not None
    assert koalad.process is not None
    found = sorted(koalad.grid.names)
    assert sorted(koalad.engine.core.information.clusters) == sorted(koalad.process.links) == found
    return found


def test_jobs_run_on_a_cluster_that_is_added_and_it_is_kept_over_a_restart(world: World) -> None:
    world.koalad.grid.add(world.build("epsilon").plan.settings)
    world.run_for(MINUTE)
    assert names(world) == ["alpha", "beta", "epsilon"]
    assert submit(world, "epsilon").state is JobState.RUNNING
    world.koalad.kill()
    world.koalad.start()
    world.run_for(Duration(3 * MINUTE))
    assert names(world) == ["alpha", "beta", "epsilon"]
    assert job(world, 0).state is JobState.DONE


def test_a_cluster_leaves_only_when_nothing_is_there(world: World) -> None:
    assert submit(world, "alpha").state is JobState.RUNNING
    world.koalad.grid.remove("alpha")
    world.run_for(SECOND)
    assert names(world) == ["alpha", "beta"]
    assert world.koalad.engine is not None
    assert not world.koalad.engine.core.information.clusters["alpha"].settings.draining
    world.koalad.grid.drain("alpha", True)
    world.run_for(Duration(3 * MINUTE))
    assert job(world, 0).state is JobState.DONE
    world.koalad.grid.remove("alpha")
    world.run_for(SECOND)
    assert names(world) == ["beta"]
    assert world.clusters["alpha"].kcms == []
    world.koalad.grid.remove("beta", force=True)
    world.run_for(SECOND)
    assert names(world) == ["beta"]


def test_a_job_that_is_given_up_by_force_runs_elsewhere_and_the_cluster_may_come_back(world: World) -> None:
    assert submit(world, "alpha", 200, retry_on=(RetryOn.LOST,)).state is JobState.RUNNING
    anywhere = submit(world, None, 200, retry_on=(RetryOn.LOST,))
    assert anywhere.state is JobState.RUNNING
    lost = present(anywhere).cluster
    assert lost is not None
    world.koalad.grid.remove(lost, force=True)
    world.run_for(MINUTE)
    assert lost not in names(world)
    assert present(job(world, 1)).cluster != lost
    world.koalad.grid.reload(world.koalad.grid.file, world.koalad.grid.rules)
    world.run_for(MINUTE)
    assert names(world) == ["alpha", "beta"]
    assert world.settle(Duration(20 * MINUTE))
    assert job(world, 1).state is JobState.DONE


@pytest.mark.parametrize("step", range(1, 12))
def test_koalad_killed_during_a_change_has_all_or_nothing_of_it(world: World, step: int) -> None:
    koalad = world.koalad
    koalad.crash_point.left = step
    koalad.grid.add(world.build("epsilon").plan.settings)
    world.run_for(Duration(10 * SECOND))
    koalad.grid.drain("beta", True)
    koalad.grid.remove("beta")
    world.run_for(Duration(10 * SECOND))
    koalad.crash_point.left = None
    koalad.start()
    world.run_for(Duration(2 * MINUTE))
    names(world)
    world.resume_clusters()
    submit(world, koalad.grid.names[-1], 5)
    assert world.settle(Duration(20 * MINUTE))
    assert job(world, 0).state is JobState.DONE


def test_a_reload_changes_a_cluster_its_link_and_the_rules_while_a_job_runs(world: World) -> None:
    koalad, grid = world.koalad, world.koalad.grid
    assert submit(world, "alpha").state is JobState.RUNNING
    before, logins = koalad.engine, len(world.clusters["alpha"].logins)
    file = dict(grid.file) | {"beta": replace(grid.file["beta"], backlog=2)}
    grid.reload(file, replace(grid.rules, queue_after=SECOND), "alpha")
    world.run_for(Duration(20 * SECOND))
    assert koalad.engine is not None
    assert koalad.engine is not before
    assert koalad.engine.settings.queue_after == SECOND
    assert koalad.engine.core.information.clusters["beta"].settings.backlog == 2
    assert len(world.clusters["alpha"].logins) == logins + 1
    assert names(world) == ["alpha", "beta"]
    assert world.settle(Duration(10 * MINUTE))
    found = job(world, 0)
    assert (found.state, found.completion_failures) == (JobState.DONE, 0)


@pytest.mark.parametrize("step", range(1, 9))
def test_koalad_killed_while_a_cluster_is_given_up_cleans_up_there_or_has_given_it_up(world: World, step: int) -> None:
    koalad = world.koalad
    koalad.grid.add(world.build("epsilon").plan.settings)
    world.run_for(MINUTE)
    assert submit(world, "epsilon", 600).state is JobState.RUNNING
    koalad.crash_point.left = step
    koalad.grid.remove("epsilon", force=True)
    world.run_for(Duration(10 * SECOND))
    koalad.crash_point.left = None
    koalad.start()
    world.run_for(Duration(2 * MINUTE))
    if "epsilon" in names(world):
        koalad.request(CancelRequested(world.koalad.accepted[0]))
    assert world.settle(Duration(30 * MINUTE))
    assert job(world, 0).state.final
