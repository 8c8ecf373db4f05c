"""koalad killed at every step of every task that changes something on clusters, jobs or in the store.

The real runner and tasks over a simulated koalad. A koalad that was killed is started again. It takes up what its
runner finds missed or cut off, until the run is recorded as done.
"""

import threading
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters import layout
from koalapy_adapters.messages import kcm

from koalapy.chaos.promises.watch import Watch
from koalapy.config.maintenance import MAINTENANCE, Maintenance
from koalapy.engine import Engine
from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import TransientError
from koalapy.model.events import Event
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.runtime.maintenance.runner import Runner
from koalapy.runtime.maintenance.task import Koalad
from koalapy.runtime.unknown import UnknownTags
from koalapy.store.contract import MaintenanceRun
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.cluster.files import SHARED, Mount
from koalapy.world.koalad.koalad_process import KoaladProcess
from koalapy.world.processes import Killed
from koalapy.world.world import World

ALPHA = "alpha"
SETTINGS = Settings(clusters=(ClusterSettings(name=ALPHA, batch="slurm"),), orphan_timeout=Duration(2 * MINUTE))
LOOK = Duration(SECOND)
KEPT_S = 20


def request(name: str, runs: Duration) -> Request:
    does = arguments_of(Behaviour(runs=runs))
    part = ComponentRequest(processors=1, executable=EXECUTABLE, arguments=does, walltime=Duration(50 * MINUTE))
    return Request(name=name, components=(part,))


FINAL, LIVING = request("final", Duration(3 * SECOND)), request("living", Duration(40 * MINUTE))
NIGHTLY = request("nightly", Duration(3 * SECOND))
UNKNOWN = AttemptId(JobId(900), 0, 1)  # made after the backup from which the store was restored
QUEUED = AttemptId(JobId(901), 0, 1)  # the same, and its batch job still runs
OTHERS = InstanceId("other")


class Ending(threading.Event):
    """An event that is never set: while a task waits for it, the world continues."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        self._world.run_for(LOOK)
        return self.is_set()


class Maintained:
    """The running koalad as a task's thread sees it. A call to a dead one raises Killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        koalad = world.koalad
        assert koalad.process is not None
        self.process: KoaladProcess = koalad.process
        self.given = Koalad(
            grid="das",
            store=koalad.store,
            now=koalad.now,
            ask=self.ask,
            do=self.do,
            unknown=UnknownTags(
                koalad.store.instance, [ALPHA], self.ask_kcm, lambda ids: koalad.store.jobs(ids=ids), koalad.now
            ),
            clusters=list,
            examine=lambda ending: {},
            submit=self.submit,
            usage=lambda by, since: {},
            charges=lambda since: {},
            ending=Ending(world),
        )

    def ask(self, question: Callable[[Engine], Any]) -> Any:
        """koalad may die before and after the call."""
        answers: list[Any] = []

        def answer() -> None:
            self.process.os_process.step()
            answers.append(question(self.process.engine))
            self.process.os_process.step()

        self.process.enter(answer)
        self._look_alive()
        return answers[0]

    def do(self, event: Event) -> None:
        self._until_done(lambda done: self.world.koalad.request(event, after=lambda step: done()))

    def submit(self, path: Path, key: str) -> JobId:
        known = len(self.world.koalad.accepted)
        self.world.koalad.submit(NIGHTLY, key)
        while len(self.world.koalad.accepted) == known:
            self._look_alive()
            found = self.world.koalad.store.id_of_key("me", key)
            if found is not None and found in self.world.koalad.accepted:
                return found
            self.world.run_for(LOOK)
        return self.world.koalad.accepted[-1]

    def ask_kcm(self, cluster: str, make: Callable[[int], Any], timeout_s: float) -> kcm.Done:
        answers: list[Any] = []

        def begin(done: Callable[[], None]) -> None:
            def answered(answer: Any) -> None:
                answers.append(answer)
                done()

            self.process.enter(lambda: self.process.links[cluster].ask(make, answered))

        self._until_done(begin)
        if not isinstance(answers[0], kcm.Done):
            raise TransientError("no_answer", f"{cluster} was lost.", "It is asked again.")
        return answers[0]

    def _until_done(self, begin: Callable[[Callable[[], None]], object]) -> None:
        done: list[None] = []
        begin(lambda: done.append(None))
        latest = self.world.agenda.now + 10 * MINUTE
        while not done:
            self._look_alive()
            assert self.world.agenda.now < latest, "no answer"
            self.world.run_for(LOOK)
        self._look_alive()

    def _look_alive(self) -> None:
        if not self.process.os_process.alive:
            raise Killed


def entry(task: str, **options: Any) -> Maintenance:
    known = ["prune-history", "prune-output", "clean-unknown", "submit"]
    return Maintenance.model_validate(
        {"task": task, "cron": "0 0 * * *", **options}, context={"policies": {MAINTENANCE: known}}
    )


