"""Replays beside the jobs of other users: these jobs, the engine's jobs in the same queues, and the figures of both."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from koalapy.cli.main import app
from koalapy.experiments.replay.background import Background, BackgroundRules, background, read_background, work_beyond
from koalapy.experiments.replay.cluster import LocalJob
from koalapy.experiments.replay.comparison import busy_figures
from koalapy.experiments.replay.record import Ran, Record, ReplayJob
from koalapy.experiments.replay.rules import NO_GRACE, Grace
from koalapy.experiments.replay.world import Replay
from koalapy.experiments.workloads.reading import Ended, TraceJob
from koalapy.experiments.workloads.swf import write_swf
from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import RequestError
from koalapy.model.request import WhenBusy
from koalapy.model.settings import Race, Settings
from koalapy.model.units import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.world.agenda import BEGINNING

GRID = """
grid: what-if
clusters:
  vu:    {batch: slurm, connect: "ssh://me@vu.example"}
  delft: {batch: slurm, connect: "ssh://me@delft.example"}
"""


def logged(number: int, at: float, processors: int, runs: float, requested: float | None = None) -> TraceJob:
    """Make a job of a log. Times are in seconds."""
    return TraceJob(
        number=number,
        submitted=Duration(round(at * SECOND)),
        processors=processors,
        runtime=Duration(round(runs * SECOND)),
        requested=None if requested is None else Duration(round(requested * SECOND)),
        ended=Ended.COMPLETED,
    )


def log(tmp_path: Path, jobs: Iterable[TraceJob], name: str = "log.swf") -> Path:
    path = tmp_path / name
    path.write_text("".join(write_swf(jobs, {"Note": "drawn, no log"})))
    return path


def drawn_log(tmp_path: Path, count: int = 400, largest: int = 8) -> Path:
    """Write a log with jobs of up to twelve hours, which request twice as much time as they take."""
    rng, at, jobs = Random(5), 0.0, []
    for number in range(1, count + 1):
        at += rng.expovariate(1 / 1200)
        runs = rng.choice((60, 600, 3600, 4 * 3600, 12 * 3600))
        jobs.append(logged(number, round(at), rng.choice((1, 1, 2, 4, largest)), runs, 2 * runs))
    return log(tmp_path, jobs)


# ---- the local jobs


def test_a_job_of_the_log_has_its_walltime_or_its_run_time_where_it_requested_none(tmp_path: Path) -> None:
    path = log(tmp_path, [logged(1, 0, 2, 60, 100), logged(2, 5, 1, 30), logged(3, 9, 1, 90, 60)])
    jobs = read_background(path, False, NO_GRACE).jobs
    assert [(each.runtime / SECOND, each.walltime / SECOND) for each in jobs] == [(60, 100), (30, 30), (60, 60)]
    assert read_background(path, False, Grace(Duration(MINUTE))).jobs[2].runtime == 90 * SECOND


def test_larger_jobs_are_left_out_and_their_work_is_known(tmp_path: Path) -> None:
    path = log(tmp_path, [logged(1, 0, 2, 60), logged(2, 5, 9, 40), logged(3, 9, 8, 30)])
    jobs = read_background(path, False, NO_GRACE).jobs
    assert work_beyond(jobs, 8) == 360 / 720
    assert work_beyond(jobs, 9) == 0
    drawn = background(BackgroundRules(log=path), {"a": 8}, Duration(HOUR)).jobs["a"]
    assert {each.processors for each in islice(drawn, 20)} == {2, 8}


@pytest.mark.parametrize("load", [0.5, 1.1])
def test_jobs_fill_the_length_with_the_load_that_is_asked_for(tmp_path: Path, load: float) -> None:
    length = Duration(20 * DAY)
    rules = BackgroundRules(log=drawn_log(tmp_path), load=load)
    found = background(rules, {"a": 8, "b": 64}, length)
    assert found.begin == BEGINNING - 2 * DAY
    for name, size in (("a", 8), ("b", 64)):
        jobs = until(found.jobs[name], Instant(BEGINNING + length))
        work = sum(each.processors * each.runtime for each in jobs)
        largest = 8 * 12 * HOUR
        assert 0 <= work - load * size * 22 * DAY <= 2 * largest
        assert [each.submitted for each in jobs] == sorted(each.submitted for each in jobs)
        assert jobs[0].submitted == found.begin


def until(jobs: Iterator[LocalJob], end: Instant) -> list[LocalJob]:
    """Return the jobs that are submitted before an instant."""
    found: list[LocalJob] = []
    for each in jobs:
        if each.submitted >= end:
            return found
        found.append(each)
    return found


def test_without_a_load_the_jobs_come_as_in_the_log(tmp_path: Path) -> None:
    path = log(tmp_path, [logged(1, 7, 1, 60), logged(2, 17, 1, 60), logged(3, 47, 1, 60)])
    jobs = list(islice(background(BackgroundRules(log=path), {"a": 8}, Duration(HOUR)).jobs["a"], 30))
    gaps = [(b.submitted - a.submitted) / SECOND for a, b in pairwise(jobs)]
    assert {round(gap, 3) for gap in gaps} == {10, 30, 13.333}  # the last one before the log begins again


def test_each_cluster_begins_at_a_place_of_its_own_that_follows_from_the_seed(tmp_path: Path) -> None:
    path = drawn_log(tmp_path)

    def begin(seed: int) -> list[list[tuple[int, int, int]]]:
        found = background(BackgroundRules(log=path, load=0.8, seed=seed), {"a": 8, "b": 8}, Duration(9 * DAY))
        return [
            [(each.submitted, each.processors, each.runtime) for each in islice(jobs, 50)]
            for jobs in found.jobs.values()
        ]

    assert begin(1) == begin(1)
    assert begin(1) != begin(2)
    assert begin(1)[0] != begin(1)[1]


def test_a_log_with_one_job_or_one_instant_is_repeated(tmp_path: Path) -> None:
    for number, jobs in enumerate(([logged(1, 0, 1, 60)], [logged(1, 5, 1, 60), logged(2, 5, 2, 60)])):
        path = log(tmp_path, jobs, f"{number}.swf")
        found = background(BackgroundRules(log=path, load=0.9), {"a": 4}, Duration(HOUR)).jobs["a"]
        work = sum(each.processors * each.runtime for each in until(found, Instant(BEGINNING + HOUR)))
        assert work == pytest.approx(0.9 * 4 * (DAY + HOUR), rel=0.01)


def test_a_log_without_a_job_for_a_cluster_is_refused(tmp_path: Path) -> None:
    path = log(tmp_path, [logged(1, 0, 8, 60), logged(2, 0, 1, 0)])
    with pytest.raises(RequestError, match="has no job for b: none of up to 4 processors ran"):
        background(BackgroundRules(log=path), {"a": 8, "b": 4}, Duration(HOUR))


# ---- the world


def local(at: float, processors: int, runs: float, walltime: float | None = None) -> LocalJob:
    """Make a local job. Times are in seconds from the trace's first submission."""
    return LocalJob(
        processors=processors,
        walltime=Duration(round((walltime or runs) * SECOND)),
        submitted=Instant(BEGINNING + round(at * SECOND)),
        runtime=Duration(round(runs * SECOND)),
    )


