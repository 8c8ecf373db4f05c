"""The experiment `busy`: its jobs, ways to wait, comparisons set by set, and reproducible files."""

import csv
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from koalapy.cli.main import app
from koalapy.experiments.busy.outcome import summary
from koalapy.experiments.busy.tasks import (
    CLUSTERS,
    OURS,
    PROCESSORS,
    REFERENCE,
    RUNS,
    SIZES,
    WAYS,
    WITHOUT,
    BusyTask,
    busy_jobs,
    notes,
    tasks,
)
from koalapy.experiments.plan import Options, Row
from koalapy.experiments.workloads.reading import Ended, TraceJob
from koalapy.experiments.workloads.swf import write_swf
from koalapy.model.errors import RequestError
from koalapy.model.units import DAY, SECOND, Duration


def log(tmp_path: Path, name: str = "drawn.swf", largest: int = 64) -> Path:
    """Write a log of jobs that run for up to eight hours, and request twice as much."""
    rng, at, jobs = Random(name), 0.0, []
    for number in range(1, 300):
        at += rng.expovariate(1 / 1800)
        runtime = Duration(rng.choice((600, 3600, 8 * 3600)) * SECOND)
        jobs.append(
            TraceJob(
                number=number, submitted=Duration(round(at) * SECOND), processors=rng.choice((4, 16, largest)),
                runtime=runtime, requested=Duration(2 * runtime), ended=Ended.COMPLETED,
            )
        )  # fmt: skip
    path = tmp_path / name
    path.write_text("".join(write_swf(jobs, {"Note": "drawn, no log"})))
    return path


@pytest.mark.parametrize("components", WAYS)
def test_jobs_of_any_number_of_components_ask_for_as_many_processors(components: int) -> None:
    length, count = Duration(90 * DAY), 6000 // components
    jobs = busy_jobs(count, components, length, 1)
    assert jobs == busy_jobs(count, components, length, 1)
    assert jobs != busy_jobs(count, components, length, 2)
    assert [job.submitted for job in jobs] == sorted(job.submitted for job in jobs)
    assert jobs[-1].submitted < length
    assert {len(job.components) for job in jobs} == {components}
    assert all(job.walltime > job.runtime for job in jobs)
    mean = sum(SIZES) * sum(RUNS) / len(SIZES) / len(RUNS)
    assert sum(job.processors * job.runtime for job in jobs) == pytest.approx(6000 * mean, rel=0.05)


def test_the_jobs_of_a_set_last_as_long_as_they_give_the_part_that_is_ours(tmp_path: Path) -> None:
    row = BusyTask(log(tmp_path), 40, 1, 1, 30, 1, "queue, race 1").outcome()
    assert row["jobs"] == 30
    assert row["failed"] == 0
    mean = sum(SIZES) * sum(RUNS) / len(SIZES) / len(RUNS)
    days = 30 * mean / (OURS * CLUSTERS * PROCESSORS) / DAY
    assert 2.8 < days < 2.9


def test_the_runs_of_a_set_have_the_same_local_jobs(tmp_path: Path) -> None:
    path = log(tmp_path)
    kinds = [(0, WITHOUT), (2, "wait"), (2, "queue, 15m, race 1"), (2, "queue, 2h, race 4")]
    rows = [BusyTask(path, 90, 1, 1, 12, *kind).outcome() for kind in kinds]
    assert len({row["local_jobs"] for row in rows}) == 1
    assert int(rows[0]["local_jobs"]) > 50
    assert float(rows[0]["local_wait_mean_s"]) > 0
    assert [row["jobs"] for row in rows] == [0, 6, 6, 6]
    assert rows[2:] == [BusyTask(path, 90, 1, 1, 12, *kind).outcome() for kind in kinds[2:]]


def test_each_way_and_set_is_a_task(tmp_path: Path) -> None:
    found = tasks(Options(logs=[Path("a.swf"), Path("b.swf.xz")], sets=2, loads=[70, 100]))
    assert len(found) == len(set(found)) == 2 * 2 * 2 * (1 + sum(map(len, WAYS.values())))
    assert {task.load for task in found} == {70, 100}


def test_notes_list_what_is_left_out_of_a_log(tmp_path: Path) -> None:
    assert notes([log(tmp_path)]) == []
    (note,) = notes([log(tmp_path, "large.swf", largest=512)])
    assert note.startswith("large.swf: left out are jobs larger than 128 processors, with 9")


