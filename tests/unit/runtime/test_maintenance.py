"""Maintenance by cron: when tasks run, what is made up, and what is reported of failures."""

import csv
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.triggers.interval import IntervalTrigger
from engine_play import Play, component

from koalapy.config.hours import parse_hours
from koalapy.config.maintenance import MAINTENANCE, Maintenance
from koalapy.model.change import Change
from koalapy.model.errors import KoalaError, Reason, RequestError, TransientError
from koalapy.model.events import ClusterLeft
from koalapy.model.identity import JobId, Tag
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.model.usage import By, Sum
from koalapy.runtime.maintenance import pruning, tasks
from koalapy.runtime.maintenance import runner as runners
from koalapy.runtime.maintenance.cron import WallClock
from koalapy.runtime.maintenance.runner import Runner
from koalapy.runtime.maintenance.task import Koalad, Outcome
from koalapy.runtime.unknown import Survey, UnknownTag
from koalapy.store.contract import MaintenanceRun
from koalapy.store.open import FILE_NAME, open_store

AMSTERDAM = ZoneInfo("Europe/Amsterdam")


def at(*fields: int) -> Instant:
    """UTC."""
    return Instant(round(datetime(*fields, tzinfo=UTC).timestamp()) * SECOND)  # type: ignore[misc, arg-type]


def times(cron: str, since: Instant, count: int) -> list[str]:
    """The next times of a cron line in Amsterdam, in UTC."""
    clock, found = WallClock(parse_hours(cron), AMSTERDAM), []
    for _ in range(count):
        following = clock.after(since)
        assert following is not None
        since = following
        found.append(f"{datetime.fromtimestamp(since // SECOND, UTC):%m-%d %H:%M}")
    return found


def test_a_time_that_summer_time_skips_comes_an_hour_later_by_the_clock() -> None:
    assert times("30 2 * * *", at(2026, 3, 28, 0), 3) == ["03-28 01:30", "03-29 01:30", "03-30 00:30"]


def test_a_time_that_comes_twice_in_autumn_counts_once() -> None:
    assert times("30 2 * * *", at(2026, 10, 24, 0), 3) == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]


def test_every_hour_is_every_hour_in_autumn_too() -> None:
    assert times("30 * * * *", at(2026, 10, 25, 0), 3) == ["10-25 00:30", "10-25 01:30", "10-25 02:30"]


def test_weekdays_are_crons_and_either_kind_of_day_will_do() -> None:
    assert times("0 12 * * 0", at(2026, 11, 22, 0), 2) == ["11-22 11:00", "11-29 11:00"]  # Sundays
    assert times("0 12 24 * 7", at(2026, 11, 22, 0), 3) == ["11-22 11:00", "11-24 11:00", "11-29 11:00"]


# ---- the runner