def job(number: int, at: float, sizes: Sequence[int], runs: float, when_busy: WhenBusy = WhenBusy.QUEUE) -> ReplayJob:
    """Make a job whose components name no cluster, with a walltime of an hour. Times are in seconds."""
    return ReplayJob(
        number=number,
        components=tuple((size, None) for size in sizes),
        submitted=Duration(round(at * SECOND)),
        runtime=Duration(round(runs * SECOND)),
        walltime=HOUR,
        when_busy=when_busy,
    )


OF_THE_TESTS: dict[str, Any] = {"queue_after": MINUTE, "race": Race(most=1)}


class Played:
    """A replay beside local jobs, from its beginning to its end. `ran`: what became of each job, by its number."""

    def __init__(self, jobs: Sequence[ReplayJob], others: dict[str, list[LocalJob]], size: int = 8, **changes: Any):
        self.ran: dict[int, Ran] = {}
        self.record = Record(dict.fromkeys(others, size))
        for each in others.values():
            each.append(local(365 * 86_400, 1, 1))  # later than all that matters
        begin = min(each.submitted for jobs in others.values() for each in jobs)
        settings = Settings(
            clusters=tuple(ClusterSettings(name=name, batch="slurm") for name in others),
            **OF_THE_TESTS | changes,
        )
        beside = Background(
            jobs={name: iter(each) for name, each in others.items()},
            begin=begin,
            counted_until=Instant(BEGINNING + max(each.submitted for each in jobs)),
            patience=Duration(30 * DAY),
        )
        self.world = Replay(settings, Policies(worst_fit, fpfs), self.record.sizes, jobs, self._ended, beside)
        for _ in self.world.run():
            pass

    def _ended(self, ran: Ran) -> None:
        self.ran[ran.number] = ran
        self.record.add(ran)

    def times(self, number: int) -> tuple[float | None, float | None]:
        """Return start and end in seconds."""
        ran = self.ran[number]
        return tuple(None if at is None else at / SECOND for at in (ran.started, ran.ended))  # type: ignore[return-value]

    @property
    def local_waits(self) -> list[float]:
        return [wait / SECOND for wait in self.world.local_waits]