# ---- comparisons


def row(number: int, components: int, way: str, wait: float, local: float, **changes: int | float) -> Row:
    found: Row = {
        "log": "k", "load": 85, "set": number, "components": components, "way": way, "jobs": 10, "failed": 0,
        "wait_mean_s": wait, "held_hours": 0.0, "used_hours": 50.0, "local_wait_mean_s": local,
    }  # fmt: skip
    return found | changes


def test_waits_are_compared_set_by_set() -> None:
    rows = [
        row(1, 0, WITHOUT, 0, 1000), row(2, 0, WITHOUT, 0, 3000),
        row(1, 1, REFERENCE, 7200, 1000), row(2, 1, REFERENCE, 3600, 3300),
        row(1, 1, "queue", 3600, 1100, held_hours=10.0), row(2, 1, "queue", 3600, 3600, failed=3),
    ]  # fmt: skip
    first, second = summary(rows)
    assert (first["way"], first["wait_h"], first["wait_ratio"], first["failed"]) == (REFERENCE, 1.5, 1.0, 0)
    assert first["local_wait_ratio"] == pytest.approx(4300 / 4000)
    assert (second["way"], second["wait_h"], second["failed"], second["jobs"]) == ("queue", 1.0, 3, 20)
    assert second["wait_ratio"] == pytest.approx(2 / 3)
    assert second["held_by_used"] == pytest.approx(0.1)
    assert second["local_wait_ratio"] == pytest.approx(4700 / 4000)
    assert second["wait_ratio_ci"] == pytest.approx(12.706 * 1200 / 5400)  # the sets differ by -1200 s and 1200 s


def test_a_set_in_which_nobody_waits_gives_no_ratio() -> None:
    rows = [row(1, 0, WITHOUT, 0, 0), row(1, 1, REFERENCE, 0, 0), row(1, 1, "queue", 5, 0)]
    assert [each["wait_ratio"] for each in summary(rows)] == [0, 0]


# ---- the command


def busy(*options: str) -> tuple[int, str]:
    """Run the experiment, and return its status, and all that it has printed."""
    found = CliRunner().invoke(app, ["sim", "run", "busy", *options])
    return found.exit_code, " ".join(found.output.replace("│", " ").split())


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    """The files do not depend on the processes."""
    options = ["--log", str(log(tmp_path)), "--log", str(log(tmp_path, "other.swf")), "--jobs", "3"]
    options += ["--loads", "60,90", "--sets", "1"]
    status, printed = busy(*options, "--workers", "1", "--out", str(tmp_path / "one"))
    assert status == 0, printed
    assert "drawn 90 2 queue, 15m, race 4" in printed
    assert busy(*options, "--workers", "2", "--out", str(tmp_path / "two"))[0] == 0
    names = {"busy.csv", "busy-summary.csv", "busy.png", "busy.svg"}
    assert {path.name for path in (tmp_path / "one").iterdir()} == names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    with (tmp_path / "one" / "busy-summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * sum(map(len, WAYS.values()))
    assert {row["log"] for row in rows} == {"drawn", "other"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Name one or several with --log FILE"),
        (["--log", "LOG", "--loads", "0"], "a whole percentage from 1 to 200"),
        (["--log", "LOG", "--log", "LOG"], "Two of the logs have the same name."),
        (["--log", "LOG", "--jobs", "2"], "Write --jobs 3 or more."),
        (["--log", "MISSING"], "cannot be read"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str], words: str) -> None:
    paths = {"LOG": str(log(tmp_path)), "MISSING": str(tmp_path / "missing.swf")}
    status, printed = busy(*[paths.get(each, each) for each in options], "--out", str(tmp_path / "out"))
    assert status == 2
    assert words in printed


@pytest.mark.parametrize("name", ["dcs-batch", "cs-fairness", "dmm-load"])
def test_other_experiments_take_no_log(tmp_path: Path, name: str) -> None:
    refused = CliRunner().invoke(app, ["sim", "run", name, "--log", str(log(tmp_path))])
    assert refused.exit_code == 2
    assert "does not know --log" in refused.output


def test_a_log_without_jobs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.swf"
    path.write_text("; Note: empty\n")
    with pytest.raises(RequestError, match="has no job for cluster 1"):
        BusyTask(path, 90, 1, 1, 3, 1, "wait").outcome()
