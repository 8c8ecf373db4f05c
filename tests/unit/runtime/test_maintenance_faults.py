"""Maintenance that is killed between any two steps, and on a disk that is really full: nothing is lost."""

import json
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from koalapy.config.maintenance import MAINTENANCE, Maintenance
from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import ForgetAttempt, Hint
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.events import AttemptForgotten, ClusterConnected, Event, PruneRequested
from koalapy.model.header import Outcome
from koalapy.model.history import History
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.runtime.maintenance import tasks
from koalapy.runtime.maintenance.task import Koalad
from koalapy.scheduler.schedule import Policies
from koalapy.store.contract import MaintenanceRun, Store, StoreFull
from koalapy.store.open import FILE_NAME, open_store

HERE = Path(__file__).parent
JOBS = 300
NOON = Instant(1_795_348_800 * SECOND)
SETTINGS = Settings(clusters=(ClusterSettings(name="alpha", batch="slurm"),))
PART = ComponentRequest(processors=1, executable="./a", arguments=("x" * 2000,))
REQUEST = Request(name="job", components=(PART,))


def over(number: int) -> Job:
    """A job that has ended, with a directory on alpha and a record of some kB."""
    attempt = Attempt(
        id=AttemptId(JobId(number), 0, 1), request=PART, state=AttemptState.CLEANED_UP, ending=Ending.DONE,
        cluster="alpha",
    )  # fmt: skip
    return Job(
        id=JobId(number), owner="me", request=REQUEST, state=JobState.DONE, position=number, submitted_at=Instant(1),
        finished_at=Instant(5), attempts=(attempt,), numbers=(1,), outcome=Outcome.DONE,
    )  # fmt: skip


def a_store(place: Path, jobs: int) -> Store:
    """A store with so many jobs, each with a line of history, opened anew: its log is empty."""
    store = open_store("sqlite", place)
    made = tuple(over(number) for number in range(1, jobs + 1))
    lines = tuple(History(job=job.id, at=Instant(1), kind="submitted", details={}) for job in made)
    store.commit(Change(jobs=made, attempts=tuple(each for job in made for each in job.present), history=lines))
    store.close()
    return open_store("sqlite", place)


# ---- killed at every step