def test_a_job_waits_in_a_batch_queue_behind_the_local_jobs_there() -> None:
    played = Played([job(1, 0, (4,), 100)], {"a": [local(-100, 8, 1000), local(-50, 8, 500)]})
    assert played.times(1) == (1400, 1500)
    assert played.ran[1].places == (("a", 4),)


def test_local_jobs_wait_for_koalapys_jobs_and_only_those_of_the_traces_time_count() -> None:
    others = [local(-50, 2, 10_000), local(20, 8, 500), local(200, 1, 10)]
    played = Played([job(1, 0, (4,), 100), job(2, 150, (1,), 10)], {"a": others})
    assert played.times(1) == (0, 100)
    assert played.local_waits == [9930]
    assert played.world.local_waiting == 0


def test_a_job_is_backfilled_if_its_walltime_fits() -> None:
    """Its batch job lasts for the program's walltime, the barrier's time-out and a margin."""
    others = [local(-100, 6, 4200), local(-50, 8, 500)]
    assert Played([job(1, 0, (2,), 100)], {"a": others}).times(1) == (0, 100)
    late = Played([job(1, 0, (2,), 100)], {"a": [local(-100, 6, 4000), local(-50, 8, 500)]})
    assert 4400 <= (late.times(1)[0] or 0) <= 5000


def test_a_job_that_waits_takes_idle_processors_when_a_poll_shows_them() -> None:
    played = Played([job(1, 0, (8,), 100, WhenBusy.WAIT)], {"a": [local(-100, 8, 1003)]})
    assert played.times(1) == (913, 1013)


def test_processors_that_a_local_job_has_reserved_are_claimed_in_vain_and_uncounted() -> None:
    """A batch system shows them as idle. The job leaves that cluster alone for ten minutes after each claim."""
    others = [local(-100, 6, 4000), local(-50, 8, 500)]
    played = Played([job(1, 0, (2,), 100, WhenBusy.WAIT)], {"a": others})
    start, _ = played.times(1)
    assert start is not None
    assert 4400 <= start <= 4400 + 600
    assert played.world.calls < 60


def test_components_in_queues_are_held_given_back_and_queued_again() -> None:
    """The first one starts at 300 s, is given back after 100 s and queued again for the other's start at 2900 s."""
    others = {"a": [local(-100, 8, 400)], "b": [local(-100, 8, 3000)]}
    played = Played([job(1, 0, (8, 8), 50)], others, barrier_wait=Duration(100 * SECOND))
    assert played.times(1) == (2900, 2950)
    held = played.ran[1].held / SECOND / 8
    assert 100 < held < 700  # it came back after 15 and after 30 minutes
    figures = busy_figures(played.record, played.world.local_waits, 0)
    assert figures.failed == 0
    assert figures.held_hours == pytest.approx(held * 8 / 3600)
    assert figures.used_hours == pytest.approx(16 * 50 / 3600)


