"""koalad and the KCMs around and inside a pilot killed at the steps of a scenario: the ends are the same.

A person opens a pilot and submits jobs that name it: a short one, one with a component on another cluster, and one that
runs while the pilot is drained. Each command is given again until it has had its effect. The pilot ends by itself once
nothing is left on it, and its cluster leaves the grid.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from step_by_step import Differences, End, User, component, end_of

from koalapy.model.cluster import ClusterSettings
from koalapy.model.identity import JobId, Tag, attempt_of
from koalapy.model.job import Job
from koalapy.model.pilot import pilot_cluster
from koalapy.model.request import PilotOptions, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.world.behaviour import Behaviour
from koalapy.world.cluster.cluster import SimCluster
from koalapy.world.program_log import LogEntry
from koalapy.world.world import World

SEED = 11
SETTINGS = Settings(
    clusters=(ClusterSettings(name="alpha", batch="slurm"), ClusterSettings(name="beta", batch="sge")),
    claim_timeout=Duration(2 * MINUTE),
    barrier_timeout=Duration(2 * MINUTE),
    orphan_timeout=Duration(2 * MINUTE),
)
PILOT = pilot_cluster(JobId(1))  # it is the first that is submitted
PROCESSORS = 2
HOLDS, TERMS = Behaviour(runs=HOUR), PilotOptions(idle=HOUR)
CLOCKS = Duration(6 * SECOND)  # those of clusters are estimated, by answers that may be slow
JOBS = {
    "inside": Request(name="inside", components=(component(PILOT),)),
    "both": Request(name="both", components=(component(PILOT), component("beta"))),
    "last": Request(name="last", components=(component(PILOT, runs=Duration(20 * SECOND)),)),
}


class Opener(User):
    """Opens a pilot, submits jobs to it one after the other, and drains it while the last one runs."""

    def __init__(self, world: World) -> None:
        super().__init__(world, JOBS)
        self._began: set[JobId] = set()
        self.inside_after_it_left: list[LogEntry] = []
        world.program_log.subscribe(self._logged)

    def all(self) -> list[Job | None]:
        return [self.job("pilot"), *super().all()]

    def may_submit(self, name: str) -> bool:
        """Return whether the pilot is a cluster, and the jobs before have ended."""
        before = [self.job(each) for each in list(JOBS)[: list(JOBS).index(name)]]
        return PILOT in self._world.koalad.grid.names and all(job is not None and job.state.final for job in before)

    def change_mind(self) -> None:
        pilot, last = self.job("pilot"), self.job("last")
        if pilot is None:
            self._world.pilots.open("alpha", PROCESSORS, HOLDS, TERMS, key="pilot")
        elif not pilot.state.final and last is not None and last.id in self._began:
            self._world.koalad.grid.drain(PILOT, True)

    def _logged(self, entry: LogEntry) -> None:
        _, attempt = attempt_of(Tag(entry.run.tag))
        self._began.add(attempt.job)


class Watched(NamedTuple):
    """The end of a job, where it ran, and what was counted."""

    end: End
    clusters: tuple[str | None, ...]
    counted: tuple[int, int]


def play_scenario(disturb: Callable[[World], None]) -> tuple[World, dict[str, Watched]]:
    """Play the whole scenario until the world is quiescent."""
    world = World(SEED, settings=SETTINGS)
    disturb(world)
    user = Opener(world)
    user.play()
    assert list(world.koalad.grid.names) == ["alpha", "beta"]
    assert sorted(name for name in world.clusters if name.startswith("pilot~")) == [PILOT]
    assert not world.clusters[PILOT].kcms
    jobs = {name: user.job(name) for name in ("pilot", *JOBS)}
    return world, {name: watched(world, job) for name, job in jobs.items() if job is not None}


def watched(world: World, job: Job) -> Watched:
    return Watched(
        end=end_of(world, job, CLOCKS),
        clusters=tuple(each.cluster for each in job.present),
        counted=(job.submission_failures, job.completion_failures),
    )


@pytest.fixture(scope="module")
def undisturbed() -> tuple[World, dict[str, Watched]]:
    return play_scenario(lambda world: None)


def done(*clusters: str) -> Watched:
    count = len(clusters)
    return Watched(End(JobState.DONE, "", (0,) * count, ((1,),) * count, (("run", 1),) * count), clusters, (0, 0))


def test_the_undisturbed_run_has_the_expected_ends(undisturbed: tuple[World, dict[str, Watched]]) -> None:
    _, ends = undisturbed
    over = End(JobState.CANCELLED, "pilot_ended", (), ((1,),), (("run", 1),))
    assert ends == {
        "pilot": Watched(over, ("alpha",), (0, 0)),
        "inside": done(PILOT),
        "both": done(PILOT, "beta"),
        "last": done(PILOT),
    }


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lossy", [False, True], ids=["its messages arrive", "its messages are lost"])
def test_a_koalad_killed_at_any_step_reaches_the_same_ends(
    lossy: bool, every: int, undisturbed: tuple[World, dict[str, Watched]]
) -> None:
    world, ends = undisturbed
    different = Differences(ends)
    different.kill_koalad(play_scenario, range(1 + 3 * lossy, world.koalad.crash_point.steps + 1, every), lossy)
    assert not different.found, different.found[:5]


@pytest.mark.parametrize(
    ("name", "every"),
    [("alpha", 15), (PILOT, 15), *[pytest.param(name, 1, marks=pytest.mark.slow) for name in ("alpha", "beta", PILOT)]],
)
def test_a_kcm_killed_at_any_action_changes_no_end(
    name: str, every: int, undisturbed: tuple[World, dict[str, Watched]]
) -> None:
    def kill(cluster: SimCluster) -> None:
        if cluster.plan.settings.name == name:
            cluster.environment.kcm_crash_point.left = step

    world, ends = undisturbed
    different = Differences(anyhow(ends))
    for step in range(1, world.clusters[name].environment.kcm_crash_point.steps + 1, every):
        killed, found = play_scenario(lambda world: world.on_built(kill))
        assert killed.clusters[name].environment.kcm_crash_point.left is None, step
        different.look(f"the KCM of {name} killed at step {step}", anyhow(found))
    assert not different.found, different.found[:5]


def anyhow(ends: Mapping[str, Watched]) -> dict[str, Watched]:
    """Return the ends without what was counted: a claim fails on a cluster that is out of reach for a moment."""
    return {name: end._replace(counted=(0, 0)) for name, end in ends.items()}
