"""koalad, KCM and wrappers killed at every single step of a reference scenario: the end is that of an undisturbed run.

The scenario has co-allocated jobs, staging both ways, a retry, a cancel, an optional component that cannot start. It
has a flow of two jobs, and a job that is held and released. The user is stubborn: what was not accepted is
submitted again under the same key, what is to be cancelled is cancelled until it is.
"""

from collections.abc import Callable, Mapping

import pytest
from halves import half_of
from step_by_step import Differences, End, User, component, end_of

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import CancelRequested, HoldRequested, ReleaseRequested
from koalapy.model.identity import JobId, Tag, attempt_of
from koalapy.model.request import FlowJob, Request, RetryOn
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.model.work import Flow
from koalapy.world.behaviour import MISSING
from koalapy.world.koalad.host import NoKoaladObserver
from koalapy.world.processes import CrashPoint
from koalapy.world.program_log import LogEntry
from koalapy.world.world import World

SEED = 11
SETTINGS = Settings(
    clusters=(ClusterSettings(name="alpha", batch="slurm"), ClusterSettings(name="beta", batch="sge")),
    claim_timeout=Duration(2 * MINUTE),
    barrier_timeout=Duration(2 * MINUTE),
    max_completion_failures=1,
    orphan_timeout=Duration(2 * MINUTE),
)
LONGEST_RECOVERY = 20  # of koalad's steps


REFERENCE = {
    "staged": Request(
        name="staged",
        components=(component("alpha", files=("result",)), component("beta", files=("result",))),
        stage_in=("data",),
        stage_out=("result",),
    ),
    "retried": Request(
        name="retried",
        components=(component(exit_status=3),),
        retry_on=(RetryOn.LOST, RetryOn.KILLED, RetryOn.EXIT),
    ),
    "optional": Request(
        name="optional", components=(component("alpha"), component("beta", optional=True, executable=MISSING))
    ),
    "cancelled": Request(
        name="cancelled",
        components=(component("alpha", runs=Duration(50 * SECOND)), component("beta", runs=Duration(50 * SECOND))),
    ),
    "flow": Request(
        name="flow",
        components=(),
        jobs=(
            FlowJob(request=Request(name="first", components=(component(),))),
            FlowJob(request=Request(name="then", components=(component("alpha"), component("beta"))), after=(0,)),
        ),
    ),
    "held": Request(name="held", components=(component(),)),
}


SLOW = (pytest.mark.slow, pytest.mark.timeout(1800))  # minutes alone, and several times as long on a busy machine
ALL = [pytest.param(name, 1, marks=SLOW) for name in ("alpha", "beta")]  # clusters, killed at every action


class Fickle(User):
    """Cancels one job once it runs, and holds one until all others are over."""

    def __init__(self, world: World) -> None:
        super().__init__(world, REFERENCE)
        self._began: set[tuple[JobId, int]] = set()
        world.program_log.subscribe(self._ran)

    def _ran(self, entry: LogEntry) -> None:
        _, attempt = attempt_of(Tag(entry.run.tag))
        self._began.add((attempt.job, attempt.component))

    def change_mind(self) -> None:
        running, held = self.job("cancelled"), self.job("held")
        if running is not None and {(running.id, 0), (running.id, 1)} <= self._began and not running.state.final:
            self._world.koalad.request(CancelRequested(running.id))
        if held is None or held.state.final:
            return
        others = [self.job(name) for name in REFERENCE if name != "held"]
        final = all(job is not None and job.state.final for job in others)
        self._world.koalad.request(ReleaseRequested(held.id) if final else HoldRequested(held.id))


def play_scenario(disturb: Callable[[World], None]) -> tuple[World, dict[str, End]]:
    """Play the whole scenario until the world is quiescent."""
    world = World(SEED, settings=SETTINGS)
    disturb(world)
    user = Fickle(world)
    user.play()
    jobs = {name: user.job(name) for name in REFERENCE}
    if isinstance(whole := jobs["flow"], Flow):
        jobs |= {f"flow {place}": world.koalad.store.job(each) for place, each in enumerate(whole.jobs)}
    return world, {name: end_of(world, job) for name, job in jobs.items() if job is not None}


@pytest.fixture(scope="module")
def undisturbed() -> tuple[World, dict[str, End]]:
    return play_scenario(lambda world: None)