def test_a_component_in_two_queues_starts_where_it_comes_first_and_leaves_the_other() -> None:
    others = {"a": [local(-100, 8, 3000)], "b": [local(-100, 8, 1000), local(500, 8, 10), local(510, 8, 70)]}
    played = Played([job(1, 0, (8,), 50)], others, race=Race(most=2))
    assert played.times(1) == (900, 950)
    assert played.ran[1].places == (("b", 8),)
    assert played.ran[1].held == 0
    assert played.local_waits == []


def test_without_a_wait_the_barrier_times_out_and_the_job_fails() -> None:
    others = {"a": [local(-100, 8, 400)], "b": [local(-100, 8, 30_000)]}
    played = Played([job(1, 0, (8, 8), 50)], others, barrier_wait=Duration(0))
    assert played.times(1) == (None, None)
    assert "was not at its barrier" in played.ran[1].reason


def test_a_replay_ends_though_a_job_never_starts() -> None:
    others = [local(3600 * hour, 8, 3600) for hour in range(24 * 40)]
    played = Played([job(1, 0, (8,), 50, WhenBusy.WAIT)], {"a": others})
    assert played.times(1) == (None, None)


@pytest.mark.parametrize("when_busy", WhenBusy)
def test_no_cluster_has_more_than_its_processors_and_the_same_seed_gives_the_same_course(
    tmp_path: Path, when_busy: WhenBusy
) -> None:
    path, sizes, length = drawn_log(tmp_path), {"a": 16, "b": 12, "c": 8}, Duration(6 * DAY)
    rng = Random(2)
    jobs = [
        job(number, 3600 * number, [rng.choice((1, 2, 4)) for _ in range(rng.choice((1, 2)))], 1800, when_busy)
        for number in range(1, 144)
    ]

    def course() -> tuple[list[Ran], list[int]]:
        settings = Settings(clusters=tuple(ClusterSettings(name=name, batch="slurm") for name in sizes))
        ran: list[Ran] = []
        beside = background(BackgroundRules(log=path, load=0.9), sizes, length)
        world = Replay(settings, Policies(worst_fit, fpfs), sizes, jobs, ran.append, beside)
        for _ in world.run():
            pass
        assert not world.local_waiting
        return ran, list(world.local_waits)

    ran, waits = course()
    assert (ran, waits) == course()
    assert len(ran) == len(jobs)
    assert sum(wait > 0 for wait in waits) > 20
    for name, size in sizes.items():
        moves = []
        for each in ran:
            assert each.ended is None or each.started is not None
            moves += [(at, sign * n) for cluster, n in each.places if cluster == name for at, sign in spans(each)]
        used = 0
        for _, change in sorted(moves):
            used += change
            assert 0 <= used <= size


def spans(ran: Ran) -> list[tuple[int, int]]:
    assert ran.started is not None
    assert ran.ended is not None
    return [(ran.started, 1), (ran.ended, -1)]


# ---- the command


def history(tmp_path: Path, count: int) -> Path:
    """Write what koalad keeps of jobs with two components each."""
    component = {
        "cluster": "vu", "named_cluster": None, "processors": 4, "walltime_s": 3600.0,
        "started_at": "2030-01-31T12:00:00.000000Z", "ended_at": "2030-01-31T12:30:00.000000Z",
    }  # fmt: skip
    jobs = [
        {
            "id": number, "owner": "ada", "priority": 10, "sweep": None, "components": [component, component],
            "submitted_at": f"2030-01-31T{number // 60 % 12:02}:{number % 60:02}:00.000000Z",
            "finished_at": "2030-01-31T12:30:00.000000Z",
        } for number in range(0, 20 * count, 20)
    ]  # fmt: skip
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"schema": "koala.jobs/1", "jobs": jobs}, indent=2) + "\n")
    return path


def replay(tmp_path: Path, *options: str) -> Any:
    (tmp_path / "grid.yaml").write_text(GRID)
    command = ["sim", "replay", *options, "--grid", str(tmp_path / "grid.yaml"), "--size", "vu=16", "--size", "delft=8"]
    return CliRunner().invoke(app, command)


