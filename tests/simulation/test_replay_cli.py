"""`koala sim replay`: from a trace to a table, schedules and pictures, or to a sentence of what is wrong with it."""

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import groups
import pytest
from typer.testing import CliRunner

from koalapy.cli.main import app
from koalapy.cli.replay import Lines
from koalapy.simulation.workloads.lublin import BATCH, jobs
from koalapy.simulation.workloads.swf import read_swf, write_swf

GRID = """
grid: what-if
clusters:
  vu:   {batch: slurm, connect: "ssh://me@vu.example"}
  here: {batch: local, connect: "local:", slots: 32}
"""
LARGE = "1 0 0 5 65 -1 -1 65 9 -1 1 1 1 -1 -1 -1 -1 -1\n"


@pytest.fixture
def koala() -> CliRunner:
    return CliRunner()


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def model(tmp_path: Path, count: int, stretch: float) -> Path:
    """Jobs of the Lublin-Feitelson model."""
    path = tmp_path / "model.swf"
    path.write_text("".join(write_swf(islice(jobs(BATCH, 64, 1, stretch), count), {"Acknowledge": "nobody"})))
    return path


def test_policies_stand_side_by_side_and_all_is_the_same_again(koala: CliRunner, tmp_path: Path, grid: Path) -> None:
    trace = model(tmp_path, 120, stretch=0.3)
    command = ["sim", "replay", str(trace), "--grid", str(grid), "--size", "vu=64", "--queue", "fcfs,fpfs"]
    said = koala.invoke(app, [*command, "--out", str(tmp_path / "one"), "--json"])
    assert said.exit_code == 0, said.output
    document = json.loads(said.stdout)
    assert document["schema"] == "koala.replay/1"
    assert (document["jobs"], document["clusters"]) == (120, {"vu": 64, "here": 32})
    fcfs, fpfs = document["policies"]
    assert [fcfs["queue"], fpfs["queue"]] == ["fcfs", "fpfs"]
    assert fcfs["ran"] == fpfs["ran"] == 120
    assert fcfs["wait_mean_s"] > fpfs["wait_mean_s"]
    for each in (fcfs, fpfs):
        swf, png, svg = (Path(file) for file in each["files"])
        assert len(list(read_swf(swf))) == 120
        assert png.read_bytes().startswith(b"\x89PNG")
        assert svg.read_bytes().startswith(b"<?xml")
    again = koala.invoke(app, [*command[:-1], "fcfs", "--out", str(tmp_path / "other")])
    assert "QUEUE" in again.stdout
    assert "120 of 120 jobs" in again.stderr
    for path in map(Path, fcfs["files"]):
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name
    assert {path.name for path in (tmp_path / "one").iterdir()} == {
        "model.csv", *(Path(file).name for each in (fcfs, fpfs) for file in each["files"]),
    }  # fmt: skip
    assert_replayed_again(koala, Path(fcfs["files"][0]), grid)


def assert_replayed_again(koala: CliRunner, schedule: Path, grid: Path) -> None:
    """A schedule is a trace, whose partitions name clusters."""
    out = str(schedule.parent / "again")
    command = ["sim", "replay", str(schedule), "--grid", str(grid), "--size", "vu=64", "--pin", "--out", out, "--json"]
    said = koala.invoke(app, command)
    assert said.exit_code == 0, said.output
    (found,) = json.loads(said.stdout)["policies"]
    (again,) = (Path(file) for file in found["files"] if file.endswith(".swf"))
    assert [job.site for job in read_swf(again)] == [job.site for job in read_swf(schedule)]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("1 2 3\n", ["--size", "vu=64"], "line 1 has 3 fields where 18 are needed."),
        (LARGE, ["--size", "vu=64"], "has a job of 65 processors, more than vu has"),
        (LARGE, ["--size", "vu=64", "--lenient"], "left out are 1 larger than any"),
        ("", ["--size", "vu=64"], "has no job that can be replayed."),
        ("", [], "Nothing says how many processors vu has. Say so: --size vu=N."),
        ("", ["--size", "vu"], "--size vu is not NAME=VALUE."),
        ("", ["--size", "vu=many"], "--size vu=many is no number of processors."),
        ("1 2 3\n", ["--grid", "das2"], "line 1 has 3 fields where 18 are needed."),
        ("", ["--grid", "das3"], "There is neither a file nor a system das3."),
        ("", ["--size", "vu=64", "--queue", "fcsf"], "There is no queueing policy 'fcsf'. Did you mean fcfs?"),
        ("", ["--size", "vu=64", "--site", "1=her"], "The grid has no cluster her. Did you mean here?"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_a_sentence_and_nothing_is_left(
    koala: CliRunner, tmp_path: Path, grid: Path, text: str, options: list[str], words: str
) -> None:
    trace = tmp_path / "log.swf"
    trace.write_text(text)
    out = tmp_path / "out"
    said = koala.invoke(app, ["sim", "replay", str(trace), "--grid", str(grid), "--out", str(out), *options])
    assert said.exit_code == 2
    assert words in " ".join(said.stderr.split())
    assert not out.exists()


def test_who_sees_no_bar_hears_of_every_tenth_and_at_least_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 10.0, 59.0, 70.0, 80.0, 150.0])
    lines = Lines(["fpfs", "fcfs"], 1_000, clock=lambda: next(seconds))
    for over in (50, 100, 110, 120, 199, 1_000):
        lines(0, over)
    assert capsys.readouterr().err.splitlines() == [
        "fpfs: 100 of 1,000 jobs, about 3m to go",
        "fpfs: 120 of 1,000 jobs, about 14m40s to go",
        "fpfs: 1,000 of 1,000 jobs",
    ]


def test_an_interrupt_leaves_no_file_and_no_process(tmp_path: Path, grid: Path) -> None:
    trace, out = model(tmp_path, 1_500, stretch=9.0), tmp_path / "out"
    command = [sys.executable, "-m", "koalapy.cli.main", "sim", "replay", str(trace), "--grid", str(grid)]
    command += ["--size", "vu=64", "--queue", "fcfs,fpfs", "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        assert running.stderr is not None
        assert any("of 1,500 jobs" in line for line in running.stderr)
        assert out.exists()
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to parent and children
        rest = running.stderr.read()
    assert running.returncode == 130
    assert rest.splitlines()[-1] == "koala: interrupted."
    assert "Traceback" not in rest
    assert not out.exists()
    groups.await_end(running.pid)
