"""Maintenance on real Slurm and Grid Engine: pruned jobs leave no file, and koalad may be killed at every moment."""

import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pruned_live import Bench
from real_grid import KOALA, PATIENCE_S, Koalad, sh

from koalapy.answers import koalad as answers
from koalapy.model.identity import AttemptId, InstanceId, JobId, Tag, tag_of

CLUSTERS = ("alpha", "gamma")
SLURM, GRID_ENGINE = CLUSTERS
PLACES = ((SLURM,), (GRID_ENGINE,), CLUSTERS)
NEVER = "0 0 29 2 *"  # by cron at least
TRIES = 40  # to strike in a task that has ended soon
Document = dict[str, Any]


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "nightly.yaml").write_text(yaml.safe_dump({"name": "nightly", "components": [sh(1, "true")]}))
    tasks: list[Document] = [
        {"task": "prune-output", "keep": "0s"},
        {"task": "prune-history", "keep": "0s"},
        {"task": "backup", "to": str(tmp_path / "backups"), "keep": 2},
        {"task": "vacuum"},
        {"task": "submit", "file": str(tmp_path / "nightly.yaml")},
    ]
    running = Koalad(
        testgrid,
        tmp_path,
        clusters={name: {"poll": "1s"} for name in CLUSTERS},
        keep_output="home",
        claim={"timeout": "10m"},
        maintenance=[{**task, "cron": NEVER} for task in tasks],
    )
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def test_pruned_jobs_leave_no_file_of_theirs(koalad: Koalad, testgrid: Any) -> None:
    report = Bench(testgrid, koalad.grid, koalad.grid_file, koalad.directory / "state" / "koala" / "live").run(40, 480)
    assert report.done == report.jobs == 40
    assert report.left == []
    grown = {row.place: row.with_jobs - row.before for row in report.rows}
    assert all(grown[place] > 40 for place in (*CLUSTERS, "koalad")), grown  # or there was nothing to prune
    assert sum(row.records for row in report.rows) >= 40  # one an attempt
    rows = {moment: size.rows for moment, size in report.sizes.items()}
    assert rows["with jobs"]["work"] == 40
    for table in ("work", "history", "usage", "results", "attempts", "outbox"):
        assert rows["pruned"][table] == 0, rows
    assert report.sizes["vacuumed"].bytes < report.sizes["with jobs"].bytes / 2