class World:
    """A store in a file, a clock that is set by hand, and an engine that nobody asks."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.time = at(2026, 11, 22, 12)
        self.store = open_store("sqlite", place)
        self.submitted: list[tuple[Path, str]] = []

    def runner(self, *entries: Maintenance) -> Runner:
        return Runner(entries, self.koalad(), AMSTERDAM)

    def koalad(self, **changes: Any) -> Koalad:
        def nothing(*arguments: Any) -> Any:
            raise AssertionError("not asked for here")

        made = Koalad(
            grid="das",
            store=self.store,
            now=lambda: self.time,
            ask=lambda question: question(None),
            do=nothing,
            unknown=nothing,  # type: ignore[arg-type]
            clusters=lambda: [],
            examine=nothing,
            submit=self._submit,
            usage=nothing,
            charges=nothing,
            ending=threading.Event(),
        )
        return replace(made, **changes)

    def _submit(self, path: Path, key: str) -> JobId:
        self.submitted.append((path, key))
        return JobId(7)


@pytest.fixture
def world(tmp_path: Path) -> Any:
    found = World(tmp_path / "state")
    yield found
    found.store.close()


def entry(task: str, cron: str = "0 3 * * *", **options: Any) -> Maintenance:
    known = ["prune-history", "prune-output", "backup", "report", "vacuum", "check", "clean-unknown", "submit"]
    values = {"task": task, "cron": cron, **options}
    return Maintenance.model_validate(values, context={"policies": {MAINTENANCE: known}})


def ran(world: Any, name: str, ago: Duration, **fields: Any) -> None:
    began = Instant(world.time - ago)
    run = MaintenanceRun(name=name, task=name, began=began, ended=began, well=True, message="Done.")
    world.store.record_maintenance(replace(run, **fields))


@pytest.mark.parametrize(
    ("ago", "missed"),
    [(Duration(8 * HOUR), []), (Duration(11 * HOUR), ["vacuum"]), (Duration(300 * DAY), ["vacuum"])],
    ids=["since its last time", "once missed", "long missed, and made up once"],
)
def test_a_missed_run_is_made_up_once(world: Any, ago: Duration, missed: list[str]) -> None:
    ran(world, "vacuum", ago)
    assert world.runner(entry("vacuum")).missed() == missed


def test_what_was_missed_for_more_than_a_day_is_not_made_up(world: Any) -> None:
    ran(world, "vacuum", Duration(60 * DAY))
    assert world.runner(entry("vacuum", "0 3 1 * *")).missed() == []


def test_a_run_that_was_cut_off_is_made_up_and_one_of_the_future_is_not(world: Any) -> None:
    ran(world, "vacuum", Duration(5 * MINUTE), ended=None)
    assert world.runner(entry("vacuum")).missed() == ["vacuum"]
    ran(world, "vacuum", Duration(-365 * DAY))
    assert world.runner(entry("vacuum")).missed() == []


def test_a_run_is_recorded_and_what_fails_stands_until_it_goes_well(world: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "backups"
    blocked.write_text("no directory")
    runner = world.runner(entry("backup", to=str(blocked)))
    run = runner.run("backup", False, {})
    assert (run.well, "cannot be copied" in run.message) == (False, True)
    assert len(runner.troubles()) == 1
    assert world.store.maintenance() == [run]
    blocked.unlink()
    assert world.runner(entry("backup", to=str(blocked))).troubles() == runner.troubles()
    assert runner.run("backup", False, {}).well
    assert runner.troubles() == []


def test_a_run_is_reported_as_over_only_once_that_is_stored(world: Any) -> None:
    """By whoever asks just before each record is written."""
    reported: list[tuple[Any, Any]] = []

    def ask(question: Callable[[Any], Any]) -> Any:
        (listed,) = runner.entries()
        stored = {run.name: run for run in world.store.maintenance()}
        reported.append((listed.last, stored.get("vacuum")))
        return question(None)

    runner = Runner([entry("vacuum")], world.koalad(ask=ask), AMSTERDAM)
    assert runner.run("vacuum", False, {}).well
    assert len(reported) == 2
    assert all(listed == stored for listed, stored in reported), reported


def test_a_dry_run_does_nothing_and_is_not_recorded(world: Any, tmp_path: Path) -> None:
    run = world.runner(entry("backup", to=str(tmp_path / "b"))).run("backup", True, {})
    assert run.well
    assert not (tmp_path / "b").exists()
    assert world.store.maintenance() == []


def test_a_task_that_is_not_in_the_file_is_run_with_what_it_is_given(world: Any, tmp_path: Path) -> None:
    runner = world.runner()
    assert runner.run("backup", False, {"to": str(tmp_path / "b")}).well
    with pytest.raises(RequestError, match="lacks `to`"):
        runner.run("backup", False, {})
    with pytest.raises(RequestError, match="maintenance task"):
        runner.run("prune-everything", False, {})


def test_one_task_runs_at_a_time(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[KoalaError] = []

    def task(koalad: Koalad, reported: Maintenance, dry: bool) -> Outcome:
        with pytest.raises(TransientError, match="Another maintenance task is running") as found:
            runner.run("vacuum", False, {})
        refused.append(found.value)
        return Outcome(True, "Done.")

    monkeypatch.setattr(runners, "_load", lambda name: task)
    runner = world.runner(entry("vacuum"))
    assert runner.run("vacuum", False, {}).well
    assert len(refused) == 1


def test_nothing_is_pruned_once_after_a_leap_of_the_clock(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned: list[Instant] = []

    def task(koalad: Koalad, reported: Maintenance, dry: bool) -> Outcome:
        pruned.append(koalad.now())
        return Outcome(True, "Done.")

    monkeypatch.setattr(runners, "_load", lambda name: task)
    ran(world, "prune-history", Duration(365 * DAY))
    runner = world.runner(entry("prune-history", keep="30d"))
    runner._by_cron("prune-history")
    assert pruned == []
    assert "If the clock is right, the next run prunes" in runner.troubles()[0]
    world.time = Instant(world.time + DAY)
    runner._by_cron("prune-history")
    assert pruned == [world.time]


def test_a_run_by_cron_happens_and_its_next_is_reported(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By APScheduler's own thread: a run that was missed is made up at the start."""
    done = threading.Event()

    def task(koalad: Koalad, reported: Maintenance, dry: bool) -> Outcome:
        done.set()
        return Outcome(True, "Done.")

    monkeypatch.setattr(runners, "_load", lambda name: task)
    ran(world, "vacuum", Duration(20 * HOUR))
    runner = world.runner(entry("vacuum"))
    runner.start()
    assert done.wait(60)
    runner.stop()
    (reported,) = runner.entries()
    assert reported.next_at == at(2026, 11, 23, 2)


