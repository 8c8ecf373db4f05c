"""koalad and KCMs killed at the steps of a scenario with preemption and choices: the ends are the same.

A job of priority 0 does not fit, and vacates the job that fills `beta`, which runs again afterwards. The best cluster,
`alpha`, refuses every batch job: a job with a rank goes on with its next choice, and a larger one with a group of two.
Recipients are notified of each first start and each end.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest
from step_by_step import Differences, End, User, component, end_of

from koalapy.model.cluster import ClusterSettings
from koalapy.model.job import Job
from koalapy.model.notification import ENDS, Mail, NotificationId, Notify, NotifyOn
from koalapy.model.request import Request
from koalapy.model.settings import Preempt, PreemptBy, Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.world.cluster.shell import REFUSALS
from koalapy.world.koalad.host import NoKoaladObserver
from koalapy.world.koalad.matchmaker import RANKS
from koalapy.world.world import World

SEED = 133  # with clusters of these sizes, none of which has users of its own
SIZES = {"alpha": 8, "beta": 6, "gamma": 6}
SETTINGS = Settings(
    clusters=tuple(
        ClusterSettings(name=name, batch=kind) for name, kind in zip(SIZES, ("slurm", "sge", "slurm"), strict=True)
    ),
    claim_timeout=Duration(2 * MINUTE),
    barrier_timeout=Duration(2 * MINUTE),
    orphan_timeout=Duration(2 * MINUTE),
    max_submission_failures=20,
    preempt=Preempt(how=PreemptBy.VACATE),
)
BEST_FIRST = list(RANKS)[-1]  # alpha, then gamma, then beta
MEASURED = MINUTE  # after the end of a job, until all clusters are known to be idle
CLOCKS = Duration(6 * SECOND)  # a cluster's clock is estimated, by answers that may be slow
SLOW = (("alpha", 4), ("beta", 7), ("gamma", 4))
NOTIFY = (Notify(to=Mail(address="me@example.org"), on=(NotifyOn.STARTED, *ENDS)),)


def ranked(processors: int, **fields: object) -> Request:
    return Request(
        name="ranked",
        components=(replace(component(), processors=processors, rank=BEST_FIRST, **fields),),  # type: ignore[arg-type]
        notify=NOTIFY,
    )


def on_beta(name: str, processors: int, seconds: int, priority: int) -> Request:
    runs = replace(component("beta", runs=Duration(seconds * SECOND)), processors=processors, walltime=HOUR)
    return Request(name=name, components=(runs,), notify=NOTIFY, priority=priority)


JOBS = {
    "low": on_beta("low", SIZES["beta"], 60, 15),
    "urgent": on_beta("urgent", SIZES["beta"] // 2, 3, 0),
    "next choice": ranked(4),
    "group": ranked(8, spread=True),
}


class Patient(User):
    """Submits the urgent job while the low one runs, and each other job once the clusters are idle."""

    def may_submit(self, name: str) -> bool:
        now = self._world.agenda.now
        if name == "urgent":
            low = self.job("low")
            return low is not None and low.started_at is not None
        known = [job for job in self.all() if job is not None]
        return all(job.finished_at is not None and job.finished_at < now - MEASURED for job in known)


class Watched(NamedTuple):
    """The end of a job: also where it ran, what was counted, and the notifications of it that arrived."""

    end: End
    clusters: tuple[tuple[str | None, int], ...]
    counted: tuple[int, int]
    refused: tuple[str, ...]
    preempts: int
    started_or_ended: tuple[str, ...]


class Arrivals(NoKoaladObserver):
    """The notifications that arrive."""

    def __init__(self) -> None:
        self.arrived: Counter[NotificationId] = Counter()

    def notified(self, notification: NotificationId) -> None:
        self.arrived[notification] += 1


def play_scenario(disturb: Callable[[World], None]) -> tuple[World, dict[str, Watched]]:
    """Play the whole scenario until the world is quiescent."""
    world = World(SEED, settings=SETTINGS)
    assert world.sizes == SIZES
    world.clusters["alpha"].shell.submit_faults.refusals = [REFUSALS[1]] * 1_000
    world.koalad.recipients.healthy = True
    arrivals = world.koalad.observer = Arrivals()
    disturb(world)
    user = Patient(world, JOBS)
    user.play()
    assert set(arrivals.arrived.values()) <= {1}, arrivals.arrived
    return world, {name: watched(world, job) for name in JOBS if (job := user.job(name)) is not None}


def watched(world: World, job: Job) -> Watched:
    history = world.koalad.store.history(job.id)
    settled = [each.details["on"] for each in history if each.kind in ("notification_sent", "notification_unknown")]
    return Watched(
        end=end_of(world, job, CLOCKS),
        clusters=tuple((each.cluster, each.request.processors) for each in job.present),
        counted=(job.submission_failures, job.completion_failures),
        refused=tuple(str(each) for each in job.choices if each.refused is not None),
        preempts=sum(each.kind == "job_preempts" for each in history),
        started_or_ended=tuple(sorted(settled)),
    )


@pytest.fixture(scope="module")
def undisturbed() -> tuple[World, dict[str, Watched]]:
    return play_scenario(lambda world: None)


def done(runs: int, *clusters: tuple[str, int], refused: tuple[str, ...] = (), preempts: int = 0) -> Watched:
    """Return how a job ends whose program ran so often, the last time to its end."""
    used = (*[("lost", 1)] * (runs - 1), *[("run", 1)] * len(clusters))
    end = End(JobState.DONE, "", (0,) * len(clusters), ((1,) * runs,) * len(clusters), used)
    return Watched(end, clusters, (0, 0), refused, preempts, ("done", "started"))


def test_the_undisturbed_run_has_the_expected_ends(undisturbed: tuple[World, dict[str, Watched]]) -> None:
    _, ends = undisturbed
    assert ends["low"] == done(2, ("beta", 6))
    assert ends["urgent"] == done(1, ("beta", 3), preempts=1)
    assert ends["next choice"] == done(1, ("gamma", 4), refused=("alpha",))
    assert ends["group"] == done(1, ("gamma", 6), ("beta", 2), refused=("alpha",))


@pytest.mark.parametrize("every", [9, pytest.param(2, marks=pytest.mark.slow)])
def test_a_koalad_killed_at_any_step_reaches_the_same_ends(
    every: int, undisturbed: tuple[World, dict[str, Watched]]
) -> None:
    world, ends = undisturbed
    different = Differences(ends)
    different.kill_koalad(play_scenario, range(1, world.koalad.crash_point.steps + 1, every))
    assert not different.found, different.found[:5]


@pytest.mark.parametrize(
    ("name", "every"), [("beta", 40), *[pytest.param(*row, marks=pytest.mark.slow) for row in SLOW]]
)
def test_a_kcm_killed_at_any_action_changes_no_end(
    name: str, every: int, undisturbed: tuple[World, dict[str, Watched]]
) -> None:
    def kill(world: World) -> None:
        world.clusters[name].environment.kcm_crash_point.left = step

    world, ends = undisturbed
    different = Differences(anywhere(ends))
    for step in range(1, world.clusters[name].environment.kcm_crash_point.steps + 1, every):
        _, found = play_scenario(kill)
        different.look(f"{name}'s KCM killed at step {step}", anywhere(found))
    assert not different.found, different.found[:5]


def anywhere(ends: Mapping[str, Watched]) -> dict[str, Watched]:
    """Return the ends without the clusters and the failures: one that is out of reach for a moment is no choice."""
    return {name: end._replace(clusters=(), refused=(), counted=(0, 0)) for name, end in ends.items()}
