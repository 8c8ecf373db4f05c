"""A store restored from a backup at any instant of a busy grid: no program runs twice, and every job ends."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from koalapy.chaos.run import Disk
from koalapy.model.cluster import ClusterSettings
from koalapy.model.identity import InstanceId, JobId, Tag, attempt_of
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.store.open import FILE_NAME
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.program_log import LogEntry
from koalapy.world.random_requests import Habits, draw_request
from koalapy.world.random_streams import stream
from koalapy.world.world import World

INSTANCE = InstanceId("back1")
SETTINGS = Settings(
    clusters=(ClusterSettings(name="alpha", batch="slurm"), ClusterSettings(name="beta", batch="sge")),
    orphan_timeout=Duration(2 * MINUTE),
)


class BackedUpGrid:
    """A busy grid whose store is backed up."""

    def __init__(self, directory: Path, seed: int, submits: bool = True) -> None:
        self._store, self._backup = directory / FILE_NAME, directory / "backup"
        self.world = World(seed, Disk(directory, INSTANCE).open, SETTINGS)
        self.running: Counter[tuple[int, int]] = Counter()
        self._dice = stream(seed, "restored")
        self._submits = submits
        self.world.program_log.subscribe(self._watch)
        self.world.agenda.after(Duration(5 * SECOND), self._submit)

    def run_on(self) -> None:
        self.world.run_for(Duration(self._dice.randint(0, 90 * SECOND)))

    def back_up(self) -> None:
        with closing(sqlite3.connect(self._store)) as source, closing(sqlite3.connect(self._backup)) as target:
            source.backup(target)

    def lose_and_restore(self) -> None:
        """Lose koalad's host, and restore the backup on another one."""
        self.world.koalad.kill()
        self._submits = False
        for path in self._store.parent.glob(f"{FILE_NAME}*"):
            path.unlink()
        self._backup.rename(self._store)
        self.world.koalad.start()

    def keep_silent(self, cluster: str, until: Duration) -> None:
        """Let the login on a cluster hang for a while. All else goes on."""
        links = self.world.koalad.process.links if self.world.koalad.process is not None else {}
        while (link := links.get(cluster)) is None or link.pipe is None:
            self.world.run_for(Duration(SECOND // 100))
        link.pipe.stall(until)

    def _submit(self) -> None:
        if self._submits:
            sizes = {name: size // 2 for name, size in self.world.sizes.items()}
            self.world.koalad.submit(draw_request(self._dice, sizes, Habits(matching=0.5)))
            self.world.agenda.after(Duration(self._dice.randint(0, 10 * SECOND)), self._submit)

    def _watch(self, entry: LogEntry) -> None:
        """Note the running attempts of each component; two runs of one attempt would show in its log."""
        _, attempt = attempt_of(Tag(entry.run.tag))
        component = attempt.job, attempt.component
        others = [each for each in self.world.program_log.tags() if attempt_of(Tag(each))[1][:2] == component]
        together = [each for each in others if self.world.program_log.running(each)]
        assert len(together) <= 1, f"{together} run at one time"


@pytest.fixture(params=[*range(8), 136, 150, 157, 173])
def grid(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackedUpGrid]:
    made = BackedUpGrid(tmp_path, request.param)
    yield made
    made.world.koalad.store.close()


def test_a_job_waits_for_the_cluster_on_which_it_runs_since_the_backup(tmp_path: Path) -> None:
    """The other cluster answers at once, has room, and knows nothing of the job."""
    grid = BackedUpGrid(tmp_path, seed=0, submits=False)
    grid.world.run_for(Duration(5 * SECOND))
    for name, size in grid.world.sizes.items():
        submit(grid, name, size, Duration(30 * SECOND))
    grid.world.run_for(Duration(20 * SECOND))
    job = submit(grid, None, 2, Duration(10 * MINUTE))
    grid.back_up()
    grid.world.run_for(Duration(2 * MINUTE))
    [cluster] = [each.cluster for each in grid.world.koalad.store.jobs()[-1].live]
    grid.lose_and_restore()
    grid.keep_silent(cluster, Duration(30 * SECOND))
    grid.world.run_for(Duration(5 * SECOND))
    there = submit(grid, next(name for name in grid.world.sizes if name != cluster), 1, Duration(SECOND))
    grid.world.run_for(Duration(20 * SECOND))
    ended = {each.id for each in grid.world.koalad.store.jobs() if each.state.final}
    assert there in ended, "a job that names the other cluster does not wait"
    assert grid.world.settle(Duration(2 * HOUR)), grid.world.koalad.store.pending_cancels()
    program_log = grid.world.program_log
    assert [len(program_log.runs(tag)) for tag in program_log.tags() if attempt_of(Tag(tag))[1].job == job] == [1]
    grid.world.koalad.store.close()


def submit(grid: BackedUpGrid, cluster: str | None, processors: int, runs: Duration) -> JobId:
    component = ComponentRequest(
        processors=processors, executable=EXECUTABLE, arguments=arguments_of(Behaviour(runs=runs)), cluster=cluster
    )
    before = len(grid.world.koalad.store.jobs())
    grid.world.koalad.submit(Request(name="job", components=(component,)))
    while len(grid.world.koalad.store.jobs()) == before:
        grid.world.run_for(Duration(SECOND // 10))
    return grid.world.koalad.store.jobs()[-1].id


def test_after_a_restore_every_job_ends_and_no_program_runs_twice(grid: BackedUpGrid) -> None:
    grid.run_on()
    grid.back_up()
    grid.run_on()
    before = len(grid.world.koalad.store.jobs())
    grid.lose_and_restore()
    assert grid.world.settle(Duration(2 * HOUR)), grid.world.koalad.store.pending_cancels()
    jobs = grid.world.koalad.store.jobs()
    assert len(jobs) <= before
    assert all(job.state.final for job in jobs)
    program_log = grid.world.program_log
    assert all(len(program_log.runs(tag)) == 1 for tag in program_log.tags())