@pytest.fixture
def starting(world: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return what happens when koalad makes up a run: each look at a cluster that connects late, and the task."""
    monkeypatch.setattr(runners, "_POLL_S", 0.0)

    def start(looks: int, meanwhile: Callable[[Runner], object] = lambda runner: None) -> list[str]:
        happened: list[str] = []

        def clusters() -> list[Any]:
            happened.append("look")
            if len(happened) == 1:
                meanwhile(runner)
            trouble = Reason("no_connection", "transient", "It is not connected yet.")
            return [SimpleNamespace(summary=SimpleNamespace(trouble=trouble if len(happened) < looks else None))]

        def task(koalad: Koalad, reported: Maintenance, dry: bool) -> Outcome:
            happened.append("task")
            return Outcome(True, "Done.")

        monkeypatch.setattr(runners, "_load", lambda name: task)
        ran(world, "prune-history", Duration(HOUR), ended=None, well=False)
        runner = Runner([entry("prune-history", keep="1d")], world.koalad(clusters=clusters), AMSTERDAM)
        runner._by_cron("prune-history", made_up=True)
        return happened

    return start


def test_a_run_that_is_made_up_waits_until_clusters_are_connected(starting: Callable[..., list[str]]) -> None:
    assert starting(3) == ["look", "look", "look", "task"]


def test_a_run_that_is_made_up_does_not_wait_for_ever(starting: Callable[..., list[str]]) -> None:
    assert starting(10_000) == ["look"] * 120 + ["task"]


def test_what_a_person_ran_meanwhile_is_not_made_up(starting: Callable[..., list[str]]) -> None:
    assert starting(3, lambda runner: runner.run("prune-history", False, {})) == ["look", "task", "look"]


# ---- the tasks on the store


def a_job(number: int) -> Job:
    request = Request(name="job", components=(ComponentRequest(processors=1, executable="./a"),))
    return Job(
        id=JobId(number), owner="me", request=request, state=JobState.WAITING, position=number, submitted_at=Instant(1),
    )  # fmt: skip


def back_up(world: Any, **options: Any) -> Outcome:
    return tasks.back_up(world.koalad(), entry("backup", **options), False)


def test_a_backup_is_restored_over_a_newer_store(world: Any, tmp_path: Path) -> None:
    world.store.commit(Change(jobs=(a_job(1),)))
    assert back_up(world, to=str(tmp_path / "b")).well
    world.store.commit(Change(jobs=(a_job(2),)))
    (backup,) = (tmp_path / "b").iterdir()
    assert backup.stat().st_mode & 0o077 == 0
    world.store.close()
    for name in ("", "-wal", "-shm"):
        (world.place / (FILE_NAME + name)).unlink(missing_ok=True)
    (world.place / FILE_NAME).write_bytes(backup.read_bytes())
    world.store = open_store("sqlite", world.place)
    assert world.store.jobs() == [a_job(1)]


def test_the_newest_backups_are_kept_and_other_files_are_left_alone(world: Any, tmp_path: Path) -> None:
    place = tmp_path / "b"
    place.mkdir()
    (place / "das-other-20200101T000000Z.sqlite").write_text("another store's")
    for _ in range(4):
        assert back_up(world, to=str(place), keep="2").well
        world.time = Instant(world.time + HOUR)
    names = sorted(path.name for path in place.iterdir())
    stem = f"das-{world.store.instance}"
    assert names == sorted(
        ["das-other-20200101T000000Z.sqlite", f"{stem}-20261122T140000Z.sqlite", f"{stem}-20261122T150000Z.sqlite"]
    )


@pytest.fixture
def small_files() -> Callable[[int], AbstractContextManager[None]]:
    """A file system without room: this process can write no file of more bytes than these."""

    @contextmanager
    def limited(most: int) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)

    return limited


def test_a_full_disk_leaves_the_older_backup_and_no_part(
    world: Any, tmp_path: Path, small_files: Callable[[int], AbstractContextManager[None]]
) -> None:
    assert back_up(world, to=str(tmp_path / "b"), keep="1").well
    before = list((tmp_path / "b").iterdir())
    world.time = Instant(world.time + HOUR)
    with small_files(8192), pytest.raises(KoalaError):
        back_up(world, to=str(tmp_path / "b"), keep="1")
    assert list((tmp_path / "b").iterdir()) == before


def test_vacuum_gives_room_back(world: Any) -> None:
    jobs = [replace(a_job(number), key="k" * 1000 + str(number)) for number in range(1, 2000)]
    world.store.commit(Change(jobs=tuple(jobs)))
    world.store.commit(Change(removed=tuple(job.id for job in jobs)))
    tasks.vacuum(world.koalad(), entry("vacuum"), False)
    sizes = [(world.place / (FILE_NAME + name)).stat().st_size for name in ("", "-wal")]
    assert sum(sizes) < 300_000
    world.store.commit(Change(jobs=(a_job(1),)))


def test_a_run_that_was_cut_off_submits_its_job_under_the_same_key_again(world: Any) -> None:
    """The end of the first run is not recorded, as if koalad had been killed after the job was accepted."""
    nightly = entry("submit", file="/jobs/a.yaml")
    began = world.time
    runner = world.runner(nightly)
    runner._koalad.ending.set()
    runner._run(nightly, tasks.submit, dry=False, recorded=True)
    world.time += 60 * SECOND
    again = world.runner(nightly)
    assert again.missed() == ["submit"]
    again._by_cron("submit", made_up=True)
    world.time += DAY
    again._by_cron("submit")
    assert world.submitted == [
        (Path("/jobs/a.yaml"), f"maintenance/submit/{instant}") for instant in (began, began, world.time)
    ]
    assert again.missed() == []


# ---- the report of usage

USED: dict[tuple[str | int, ...], Sum] = {
    ("ada",): Sum(run=3_600 * SECOND, attempts=2),
    ("=bob, the 2nd",): Sum(held=SECOND // 2, estimated=SECOND // 2),
}


def report(world: Any, dry: bool = False, **options: Any) -> tuple[Outcome, list[tuple[By, Instant | None]]]:
    asked: list[tuple[By, Instant | None]] = []

    def usage(by: By, since: Instant | None) -> dict[tuple[str | int, ...], Sum]:
        asked.append((by, since))
        return dict(USED)

    return tasks.report(world.koalad(usage=usage), entry("report", **options), dry), asked


def test_a_report_has_the_lines_of_koala_usage_in_a_file_of_its_day(world: Any, tmp_path: Path) -> None:
    outcome, asked = report(world, to=str(tmp_path / "r"))
    assert (outcome.well, asked) == (True, [(By.USER, None)])
    (path,) = (tmp_path / "r").iterdir()
    assert path.name == f"das-{world.store.instance}-usage-2026-11-22.csv"
    lines = list(csv.DictReader(path.read_text().splitlines()))
    assert [(line["user"], line["run"], line["held"], line["attempts"]) for line in lines] == [
        ("=bob, the 2nd", "0.0", "0.5", "0"),
        ("ada", "3600.0", "0.0", "2"),
    ]


def test_a_report_of_some_time_by_something_else(world: Any, tmp_path: Path) -> None:
    _, asked = report(world, to=str(tmp_path), by="user", since="7d")
    assert asked == [(By.USER, Instant(world.time - 7 * DAY))]


def test_the_last_report_of_a_day_replaces_those_before_and_no_other(world: Any, tmp_path: Path) -> None:
    for hours in (0, 1, 24):
        world.time = Instant(at(2026, 11, 22, 12) + hours * HOUR)
        assert report(world, to=str(tmp_path / "r"))[0].well
    assert sorted(path.name[-14:-4] for path in (tmp_path / "r").iterdir()) == ["2026-11-22", "2026-11-23"]


def test_a_report_on_a_full_disk_leaves_the_one_before_and_no_part(
    world: Any, tmp_path: Path, small_files: Callable[[int], AbstractContextManager[None]]
) -> None:
    report(world, to=str(tmp_path / "r"))
    (path,) = (tmp_path / "r").iterdir()
    before = path.read_bytes()
    with small_files(16), pytest.raises(KoalaError, match="cannot be written"):
        report(world, to=str(tmp_path / "r"))
    assert list((tmp_path / "r").iterdir()) == [path]
    assert path.read_bytes() == before


def test_a_dry_report_writes_nothing(world: Any, tmp_path: Path) -> None:
    assert "would be written" in report(world, dry=True, to=str(tmp_path / "r"))[0].message
    assert not (tmp_path / "r").exists()


# ---- what it costs to be killed

KILLED = """
import os, resource, signal, sys
from dataclasses import fields
from pathlib import Path
from koalapy.config.maintenance import Maintenance
from koalapy.runtime.maintenance import tasks
from koalapy.runtime.maintenance.task import Koalad
from koalapy.store.open import open_store

place, target, where = sys.argv[1:]
given = {each.name: None for each in fields(Koalad)}
koalad = Koalad(**given | {"grid": "das", "store": open_store("sqlite", Path(place)), "now": lambda: 0})
known = {"policies": {"maintenance": ["backup", "vacuum"]}}
if where == "before its name":
    sys.addaudithook(lambda event, arguments: event == "os.rename" and os.kill(os.getpid(), signal.SIGKILL))
else:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the kernel kills it in the middle of writing a file
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
if where == "vacuum":
    tasks.vacuum(koalad, None, False)
else:
    told = {"task": "backup", "cron": "0 0 * * *", "to": target}
    tasks.back_up(koalad, Maintenance.model_validate(told, context=known), False)
raise SystemExit("it was not killed")
"""


def killed(world: Any, target: Path, where: str) -> list[Job]:
    """The jobs of a large store whose koalad was killed; the world's store is open again."""
    jobs = [replace(a_job(number), key="k" * 1000 + str(number)) for number in range(1, 1000)]
    world.store.commit(Change(jobs=tuple(jobs)))
    world.store.close()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(world.place), str(target), where],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (-signal.SIGKILL, -signal.SIGXFSZ), done
    world.store = open_store("sqlite", world.place)
    return jobs


