"""Logs of real grids in place of the model: owners of jobs, days, jobs that are left out, and errors."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from koalapy.experiments.interop.experiment import read_experiment
from koalapy.experiments.interop.logged import Found, load_of, read_traces
from koalapy.experiments.interop.system import System
from koalapy.experiments.interop.traces import Trace, check_traces
from koalapy.model.errors import RequestError
from koalapy.model.units import DAY, SECOND

GRID = System("two", {"g": 0, "a": 4, "b": 8, "lone": 2}, {"g": None, "a": "g", "b": "g", "lone": None})
FIRST_OF_NOVEMBER = 1_130_803_200  # 2005, in Unix time


def gwf(number: int, at: int, site: str = "G1/a", processors: int = 1, runtime: int = 100) -> str:
    fields = [number, at, 0, runtime, processors, -1, -1, processors, -1, -1, 1, "U7", "G", "X", "Q", "P", site, site]
    return "\t".join(str(field) for field in fields) + "\n"


def found(path: Path, lines: list[str], begin: date | None = None, days: int = 1, **trace: Any) -> Found:
    path.write_text("".join(lines))
    return read_traces({"g": Trace(file=str(path), **trace)}, GRID, begin, days)


def test_jobs_go_to_the_clusters_of_their_names(tmp_path: Path) -> None:
    lines = ["# Version: 1\n", gwf(2, 50, "G1/s/c9"), gwf(1, 40)]
    jobs = found(tmp_path / "log", lines, names={"G1/s/c9": "b"}).jobs
    assert [(job.number, job.home, job.user, job.arrived) for job in jobs] == [
        (1, "a", "a-U7", 40 * SECOND), (2, "b", "b-U7", 50 * SECOND),
    ]  # fmt: skip
    assert load_of(jobs, GRID, 1) == round(100 * 200 / (14 * 86_400))


def test_a_log_of_one_cluster_need_not_name_it(tmp_path: Path) -> None:
    path = tmp_path / "lone.swf"
    path.write_text("; UnixStartTime: 0\n" + "1 5 0 60 2 -1 -1 2 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n")
    jobs = read_traces({"lone": Trace(file=str(path), names={}, lenient=False, starts=None)}, GRID, None, 1).jobs
    assert [(job.home, job.user, job.processors) for job in jobs] == [("lone", "lone-3", 2)]


@pytest.mark.parametrize(
    ("header", "zero", "trace"),
    [
        ("", FIRST_OF_NOVEMBER, {}),
        (f"# UnixStartTime: {FIRST_OF_NOVEMBER} (in UTC)\n", 0, {}),
        ("", 0, {"starts": "2005-11-01"}),
    ],
)
def test_days_are_those_of_the_calendar(tmp_path: Path, header: str, zero: int, trace: dict[str, Any]) -> None:
    lines = [header, *(gwf(day, zero + day * 86_400 + 60) for day in range(5))]
    jobs = found(tmp_path / "log", lines, date(2005, 11, 2), 2, **trace).jobs
    assert [job.arrived for job in jobs] == [60 * SECOND, DAY + 60 * SECOND]
    without = found(tmp_path / "log", lines, None, 3, **trace).jobs
    assert [job.arrived for job in without] == [day * DAY + 60 * SECOND for day in range(3)]


def test_jobs_that_cannot_run_are_left_out_and_reported(tmp_path: Path) -> None:
    lines = [gwf(1, 0), gwf(2, 1, processors=5), gwf(3, 2, runtime=-1), gwf(4, 3, "G1/b", processors=5)]
    jobs, notes = found(tmp_path / "log", lines)
    assert [job.home for job in jobs] == ["a", "b"]
    assert notes == ("Left out of log: 1 larger than their cluster, 1 that never ran.",)


def test_a_lenient_trace_leaves_out_invalid_lines_and_counts_them(tmp_path: Path) -> None:
    wrong = ["1 2 3\n", gwf(1, -5), gwf(2, 0, "G1/z"), gwf(3, 0, "-1"), gwf(4, 0, runtime=-1)]
    jobs, notes = found(tmp_path / "log", [*wrong, gwf(5, 0)], lenient=True)
    assert [job.home for job in jobs] == ["a"]
    counts = "2 of a site that is not a cluster, 1 of another number of fields, 1 with negative or too large numbers"
    assert notes == (f"Left out of log: {counts}, 1 that never ran.",)


@pytest.mark.parametrize(
    ("lines", "begin", "words"),
    [
        ([gwf(1, 0, "G1/z")], None, "line 1 has a job that came to 'G1/z', which is not a cluster of g. Name it"),
        ([gwf(1, 0, "-1")], None, "does not name the cluster"),
        ([gwf(1, 0)], date(2005, 11, 1), "does not have the day on which it begins. Write it, under traces, g, starts"),
        ([gwf(1, FIRST_OF_NOVEMBER)], date(2006, 1, 1), "no jobs in that time"),
        ([], None, "no jobs in that time"),
        (["1 2 3\n"], None, "line 1 has 3 fields .*, or write `lenient: true` beside the trace's file"),
    ],
)
def test_a_log_that_cannot_be_placed_is_refused(
    tmp_path: Path, lines: list[str], begin: date | None, words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        found(tmp_path / "log", lines, begin)


@pytest.mark.parametrize(
    ("traces", "words"),
    [
        ("{x: log}", "no site x"),
        ("{g: {file: log, names: {c1: lone}}}", "lone is not a cluster of g"),
        ("{g: {file: log, starts: november}}", "not a day"),
        ("{g: {names: {}}}", "file is missing"),
    ],
)
def test_traces_without_a_site_are_refused(traces: str, words: str) -> None:
    text = f"""
koala: 1
experiment: x
about: x
system: two
architectures: [dmm]
loads: [20]
panels: [{{title: x, columns: [wait_s]}}]
traces: {traces}
"""
    with pytest.raises(RequestError, match=words):
        check_traces(read_experiment(text, "x.yaml").traces, GRID)