class Victim:
    """A koalad that is killed and started again, its store as others may read it, and what it has on the clusters."""

    def __init__(self, koalad: Koalad, testgrid: Any) -> None:
        self.koalad, self.testgrid = koalad, testgrid
        self.state = koalad.directory / "state" / "koala" / "live"
        self.instance = InstanceId(self.ask("SELECT instance FROM meta")[0][0])
        self.kills = self.attempts = 0  # attempts of old jobs
        self.asked: Counter[str] = Counter()  # runs of each task
        self.placed: dict[str, set[Tag]] = {cluster: set() for cluster in CLUSTERS}

    def ask(self, query: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.state / 'store.sqlite'}?mode=ro", uri=True, timeout=60)) as store:
            return store.execute(query, values).fetchall()

    def under_way(self, task: str) -> bool:
        return bool(self.ask("SELECT 1 FROM maintenance WHERE name = ? AND ended IS NULL", task))

    def directories(self, cluster: str) -> set[Tag]:
        """The tags of attempts that have one there."""
        own = f"/home/koala/.koala/{self.instance}"
        listed = self.testgrid.shell(cluster, f"ls {own}", user="koala").split()
        return {Tag(name) for name in listed if name.startswith(f"k{self.instance}")}

    def tags(self, jobs: list[int]) -> set[Tag]:
        found = set()
        for job in self.koalad.grid.jobs(ids=jobs):
            for part in job["components"]:
                tag = tag_of(self.instance, AttemptId(JobId(job["id"]), part["index"], part["attempt"]))
                self.placed[str(part["cluster"])].add(tag)
                found.add(tag)
        return found

    def nightly(self) -> list[int]:
        return [number for (number,) in self.ask("SELECT id FROM work WHERE name = 'nightly'")]

    def backups(self) -> list[Path]:
        return list((self.koalad.directory / "backups").glob("*.sqlite"))

    def strike(self, task: str, moment: Callable[[], bool] = lambda: True, paused: bool = False) -> None:
        """Run the task, kill koalad at a moment of it, start it again, and wait until the run was made up.

        `paused`: the head node of Slurm is until then, so that it keeps the directories that are to go.
        """
        if paused:
            self.testgrid.pause(SLURM)
        assert any(self._struck(task, moment) for _ in range(TRIES)), f"no {task} was cut off"
        self.kills += 1
        if paused:
            self.testgrid.unpause(SLURM)
        self.koalad.start()
        for cluster in CLUSTERS:
            self.koalad.connected(cluster)
        assert self.last(task)["ok"], self.last(task)

    def _struck(self, task: str, moment: Callable[[], bool]) -> bool:
        """Return whether koalad was killed before the run was over."""
        pid = self.koalad.grid.status()["pid"]
        self.asked[task] += 1
        command = [*KOALA, "maintenance", "run", task, "--grid", str(self.koalad.grid_file)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:
            while not (self.under_way(task) and moment()):
                if asking.poll() is not None:
                    return False
            os.kill(pid, signal.SIGSTOP)  # it does nothing more, so that the look at the moment holds
            cut_off = self.under_way(task) and moment()
            os.kill(pid, signal.SIGKILL if cut_off else signal.SIGCONT)
        if cut_off:
            self.koalad.until(lambda: not Path(f"/proc/{pid}").exists())
        return cut_off

    def last(self, task: str) -> answers.MaintenanceRun:
        """The last run of the task, once it is over; `koala maintenance list` shows the same as the store."""

        def over() -> answers.MaintenanceRun | None:
            (found,) = [each["last"] for each in self.koalad.grid.maintenance()["tasks"] if each["name"] == task]
            return found if found is not None and found["ended_at"] is not None else None

        run: answers.MaintenanceRun = self.koalad.until(over)
        assert self.ask("SELECT well, message FROM maintenance WHERE name = ?", task) == [(run["ok"], run["message"])]
        return run

    def old(self) -> list[int]:
        """Three jobs that have ended: one on Slurm, one on Grid Engine, and one on both."""
        jobs = [
            {"name": "old", "components": [sh(1, "echo $KOALA_JOB_ID", cluster=cluster) for cluster in chosen]}
            for chosen in PLACES
        ]
        ids = self.koalad.grid.submit_many(jobs, directory=self.koalad.directory)
        ends = self.koalad.grid.wait(ids, PATIENCE_S)
        assert {job["state"] for job in ends} == {"done"}, ends
        self.koalad.until(lambda: not self.ask("SELECT 1 FROM outbox"))  # what they wrote is at home
        self.attempts += sum(part["attempt"] for job in ends for part in job["components"])
        return ids


class Living:
    """Jobs that run through all of it, each on one cluster or both, and write a line after another until their gate."""

    SCRIPT = "n=0; until [ -e ~/gate ]; do n=$((n + 1)); echo $n; sleep 0.2; done; echo end"

    def __init__(self, victim: Victim) -> None:
        self._victim = victim
        koalad = victim.koalad
        self.ids = [koalad.submit(*(sh(1, self.SCRIPT, cluster=name) for name in chosen)) for chosen in PLACES]
        koalad.until(lambda: {job["state"] for job in koalad.grid.jobs(ids=self.ids)} == {"running"})
        self.tags = victim.tags(self.ids)

    def ended_well(self) -> None:
        koalad = self._victim.koalad
        for cluster in CLUSTERS:
            self._victim.testgrid.shell(cluster, "touch ~/gate", user="koala")
        for job in koalad.grid.wait(self.ids, PATIENCE_S):
            assert job["state"] == "done", job["reason"]
            assert job["submission_failures"] == job["completion_failures"] == 0
            for part in range(len(job["components"])):
                lines = b"".join(koalad.grid.output(job["id"], component=part)).decode().split()
                assert lines == [*(str(number) for number in range(1, len(lines))), "end"]
                assert len(lines) > 50


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_a_koalad_killed_ten_times_in_maintenance_prunes_all_that_is_old_and_nothing_else(
    koalad: Koalad, testgrid: Any, rounds: int
) -> None:
    victim = Victim(koalad, testgrid)
    living = Living(victim)
    for _ in range(rounds):
        _killed_as_it_prunes(victim, living)
        _killed_in_other_tasks(victim)
    assert victim.kills == 10 * rounds
    nightly = victim.nightly()
    assert len(nightly) == victim.asked["submit"]  # one each, whenever it was killed
    koalad.grid.wait(nightly, PATIENCE_S)
    living.ended_well()
    assert [job["id"] for job in koalad.grid.jobs()] == sorted([*living.ids, *nightly])
    _is_tidy(victim, [*living.ids, *nightly])


def _killed_as_it_prunes(victim: Victim, living: Living) -> None:
    """Five times: all that has ended goes, and what lives stays."""

    def gone_from_grid_engine() -> bool:
        return not tags & victim.directories(GRID_ENGINE)

    def some_records_removed() -> bool:
        marks = ", ".join("?" * len(old))
        return victim.ask(f"SELECT count(*) FROM work WHERE id IN ({marks})", *old) < [(len(old),)]

    moments: list[tuple[str, bool, Callable[[], bool]]] = [
        ("prune-output", False, lambda: True),
        ("prune-output", True, gone_from_grid_engine),
        ("prune-history", False, lambda: True),
        ("prune-history", True, lambda: bool(victim.ask("SELECT 1 FROM outbox WHERE cluster = ?", SLURM))),
        ("prune-history", True, some_records_removed),
    ]
    for task, paused, moment in moments:
        old = victim.old()
        tags = victim.tags(old)
        victim.strike(task, moment, paused)
        for cluster in CLUSTERS:
            left = victim.directories(cluster)
            assert not left & tags
            assert left >= {tag for tag in living.tags if tag in victim.placed[cluster]}
        assert [job["id"] for job in victim.koalad.grid.jobs(ids=old)] == (old if task == "prune-output" else [])


def _killed_in_other_tasks(victim: Victim) -> None:
    """Five times; the last two before and after the job is accepted."""
    backups = victim.koalad.directory / "backups"
    victim.strike("backup")
    victim.strike("backup", lambda: any(path.suffix == ".part" for path in backups.glob("*")))
    victim.strike("vacuum")
    victim.strike("submit", lambda: len(victim.nightly()) == victim.asked["submit"] - 1)
    victim.strike("submit", lambda: len(victim.nightly()) == victim.asked["submit"])


def _is_tidy(victim: Victim, jobs: list[int]) -> None:
    """Nothing is left of what was pruned, no cancel is pending, nothing was counted twice, and every file is whole."""
    koalad, tags = victim.koalad, victim.tags(jobs)
    assert set().union(*map(victim.directories, CLUSTERS)) == tags
    assert koalad.grid.usage()["total"]["attempts"] == victim.attempts + len(tags)
    status = koalad.grid.status()
    assert (status["troubles"], status["pending_cancels"]) == ([], [])
    koalad.until(lambda: not victim.ask("SELECT 1 FROM outbox"))
    for store in (victim.state / "store.sqlite", *victim.backups()):
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as opened:
            assert opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert opened.execute("PRAGMA foreign_key_check").fetchall() == []
    assert {path.suffix for path in (koalad.directory / "backups").iterdir()} == {".sqlite"}
    assert {int(path.name) for path in (victim.state / "output").iterdir()} == set(jobs)
    log = [json.loads(line) for line in (victim.state / "koalad.log").read_text().splitlines()]
    assert [line for line in log if line["level"] in ("error", "critical")] == []
    for task in koalad.grid.maintenance()["tasks"]:
        assert victim.last(task["name"])["ok"]