@pytest.mark.parametrize("where", ["in the copy", "before its name"])
def test_a_backup_that_was_killed_leaves_nothing_under_a_backups_name(world: Any, tmp_path: Path, where: str) -> None:
    place = tmp_path / "b"
    jobs = killed(world, place, where)
    stem = f"das-{world.store.instance}"
    assert {path.name for path in place.iterdir()} <= {f"{stem}.part", f"{stem}.part-journal"}
    assert (place / f"{stem}.part").exists()
    assert back_up(world, to=str(place), keep="1").well
    (backup,) = place.iterdir()
    assert backup.name == f"{stem}-20261122T120000Z.sqlite"
    assert world.store.jobs() == jobs


def test_a_vacuum_that_was_killed_loses_nothing(world: Any, tmp_path: Path) -> None:
    jobs = killed(world, tmp_path, "vacuum")
    assert world.store.jobs() == jobs
    assert tasks.vacuum(world.koalad(), entry("vacuum"), False).well
    assert world.store.jobs() == jobs


# ---- a task that takes longer than its period


def test_a_task_longer_than_its_period_leaves_out_runs_and_reports_it(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out, ended = threading.Event(), threading.Event()
    ends: list[MaintenanceRun] = []

    def task(koalad: Koalad, reported: Maintenance, dry: bool) -> Outcome:
        assert left_out.wait(60)
        return Outcome(True, "Done.")

    def ask(question: Callable[[Any], Any]) -> None:
        question(None)
        (run,) = world.store.maintenance()
        if run.ended is not None:
            ends.append(run)
            ended.set()

    monkeypatch.setattr(runners, "_load", lambda name: task)
    runner = Runner([entry("vacuum", "* * * * *")], world.koalad(ask=ask), AMSTERDAM)
    runner._triggers["vacuum"] = IntervalTrigger(seconds=0.01)
    runner._scheduler.add_listener(lambda event: left_out.set(), EVENT_JOB_MAX_INSTANCES)
    runner.start()
    assert ended.wait(60)
    runner.stop()
    assert re.match(r"Done\. It took longer than its period: (1 run was|\d+ runs were) left out\.", ends[0].message)
    assert ends[0].well


# ---- unknown directories


class Unknown:
    """Clusters with directories that the store does not know; one of them is out of reach."""

    def __init__(self, **stays: bool) -> None:
        self.stays, self.cleaned = stays, list[tuple[str, str]]()

    def look(self) -> list[Survey]:
        def tag(name: str, days: float, **fields: Any) -> UnknownTag:
            values = {"cluster": "vu", "tag": Tag(name), "own": True, "directory": True, "age_s": days * 86_400}
            return UnknownTag(**values | fields)  # type: ignore[arg-type]

        tags = (
            tag("kabcde000000001", 40),
            tag("kabcde000000002", 29),
            tag("kabcde000000003", 40, own=False),
            tag("kabcde000000004", 40, batch_id="7"),
            tag("kabcde000000005", 40, heartbeat_age_s=10.0),
            tag("kabcde000000006", 40, heartbeat_age_s=10.0, ended=True),
            tag("kabcde000000007", 40, directory=False),
            tag("kabcde000000008", 40, age_s=None),
        )
        lost = Reason("out_of_reach", "transient", "delft cannot be reached.")
        return [Survey("vu", Instant(1), tags), Survey("delft", Instant(1), trouble=lost)]

    def clean(self, cluster: str, tag: str, timeout_s: float) -> bool:
        self.cleaned.append((cluster, tag))
        return not self.stays.get(tag, False)


OLD = ["kabcde000000001", "kabcde000000006"]


def clean_unknown(world: Any, unknown: Unknown, dry: bool = False, **options: Any) -> Outcome:
    return tasks.clean_unknown(world.koalad(unknown=unknown), entry("clean-unknown", older_than="30d", **options), dry)


def test_unknown_directories_are_only_reported(world: Any) -> None:
    unknown = Unknown()
    outcome = clean_unknown(world, unknown)
    assert (outcome.well, unknown.cleaned) == (False, [])
    assert outcome.message.startswith("2 unknown directories of this store are older than 30d: kabcde000000001 on vu, ")
    assert "delft could not be asked." in outcome.message


def test_unknown_directories_are_removed_if_really_and_no_dry_run(world: Any) -> None:
    unknown = Unknown()
    assert clean_unknown(world, unknown, dry=True, really=True).well
    assert unknown.cleaned == []
    outcome = clean_unknown(world, unknown, really=True)
    assert (outcome.well, unknown.cleaned) == (True, [("vu", each) for each in OLD])
    assert outcome.message.startswith("2 removed: ")


def test_a_directory_that_is_not_removed_in_time_is_reported(world: Any) -> None:
    outcome = clean_unknown(world, Unknown(kabcde000000006=True), really=True)
    assert (outcome.well, "Still being removed: kabcde000000006." in outcome.message) == (False, True)


def test_an_entry_of_the_file_may_be_run_otherwise(world: Any) -> None:
    """Its own values are read once more, as the file has them."""
    unknown = Unknown()
    runner = Runner([entry("clean-unknown", older_than="30d")], world.koalad(unknown=unknown), AMSTERDAM)
    assert runner.run("clean-unknown", False, {"really": True}).well
    assert [tag for _, tag in unknown.cleaned] == OLD


# ---- the check of all clusters


def test_a_check_reports_what_the_examination_found_or_else_the_state_of_the_link(world: Any) -> None:
    def looked(found: dict[str, list[str]]) -> Outcome:
        views = {"well": None, "ill": None, "lost": Reason("lost", "transient", "The line is dead.")}
        reports = [SimpleNamespace(summary=SimpleNamespace(name=name, trouble=why)) for name, why in views.items()]
        koalad = world.koalad(clusters=lambda: reports, examine=lambda ending: found)
        return tasks.check(koalad, entry("check"), False)

    outcome = looked({"ill": ["queue: It is closed. Name another."]})
    assert not outcome.well
    assert outcome.message.startswith("ill: queue: It is closed. Name another. lost: The line is dead.")
    assert looked({"lost": ["login: Refused."]}).message.startswith("lost: login: Refused. `koala doctor`")


# ---- a cluster that does not come back


def test_after_seven_days_of_waiting_for_a_cluster_a_person_is_asked(world: Any, play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.end(play.attempts(job)[0])
    play.obey()
    world.store.commit(Change(jobs=(play.job(job),), attempts=tuple(play.job(job).present)))
    play.lose("alpha")
    koalad = world.koalad(ask=lambda question: question(play.engine))
    keep = entry("prune-history", keep="1d")
    over = play.job(job).finished_at
    assert over is not None
    world.time = Instant(over + 8 * DAY - 1)
    early = pruning.prune_history(koalad, keep, False)
    assert (early.well, "1 job kept until alpha can be reached" in early.message) == (True, True)
    world.time = Instant(over + 8 * DAY)
    late = pruning.prune_history(koalad, keep, False)
    assert not late.well
    assert late.message.endswith(
        "1 of them has waited for alpha for more than 7d. Bring it back, or leave their directories there:"
        " `koala maintenance run prune-history --set keep=1d --set without=alpha`."
    )
    assert world.store.jobs() == [play.job(job)]
    play.apply(ClusterLeft(name="alpha"))
    gone = pruning.prune_history(koalad, keep, False)
    assert not gone.well
    assert gone.message.endswith(
        "1 job kept: their directories are on alpha, which is not in the grid any more. Leave them there:"
        " `koala maintenance run prune-history --set keep=1d --set without=alpha`."
    )
    world.time = Instant(over + 8 * DAY - 1)
    assert "--set without=alpha" in pruning.prune_history(koalad, keep, False).message, "it is said at once"