@pytest.mark.parametrize("task", ["backup", "report", "vacuum"])
def test_a_task_killed_at_any_step_is_made_up_and_leaves_the_same(task: str, tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    store = a_store(seed / "state", JOBS)
    store.commit(Change(removed=tuple(JobId(number) for number in range(1, JOBS // 2))))  # for the vacuum
    store.record_maintenance(
        MaintenanceRun(name=task, task=task, began=Instant(1), ended=Instant(2), well=True, message="")
    )
    if task == "backup":
        (seed / "to").mkdir()
        store.back_up(seed / "to" / f"das-{store.instance}-20260101T000000Z.sqlite")
    store.close()
    done = subprocess.run(
        [sys.executable, HERE / "_maintenance_killed.py", tmp_path, task], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *killed, whole = map(json.loads, (tmp_path / "found").read_text().splitlines())
    assert len(killed) > 6
    assert {each["killed"] for each in killed} == {signal.SIGKILL}
    kept = JOBS - JOBS // 2 + 1
    assert (whole["killed"], whole["jobs"], whole["runs"]) == (0, kept, [[task, True, True]])
    assert [suffix for suffix, _ in whole["files"]] == {"backup": [".sqlite"], "report": [".csv"]}.get(task, [])
    if task == "backup":
        assert whole["files"] == [[".sqlite", kept]]
    for step, each in enumerate(map(json.loads, (tmp_path / "at once").read_text().splitlines()), 1):
        finished = [file for file in each["files"] if file[0] in (".sqlite", ".csv")]
        assert (each["jobs"], all(file in whole["files"] for file in finished)) == (kept, True), step
        assert finished or task != "backup", step
    for each in killed:
        reported = {name: each[name] for name in ("jobs", "runs", "files")}
        assert reported == {name: whole[name] for name in reported}, each["step"]
        assert task != "vacuum" or each["size"] < 1.1 * whole["size"], each["step"]


# ---- a disk that is full


class Disk(Protocol):
    """A small file system: `fill` leaves no room but for so many bytes, `free` all there is."""

    place: Path

    def fill(self, left: int = 0) -> None: ...

    def free(self) -> None: ...


class Mounted:
    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    def fill(self, left: int = 0) -> None:
        self.free()
        size = max(0, shutil.disk_usage(self.place).free - left)
        self._ballast.write_bytes(b"x" * size)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


class Limited:
    """Where nothing can be mounted: no file of this process may become larger than the bytes that are left."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self, left: int = 0) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(left, 4096), self._limits[1]))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


@pytest.fixture(params=["mounted", "limited"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir(mode=0o700)
    if request.param == "limited":
        made = Limited(place)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        yield made
        made.free()
        signal.signal(signal.SIGXFSZ, ignored)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield Mounted(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class Clusters:
    """Clock and links of a driver: remembers what it is to forget."""

    def __init__(self) -> None:
        self.sent: list[OutboxEntry] = []

    def now(self) -> Instant:
        return NOON

    def slept(self) -> Duration:
        return Duration(0)

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        self.sent.append(entry)

    def hint(self, hint: Hint) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        return {}

    def forgotten(self) -> list[Delivery]:
        """Return the cluster's answer, once."""
        sent, self.sent = self.sent, []
        commands = [(entry.number, entry.command) for entry in sent]
        return [
            Delivery((AttemptForgotten(cluster="alpha", attempt=command.attempt),), (number,))
            for number, command in commands
            if isinstance(command, ForgetAttempt)
        ]


def driven(store: Store) -> tuple[Driver, Clusters]:
    clusters, snapshot = Clusters(), store.load()
    engine = Engine(SETTINGS, Policies(worst_fit, fpfs), snapshot)
    driver = Driver(engine, store, clusters, clusters, snapshot.outbox, store.next_number)
    driver.step([Delivery((ClusterConnected(cluster="alpha", version="1"),))])
    return driver, clusters


def without_room(driver: Driver, deliveries: list[Delivery]) -> None:
    """Take these; their commit finds no room, and reports that in words that help."""
    with pytest.raises(StoreFull, match="There was no room to write to") as refused:
        driver.step(deliveries)
    assert refused.value.reason.advice == "Free disk space or quota there."
    assert not refused.value.lasting


def prune(store: Store) -> Event:
    page = store.prunable(Instant(9), JOBS, JobId(0), True)
    return PruneRequested(work=tuple(page), before=Instant(9), records=True)


def test_a_disk_that_is_full_in_the_middle_of_a_prune_loses_nothing_and_the_prune_goes_on(disk: Disk) -> None:
    store = a_store(disk.place / "state", JOBS)
    driver, clusters = driven(store)
    asked = prune(store)
    disk.fill()
    without_room(driver, [Delivery((asked,))])
    assert (len(store.jobs()), store.load().outbox, clusters.sent) == (JOBS, (), [])
    with pytest.raises(StoreFull):
        driver.retry()
    disk.free()
    driver.retry()
    answers = clusters.forgotten()
    assert (len(store.jobs()), len(answers)) == (JOBS, JOBS)
    store.close()  # its log is empty again
    store = open_store("sqlite", disk.place / "state")
    driver, clusters = driven(store)
    assert len(clusters.sent) == JOBS  # again, to the cluster that was connected anew
    driver.step([Delivery((asked,))])
    answers = clusters.forgotten()
    disk.fill()
    without_room(driver, answers)
    assert (len(store.jobs()), len(store.load().outbox)) == (JOBS, JOBS)
    assert store.history(JobId(7))
    disk.free()
    driver.retry()
    assert (store.jobs(), store.load().outbox, store.history(JobId(7))) == ([], (), [])
    store.close()


def test_a_koalad_that_ends_while_the_disk_is_full_prunes_all_when_there_is_room(disk: Disk) -> None:
    store = a_store(disk.place / "state", JOBS)
    driver, clusters = driven(store)
    driver.step([Delivery((prune(store),))])
    answers = clusters.forgotten()
    store.close()
    store = open_store("sqlite", disk.place / "state")
    driver, _ = driven(store)
    disk.fill()
    without_room(driver, answers)
    disk.free()
    store.close()
    store = open_store("sqlite", disk.place / "state")
    assert len(store.jobs()) == JOBS
    driver, clusters = driven(store)
    driver.step([Delivery((prune(store),))])
    driver.step(clusters.forgotten())
    assert (store.jobs(), store.load().outbox) == ([], ())
    store.close()


def maintained(store: Store, now: Instant) -> Any:
    given: dict[str, Any] = dict.fromkeys(("ask", "do", "unknown", "clusters", "examine", "submit", "usage", "charges"))
    return Koalad(grid="das", store=store, now=lambda: now, **given)


def jobs_in(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (jobs,) = connection.execute("SELECT count(*) FROM work").fetchone()
    return int(jobs)


def test_a_disk_that_is_full_in_the_middle_of_a_backup_keeps_the_older_one(disk: Disk, tmp_path: Path) -> None:
    store, target = a_store(tmp_path / "state", JOBS), disk.place / "to"
    known = {"policies": {MAINTENANCE: ["backup"]}}
    reported = Maintenance.model_validate(
        {"task": "backup", "cron": "0 0 * * *", "to": str(target), "keep": 1}, context=known
    )
    assert tasks.back_up(maintained(store, NOON), reported, False).well
    (before,) = target.iterdir()
    later = Instant(NOON + 60 * SECOND)
    for left in (0, before.stat().st_size // 2):
        disk.fill(left)
        with pytest.raises(KoalaError) as refused:
            tasks.back_up(maintained(store, later), reported, False)
        disk.free()
        assert "no room" in str(refused.value) or "No space left on device" in str(refused.value), refused.value
        assert str(disk.place) in str(refused.value)
        assert refused.value.reason.advice
        assert [path for path in target.iterdir() if path.name != "ballast"] == [before]
        assert jobs_in(before) == JOBS
        store.commit(Change(jobs=(over(JOBS + 1),), attempts=tuple(over(JOBS + 1).present)))  # koalad goes on
        store.commit(Change(removed=(JobId(JOBS + 1),)))
    assert tasks.back_up(maintained(store, later), reported, False).well
    (after,) = target.iterdir()
    assert after != before
    assert jobs_in(after) == JOBS
    store.close()


def test_a_disk_that_is_full_in_the_middle_of_a_vacuum_loses_nothing(disk: Disk) -> None:
    store = a_store(disk.place / "state", JOBS)
    store.commit(Change(removed=tuple(JobId(number) for number in range(1, JOBS // 2))))
    store.close()
    store = open_store("sqlite", disk.place / "state")
    path = disk.place / "state" / FILE_NAME
    size, kept = path.stat().st_size, store.jobs()
    reported = Maintenance.model_validate(
        {"task": "vacuum", "cron": "0 0 * * *"}, context={"policies": {MAINTENANCE: ["vacuum"]}}
    )
    disk.fill(size // 10)
    with pytest.raises(StoreFull, match="There was no room to write to"):
        tasks.vacuum(maintained(store, NOON), reported, False)
    assert store.jobs() == kept
    disk.free()
    assert tasks.vacuum(maintained(store, NOON), reported, False).well
    assert store.jobs() == kept
    assert path.stat().st_size < 0.7 * size
    store.close()