def aged_world() -> tuple[World, Watch]:
    """A world with a job that ended long ago, one that runs, and directories that the store does not know."""
    world = World(11, settings=SETTINGS)
    watch = Watch(world, lambda line: None)
    world.run_for(Duration(10 * SECOND))
    world.koalad.submit(FINAL, key=FINAL.name)
    assert world.settle(HOUR)
    world.koalad.submit(LIVING, key=LIVING.name)
    disk = Mount(world.clusters[ALPHA].shared, "head", lambda: None, lambda: True)
    for instance, attempt in ((world.instance, UNKNOWN), (world.instance, QUEUED), (OTHERS, UNKNOWN)):
        tag = tag_of(instance, attempt)
        directory = layout.attempt_directory(SHARED, instance, tag)
        disk.make(directory)
        disk.write(layout.inside(directory, "component.json"), b"{}")
    world.clusters[ALPHA].foreign_job(tag_of(world.instance, QUEUED), 1, HOUR)
    world.run_for(Duration(3 * KEPT_S * SECOND))
    watch.check()
    return world, watch


def run_task(planned: Maintenance, left: int | None, lossy: bool = False) -> World:
    """Run the task as cron does until a run is recorded as done; koalad is killed after `left` steps."""
    world, watch = aged_world()
    koalad = world.koalad
    koalad.lossy, koalad.crash_point.left = lossy, left
    for _ in range(10):
        koalad.start()
        world.run_for(Duration(15 * SECOND))
        if not koalad.alive:
            continue
        runner = Runner([planned], Maintained(world).given, UTC)
        try:
            missed = runner.missed()
            if not missed and any(run.ended is not None for run in koalad.store.maintenance()):
                break
            runner._by_cron(planned.called, made_up=bool(missed))
        except Killed:
            continue
        finally:
            watch.check()
    koalad.crash_point.left = None
    return world


def directories(world: World) -> list[str]:
    shared = world.clusters[ALPHA].shared
    return sorted(path for path in shared.directories if path.count("/") == 3 and path.rpartition("/")[2][:1] == "k")


class Final:
    """The result of a task: names of jobs, directories of attempts, lines of pruned output, and the last run."""

    def __init__(self, world: World) -> None:
        store = world.koalad.store
        jobs = store.jobs()
        self.jobs = sorted(job.request.name for job in jobs)
        self.directories = directories(world)
        self.pruned = [line.kind for job in jobs for line in store.history(job.id)].count(HistoryKind.OUTPUT_PRUNED)
        (run,) = store.maintenance()
        self.run: MaintenanceRun = run

    @property
    def all(self) -> tuple[list[str], list[str], int, bool]:
        return self.jobs, self.directories, self.pruned, self.run.well


def path_of(world: World, instance: InstanceId, attempt: AttemptId) -> str:
    return layout.attempt_directory(SHARED, instance, tag_of(instance, attempt))


TASKS = {
    "prune-history": entry("prune-history", keep=f"{KEPT_S}s"),
    "prune-output": entry("prune-output", keep=f"{KEPT_S}s"),
    "clean-unknown": entry("clean-unknown", older_than=f"{KEPT_S}s", really=True),
    "submit": entry("submit", file="/jobs/nightly.yaml"),
}


@pytest.fixture(scope="module", params=TASKS)
def undisturbed(request: pytest.FixtureRequest) -> tuple[str, Final, int]:
    """A task, its result without kills, and the number of koalad's steps for it."""
    before = aged_world()[0].koalad.crash_point.steps
    world = run_task(TASKS[request.param], None)
    return request.param, Final(world), world.koalad.crash_point.steps - before


def test_each_task_removes_or_adds_what_it_should(undisturbed: tuple[str, Final, int]) -> None:
    name, final, steps = undisturbed
    world = aged_world()[0]
    ended, living = (path_of(world, world.instance, AttemptId(JobId(number), 0, 1)) for number in (1, 2))
    unknown, queued = (path_of(world, world.instance, attempt) for attempt in (UNKNOWN, QUEUED))
    strange = path_of(world, OTHERS, UNKNOWN)
    removed = {"prune-history": ended, "prune-output": ended, "clean-unknown": unknown}.get(name)
    nightly = path_of(world, world.instance, AttemptId(JobId(3), 0, 1)) if name == "submit" else None
    left = {ended, living, unknown, queued, strange, nightly} - {removed, None}
    assert final.directories == sorted(each for each in left if each is not None)
    jobs = {"prune-history": ["living"], "submit": ["final", "living", "nightly"]}.get(name, ["final", "living"])
    assert (final.jobs, final.pruned) == (jobs, int(name == "prune-output"))
    assert final.run.well, final.run.message
    assert steps > 5


@pytest.mark.parametrize("lossy", [False, True], ids=["its messages arrive", "its messages are lost"])
def test_a_koalad_killed_at_any_step_leaves_the_same_result(undisturbed: tuple[str, Final, int], lossy: bool) -> None:
    name, final, steps = undisturbed
    for step in range(1, steps + 1):
        world = run_task(TASKS[name], step, lossy)
        assert world.koalad.starts == 2, step
        assert Final(world).all == final.all, step