def test_ways_to_wait_are_compared_beside_local_jobs(tmp_path: Path) -> None:
    path, trace = drawn_log(tmp_path), history(tmp_path, 12)
    options = [str(trace), "--background", str(path), "--background-load", "0.9"]
    options += ["--when-busy", "wait,queue", "--barrier-wait", "0,15m", "--race", "1,2"]
    said = replay(tmp_path, *options, "--out", str(tmp_path / "one"), "--json")
    assert said.exit_code == 0, said.output
    document = json.loads(said.stdout)
    assert document["background"] == {"log": str(path), "load": 0.9, "seed": 1}
    found = [(each["busy"]["barrier_wait_s"], each["busy"]["race"]) for each in document["policies"]]
    assert found[1:] == [(0, 1), (0, 2), (900, 1), (900, 2)]
    for each in document["policies"]:
        assert each["jobs"] == each["ran"] + each["busy"]["failed"] == 12
        assert each["busy"]["local_jobs"] == document["policies"][0]["busy"]["local_jobs"] > 3
    with (tmp_path / "one" / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    ways = ["wait", "queue, 0s, race 1", "queue, 0s, race 2", "queue, 15m, race 1", "queue, 15m, race 2", ""]
    assert [row["when_busy"] for row in rows] == ways
    assert float(rows[3]["held_hours"]) > 0
    again = replay(tmp_path, *options, "--out", str(tmp_path / "other"))
    assert "LOCAL WAIT" in again.stdout
    assert "worst-fit, queue, 15m, race 2" in again.stdout
    names = {each.name for each in (tmp_path / "one").iterdir()}
    assert "history-fpfs-worst-fit-queue-15m-race-2.swf" in names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes(), name
    seeded = replay(tmp_path, *options, "--seed", "2", "--out", str(tmp_path / "seeded"))
    assert seeded.exit_code == 0
    assert (tmp_path / "one" / "history.csv").read_text() != (tmp_path / "seeded" / "history.csv").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--when-busy", "queue"], "add --background LOG"),
        (["--background-load", "0.8"], "add --background LOG"),
        (["--seed", "3"], "add --background LOG"),
        (
            ["--background", "LOG", "--background-load", "85"],
            "Write --background-load 0.85 for 85 % of all processors.",
        ),
        (["--background", "LOG", "--background-load", "0"], "is not above 0 and at most 3"),
        (["--background", "LOG", "--when-busy", "queu"], "Did you mean queue"),
        (["--background", "LOG", "--when-busy", "wait", "--barrier-wait", "5m"], "no job enters a batch queue"),
        (["--background", "LOG", "--barrier-wait", "soon"], "'soon' is not a duration"),
        (["--background", "LOG", "--race", "0"], "is not a list of whole numbers from 1 to 32"),
        (["--background", "LOG", "--when-busy", "wait", "--race", "2"], "--race changes nothing"),
        (["--race", "2"], "add --background LOG"),
        (["--background", "EMPTY"], "has no job that ran"),
        (["--background", "MISSING"], "cannot be read"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str], words: str) -> None:
    log(tmp_path, [], "EMPTY")
    drawn_log(tmp_path).rename(tmp_path / "LOG")
    paths = {name: str(tmp_path / name) for name in ("LOG", "EMPTY", "MISSING")}
    said = replay(tmp_path, str(history(tmp_path, 2)), *[paths.get(each, each) for each in options])
    assert said.exit_code == 2
    assert words in " ".join(said.stderr.replace("│", " ").split())


def test_a_wait_at_barriers_that_no_job_has_is_pointed_out(tmp_path: Path) -> None:
    trace = log(tmp_path, [logged(1, 0, 2, 60), logged(2, 90, 2, 60)], "trace.swf")
    said = replay(tmp_path, str(trace), "--background", str(drawn_log(tmp_path)), "--barrier-wait", "15m", "--out",
                  str(tmp_path / "out"))  # fmt: skip
    assert said.exit_code == 0, said.output
    assert "--barrier-wait changes nothing: no job has several components." in said.stderr