def test_the_undisturbed_run_has_the_expected_ends(undisturbed: tuple[World, dict[str, End]]) -> None:
    _, ends = undisturbed
    assert ends["staged"] == End(JobState.DONE, "", (0, 0), ((1,), (1,)), (("run", 1), ("run", 1)))
    assert ends["retried"] == End(JobState.FAILED, "exit_status", (3,), ((1, 1),), (("lost", 1), ("run", 1)))
    assert ends["optional"] == End(JobState.DONE, "", (0, None), ((1,), ()), (("run", 1),))
    assert ends["cancelled"] == End(JobState.CANCELLED, "cancelled", (), ((1,), (1,)), (("run", 1), ("run", 1)))
    assert ends["flow"] == End(JobState.DONE, "", (), (), ())
    assert ends["flow 0"] == End(JobState.DONE, "", (0,), ((1,),), (("run", 1),))
    assert ends["flow 1"] == End(JobState.DONE, "", (0, 0), ((1,), (1,)), (("run", 1), ("run", 1)))
    assert ends["held"] == End(JobState.DONE, "", (0,), ((1,),), (("run", 1),))


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize(
    "lossy",
    [False, pytest.param(True, marks=SLOW)],
    ids=["its messages arrive", "its messages are lost"],
)
def test_a_koalad_killed_at_any_step_reaches_the_same_ends(
    lossy: bool, every: int, undisturbed: tuple[World, dict[str, End]]
) -> None:
    world, ends = undisturbed
    different = Differences(ends)
    different.kill_koalad(play_scenario, half_of(range(1, world.koalad.crash_point.steps + 1, every)), lossy)
    assert not different.found, different.found[:5]


def test_a_koalad_killed_again_during_recovery_reaches_the_same_ends(undisturbed: tuple[World, dict[str, End]]) -> None:
    def kill_twice(world: World) -> None:
        world.koalad.observer, world.koalad.crash_point.left = Again(world, 1 + step % LONGEST_RECOVERY), step

    world, ends = undisturbed
    different = Differences(ends)
    for step in half_of(range(1, world.koalad.crash_point.steps - LONGEST_RECOVERY, 3)):
        killed, found = play_scenario(kill_twice)
        assert killed.koalad.starts == 3, step
        different.look(f"koalad killed at step {step} and after", found)
    assert not different.found, different.found[:5]


@pytest.mark.parametrize(("name", "every"), [("alpha", 3), *ALL])
def test_a_kcm_killed_at_any_action_changes_no_end(
    name: str, every: int, undisturbed: tuple[World, dict[str, End]]
) -> None:
    world, ends = undisturbed
    different = Differences(ends)
    for step in half_of(range(1, world.clusters[name].environment.kcm_crash_point.steps + 1, every)):
        count_step = lambda world, step=step: _set_steps(world.clusters[name].environment.kcm_crash_point, step)  # noqa: E731
        killed, found = play_scenario(count_step)
        assert killed.clusters[name].environment.kcm_crash_point.left is None, step
        different.look(f"{name}'s KCM killed at step {step}", found)
    assert not different.found, different.found[:5]


@pytest.mark.parametrize(("name", "every"), [("alpha", 2), *ALL])
def test_a_wrapper_killed_at_any_command_costs_at_most_one_attempt(
    name: str, every: int, undisturbed: tuple[World, dict[str, End]]
) -> None:
    """A program whose wrapper is killed has another attempt, within the job's bounds; none runs twice."""
    world, ends = undisturbed
    different = Differences(_coarse(ends))
    for step in half_of(range(1, world.clusters[name].environment.wrapper_crash_point.steps + 1, every)):
        count_step = lambda world, step=step: _set_steps(world.clusters[name].environment.wrapper_crash_point, step)  # noqa: E731
        killed, found = play_scenario(count_step)
        assert killed.clusters[name].environment.wrapper_crash_point.left is None, step
        assert all(count == 1 for end in found.values() for runs in end.runs for count in runs), (step, found)
        different.look(f"a wrapper on {name} killed at step {step}", _coarse(found))
    assert not different.found, different.found[:5]


class Again(NoKoaladObserver):
    """Kills the second koalad, too, after so many steps."""

    def __init__(self, world: World, steps: int) -> None:
        self._world, self._steps = world, steps

    def started(self, snapshot: Snapshot, engine: Engine) -> None:
        if self._world.koalad.starts == 2:
            self._world.koalad.crash_point.left = self._steps


def _coarse(ends: Mapping[str, End]) -> dict[str, object]:
    """The parts of the ends that no kill of a wrapper may change."""
    return {name: (end.state, end.state is JobState.DONE and end.statuses[:1]) for name, end in ends.items()}


def _set_steps(crash_point: CrashPoint, steps: int) -> None:
    crash_point.left = steps
