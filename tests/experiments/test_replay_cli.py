"""`koala sim replay`: from a trace to a table, schedules and pictures, or to an error in one sentence."""

import csv
import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import groups
import pytest
from typer.testing import CliRunner, Result

from koalapy.cli.main import app
from koalapy.cli.sim_replay_report import Lines
from koalapy.experiments.workloads.lublin import BATCH, jobs
from koalapy.experiments.workloads.swf import read_swf, write_swf

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


def test_policies_are_compared_and_repeated_runs_give_the_same_files(
    koala: CliRunner, tmp_path: Path, grid: Path
) -> None:
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
    assert (fcfs["max_overtakes"], fpfs["max_overtakes"], document["as_logged"]) == (None, 20, None)
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
        ("", [], "It is unknown how many processors vu has. Give the number: --size vu=N."),
        ("", ["--size", "vu"], "--size vu is not NAME=VALUE."),
        ("", ["--size", "vu=many"], "--size vu=many is not a number of processors."),
        ("1 2 3\n", ["--grid", "das2"], "line 1 has 3 fields where 18 are needed."),
        ("", ["--grid", "das3"], "There is neither a file nor a system das3."),
        ("", ["--size", "vu=64", "--queue", "fcsf"], "There is no queueing policy 'fcsf'. Did you mean fcfs?"),
        ("1 2 3\n4 5 6\n", ["--size", "vu=64", "--lenient"], "are needed, and so have all 2 lines."),
        (LARGE, ["--size", "vu=64", "--lenient"], "Give the sizes of the clusters: --size CLUSTER=N."),
        ("", ["--size", "vu=64", "--grace", "soon"], "--grace soon is neither a duration nor a percentage"),
        ("", ["--size", "vu=64", "--max-overtakes", "-1"], "--max-overtakes -1 is not a list of whole numbers"),
        ("", ["--queue", "fcfs", "--max-overtakes", "9"], "Add another policy, as with --queue fcfs,fpfs"),
        ("", ["--size", "vu=64", "--site", "1=her"], "The grid has no cluster her. Did you mean here?"),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence_and_leaves_no_file(
    koala: CliRunner, tmp_path: Path, grid: Path, text: str, options: list[str], words: str
) -> None:
    trace = tmp_path / "log.swf"
    trace.write_text(text)
    out = tmp_path / "out"
    said = koala.invoke(app, ["sim", "replay", str(trace), "--grid", str(grid), "--out", str(out), *options])
    assert said.exit_code == 2
    assert words in " ".join(said.stderr.split())
    assert not out.exists()


ONE = "grid: one\nclusters: {vu: {batch: slurm, connect: 'ssh://me@vu.example'}}\n"
SIZES = [4 * (7 * number % 17) for number in range(1, 17)]  # 4 to 64
WAITED = "".join(
    f"{n} {n} {60 * n} 100 {size} -1 -1 {size} 90 -1 1 1 1 -1 -1 -1 -1 -1\n" for n, size in enumerate(SIZES, 1)
)


def replayed(koala: CliRunner, tmp_path: Path, *options: str) -> Result:
    """A log with waits on one cluster; its jobs ran 10 s beyond their requests."""
    (tmp_path / "one.yaml").write_text(ONE)
    (tmp_path / "log.swf").write_text(WAITED)
    paths = [str(tmp_path / "log.swf"), "--grid", str(tmp_path / "one.yaml"), "--out", str(tmp_path / "out")]
    said = koala.invoke(app, ["sim", "replay", *paths, *options])
    assert said.exit_code == 0, said.output
    return said


def test_the_waits_of_the_trace_are_below_the_policies(koala: CliRunner, tmp_path: Path) -> None:
    said = replayed(koala, tmp_path, "--size", "vu=64")
    assert [line.split()[:2] for line in said.stdout.splitlines()] == [
        ["QUEUE", "PLACEMENT"], ["fpfs:20", "worst-fit"], ["as", "logged"], [],
        ["QUEUE", "PLACEMENT"], ["fpfs:20", "worst-fit"], ["as", "logged"],
    ]  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "out" / "log.csv").read_text().splitlines()))
    assert [(row["queue"], row["max_overtakes"]) for row in rows] == [("fpfs", "20"), ("as logged", "")]
    assert float(rows[1]["wait_mean_s"]) == 60 * 8.5
    document = json.loads(replayed(koala, tmp_path, "--size", "vu=64", "--json").stdout)
    assert document["as_logged"]["wait_mean_s"] == 60 * 8.5
    sizes = [document["policies"][0][f"{size}_ran"] for size in ("small", "medium", "large")]
    assert sizes == [0, 2, 14]


def test_max_overtakes_is_varied_by_an_option_and_not_for_fcfs(koala: CliRunner, tmp_path: Path) -> None:
    options = ("--size", "vu=64", "--queue", "fcfs,fpfs", "--max-overtakes", "0,5,0", "--json")
    document = json.loads(replayed(koala, tmp_path, *options).stdout)
    found = [(each["queue"], each["max_overtakes"]) for each in document["policies"]]
    assert found == [("fcfs", None), ("fpfs", 0), ("fpfs", 5)]
    fcfs, none, some = document["policies"]
    assert fcfs["wait_mean_s"] == none["wait_mean_s"] != some["wait_mean_s"]
    assert len({file for each in document["policies"] for file in each["files"]}) == 9


def test_on_one_cluster_one_placement_policy_is_run_with_a_message(koala: CliRunner, tmp_path: Path) -> None:
    said = replayed(koala, tmp_path, "--size", "vu=64", "--placement", "worst-fit,best-fit", "--json")
    assert "All placement policies give the same schedule, since there is one cluster" in said.stderr
    assert [each["placement"] for each in json.loads(said.stdout)["policies"]] == ["worst-fit"]


def test_a_grace_lets_jobs_run_beyond_their_walltime(koala: CliRunner, tmp_path: Path) -> None:
    counts = {
        grace: json.loads(replayed(koala, tmp_path, "--size", "vu=64", "--json", *grace).stdout)["policies"][0][
            "killed"
        ]
        for grace in [(), ("--grace", "10s"), ("--grace", "12%"), ("--grace", "5%")]
    }
    assert list(counts.values()) == [16, 0, 0, 16]


def test_a_much_too_small_machine_causes_a_warning(koala: CliRunner, tmp_path: Path) -> None:
    said = replayed(koala, tmp_path, "--size", "vu=8", "--lenient")
    warned = "WARNING: left out are 87.5 % of the jobs that ran, with 97.8 % of their processor time"
    assert warned in " ".join(said.stderr.split())


def test_without_a_terminal_progress_is_printed_every_tenth_and_every_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
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
