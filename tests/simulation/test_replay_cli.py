"""`koala sim replay`: from a trace to a table, schedules and pictures, or to a sentence of what is wrong with it."""

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koalapy.cli.main import app
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


def model(tmp_path: Path, count: int) -> Path:
    """Jobs of the Lublin-Feitelson model."""
    path = tmp_path / "model.swf"
    path.write_text("".join(write_swf(islice(jobs(BATCH, 64, seed=1, stretch=0.3), count), {"Acknowledge": "nobody"})))
    return path


def test_policies_stand_side_by_side_and_all_is_the_same_again(koala: CliRunner, tmp_path: Path, grid: Path) -> None:
    trace = model(tmp_path, 250)
    command = ["sim", "replay", str(trace), "--grid", str(grid), "--size", "vu=64", "--queue", "fcfs,fpfs"]
    said = koala.invoke(app, [*command, "--out", str(tmp_path / "one"), "--json"])
    assert said.exit_code == 0, said.output
    document = json.loads(said.stdout)
    assert document["schema"] == "koala.replay/1"
    assert (document["jobs"], document["clusters"]) == (250, {"vu": 64, "here": 32})
    fcfs, fpfs = document["policies"]
    assert [fcfs["queue"], fpfs["queue"]] == ["fcfs", "fpfs"]
    assert fcfs["ran"] == fpfs["ran"] == 250
    assert fcfs["wait_mean_s"] > fpfs["wait_mean_s"]
    for each in (fcfs, fpfs):
        swf, png, svg = (Path(file) for file in each["files"])
        assert len(list(read_swf(swf))) == 250
        assert png.read_bytes().startswith(b"\x89PNG")
        assert svg.read_bytes().startswith(b"<?xml")
    again = koala.invoke(app, [*command, "--out", str(tmp_path / "other"), "--workers", "1"])
    assert "QUEUE" in again.stdout
    assert "250 of 250 jobs" in again.stderr
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(names) == 7
    assert names == sorted(path.name for path in (tmp_path / "other").iterdir())
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes(), name


def test_a_schedule_is_a_trace_that_can_be_replayed(koala: CliRunner, tmp_path: Path) -> None:
    trace = model(tmp_path, 40)
    first = ["sim", "replay", str(trace), "--grid", "das2", "--placement", "best-fit", "--out", str(tmp_path / "out")]
    assert koala.invoke(app, first).exit_code == 0
    schedule = tmp_path / "out" / "model-fpfs-best-fit.swf"
    second = [
        "sim",
        "replay",
        str(schedule),
        "--grid",
        "das2",
        "--pin",
        "--queue",
        "fcfs",
        "--out",
        str(tmp_path / "out"),
    ]
    said = koala.invoke(app, [*second, "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["jobs"] == 40


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
        ("", ["--size", "vu=64", "--queue", "fcsf"], "There is no queueing policy 'fcsf'. Did you mean fcfs?"),
        ("", ["--size", "vu=64", "--site", "1=uv"], "The grid has no cluster uv. Did you mean vu?"),
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


def test_an_interrupt_leaves_no_file_and_no_process(tmp_path: Path, grid: Path) -> None:
    trace, out = model(tmp_path, 20_000), tmp_path / "out"
    command = [sys.executable, "-m", "koalapy.cli.main", "sim", "replay", str(trace), "--grid", str(grid)]
    command += ["--size", "vu=64", "--queue", "fcfs,fpfs", "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        assert running.stderr is not None
        assert any("2,000 of 20,000 jobs" in line for line in running.stderr)
        assert out.exists()
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to parent and children
        rest = running.stderr.read()
    assert running.returncode == 130
    assert rest.splitlines()[-1] == "koala: interrupted."
    assert "Traceback" not in rest
    assert not out.exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)
