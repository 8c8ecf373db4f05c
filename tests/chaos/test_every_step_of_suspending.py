"""koalad and KCMs killed at the steps of a scenario with suspension: the suspended job goes on, and ends as if not.

A job of priority 0 does not fit, and the job that fills `beta` is suspended for it. Its program makes no progress
meanwhile, and runs once.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest
from step_by_step import Differences, End, User, component, end_of

from koalapy.model.cluster import ClusterSettings
from koalapy.model.identity import tag_of
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.model.settings import Preempt, PreemptBy, Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.world.world import World

SEED = 133  # with clusters of these sizes, none of which has users of its own
SIZES = {"alpha": 8, "beta": 6, "gamma": 6}
SETTINGS = Settings(
    clusters=tuple(
        ClusterSettings(name=name, batch=kind, frees_when_suspended=name == "beta")
        for name, kind in zip(SIZES, ("slurm", "sge", "slurm"), strict=True)
    ),
    claim_timeout=Duration(2 * MINUTE),
    barrier_timeout=Duration(2 * MINUTE),
    orphan_timeout=Duration(2 * MINUTE),
    max_submission_failures=20,
    preempt=Preempt(how=PreemptBy.SUSPEND),
)
LOW_RUNS, URGENT_RUNS = Duration(60 * SECOND), Duration(30 * SECOND)
CLOCKS = Duration(6 * SECOND)  # a cluster's clock is estimated, by answers that may be slow


def on_beta(name: str, processors: int, runs: Duration, priority: int) -> Request:
    program = replace(component("beta", runs=runs), processors=processors, walltime=HOUR)
    return Request(name=name, components=(program,), priority=priority)


JOBS = {"low": on_beta("low", 6, LOW_RUNS, 15), "urgent": on_beta("urgent", 3, URGENT_RUNS, 0)}


class Patient(User):
    """Submits the urgent job while the low one runs."""

    def may_submit(self, name: str) -> bool:
        low = self.job("low")
        return name == "low" or (low is not None and low.started_at is not None)


class Watched(NamedTuple):
    """The end of a job: how often it was suspended and resumed, and whether its program stood still meanwhile."""

    end: End
    suspended: int
    resumed: int
    stood_still: bool


def play_scenario(disturb: Callable[[World], None]) -> tuple[World, dict[str, Watched]]:
    """Play the whole scenario until the world is quiescent."""
    world = World(SEED, settings=SETTINGS)
    assert world.sizes == SIZES
    disturb(world)
    user = Patient(world, JOBS)
    user.play()
    return world, {name: watched(world, job) for name in JOBS if (job := user.job(name)) is not None}


def watched(world: World, job: Job) -> Watched:
    kinds = [each.kind for each in world.koalad.store.history(job.id)]
    runs = [run for each in job.attempts if each for run in world.program_log.runs(tag_of(world.instance, each.id))]
    lasted = max(at - run.began for run in runs for at in run.nodes.values() if at is not None)
    wanted = LOW_RUNS + URGENT_RUNS if job.request.name == "low" else URGENT_RUNS
    return Watched(
        end_of(world, job, CLOCKS), kinds.count("job_suspended"), kinds.count("job_resumed"), lasted >= wanted
    )


@pytest.fixture(scope="module")
def undisturbed() -> tuple[World, dict[str, Watched]]:
    return play_scenario(lambda world: None)


def test_the_undisturbed_run_has_the_expected_ends(undisturbed: tuple[World, dict[str, Watched]]) -> None:
    world, ends = undisturbed
    once = End(JobState.DONE, "", (0,), ((1,),), (("run", 1),))
    assert ends == {"low": Watched(once, 1, 1, True), "urgent": Watched(once, 0, 0, True)}
    assert all(node.free == node.processors for node in world.clusters["beta"].batch.nodes)


@pytest.mark.parametrize("every", [20, pytest.param(2, marks=pytest.mark.slow)])
def test_a_koalad_killed_at_any_step_reaches_the_same_ends(
    every: int, undisturbed: tuple[World, dict[str, Watched]]
) -> None:
    world, ends = undisturbed
    different = Differences(ends)
    different.kill_koalad(play_scenario, range(1, world.koalad.crash_point.steps + 1, every))
    assert not different.found, different.found[:5]


@pytest.mark.parametrize("every", [60, pytest.param(6, marks=pytest.mark.slow)])
def test_a_kcm_killed_at_any_action_changes_no_end(every: int, undisturbed: tuple[World, dict[str, Watched]]) -> None:
    def kill(world: World) -> None:
        world.clusters["beta"].environment.kcm_crash_point.left = step

    world, ends = undisturbed
    different = Differences(of_ends(ends))
    for step in range(1, world.clusters["beta"].environment.kcm_crash_point.steps + 1, every):
        _, found = play_scenario(kill)
        different.look(f"beta's KCM killed at step {step}", of_ends(found))
    assert not different.found, different.found[:5]


def of_ends(ends: Mapping[str, Watched]) -> dict[str, End]:
    """Return the ends alone: a claim of the urgent job may fail, so that it waits until the other one has ended."""
    return {name: each.end for name, each in ends.items()}
