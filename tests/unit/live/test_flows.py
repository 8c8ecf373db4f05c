"""Flows over a real koalad and embedded clusters: `--after`, files with `jobs`, and what acts on a whole flow."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Document = dict[str, Any]
Shell = Callable[..., Document]


@pytest.fixture(autouse=True)
def idle(koala: Any) -> Iterator[None]:
    """Each test begins on an idle grid and leaves no job."""
    koala.known()
    yield
    koala.clear()


def flow(shell: Shell, jobs: dict[str, tuple[str, list[str]]], **fields: Any) -> Document:
    """A flow file. `jobs`: by name, the line of sh that it runs, and the names of those that it waits for."""
    return {
        "name": "tree",
        "jobs": [
            {"name": name, "components": [shell(script)], **({"after": after} if after else {})}
            for name, (script, after) in jobs.items()
        ],
        **fields,
    }


def states(koala: Any, whole: int) -> dict[str, str]:
    with koala.client() as grid:
        return {job["name"]: job["state"] for job in grid.flow(whole)}


def test_a_job_begins_after_those_that_are_named(koala: Any, shell: Shell, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    first = koala.submit(shell(f"sleep 1; echo first >> {trace}"))
    file = koala.write("second.yaml", {"name": "second", "components": [shell(f"echo second >> {trace}")]})
    answer = koala("submit", file, "--after", first, "--json")
    assert answer.status == 0, answer
    second = answer.document["id"]
    shown = koala("show", second)
    assert f"it waits for job {first}." in shown.out
    assert koala.end(second)["state"] == "done"
    assert trace.read_text() == "first\nsecond\n"
    third = koala("submit", file, "--after", first, "--after", second, "--json").document["id"]
    assert koala.end(third)["state"] == "done"


def test_a_job_begins_after_a_sweep_and_fails_with_it(koala: Any, shell: Shell, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    swept = koala("sweep", "--json", "-p", "x=1:2", "--", "sh", "-c", f"sleep 0.5; echo {{x}} >> {trace}").document[
        "id"
    ]
    file = koala.write("after.yaml", {"name": "after", "components": [shell(f"echo after >> {trace}")]})
    second = koala("submit", file, "--after", swept, "--json").document["id"]
    assert koala.end(second)["state"] == "done"
    assert sorted(trace.read_text().split()[:2]) == ["1", "2"]
    assert trace.read_text().split()[2:] == ["after"]
    swept = koala("sweep", "--json", "-p", "x=1:2", "--", "sleep", "10{x}").document["id"]
    third = koala("submit", file, "--after", swept, "--json").document["id"]
    assert koala("cancel", swept).status == 0
    assert koala.end(third)["reason_code"] == "prerequisite_failed"


def test_a_blocked_job_shows_for_what_it_waits(koala: Any, shell: Shell) -> None:
    first = koala.submit(shell("sleep 100"))
    koala.until(lambda: koala.job(first)["state"] == "running")
    file = koala.write("job.yaml", {"name": "second", "components": [shell("true")], "after": [first]})
    second = koala("submit", file, "--json").document["id"]
    assert koala("explain", second).out == f"Job {second}: It waits until job {first} (test, running) is done.\n"
    assert f"after {first}" in koala("jobs").out
    koala("cancel", first)
    ended = koala.end(second)
    assert (ended["state"], ended["reason_code"]) == ("failed", "prerequisite_failed")
    koala("submit", file).refused(2, f"Job {first}, for which this one is to wait, was cancelled.")
    koala("submit", file, "-o", "after=[99999]").refused(1, "There is no job 99999.")


def test_a_flow_runs_in_the_order_of_its_file_and_its_files_come_from_the_jobs_before(koala: Any, shell: Shell) -> None:
    made = {"name": "make", "components": [shell("echo 42 > made.txt")], "stage_out": ["made.txt"]}
    used = {"name": "use", "after": ["make"], "components": [shell("cat made.txt")], "stage_in": ["made.txt"]}
    answer = koala("submit", koala.write("tree.yaml", {"jobs": [used, made]}), "--wait")
    assert answer.status == 0, answer
    whole = koala.ids()[-3]
    assert states(koala, whole) == {"make": "done", "use": "done"}
    with koala.client() as grid:
        user = next(job for job in grid.flow(whole) if job["name"] == "use")
    assert koala("logs", user["id"]).out == "42\n"
    assert "2/2 done" in koala("jobs").out
    assert not any(line.split()[1:2] == ["use"] for line in koala("jobs").out.splitlines())
    assert any(line.split()[1:2] == ["use"] for line in koala("jobs", "--flow", whole).out.splitlines())


def test_a_failure_is_passed_on_and_only_what_failed_is_submitted_again(
    koala: Any, shell: Shell, tmp_path: Path
) -> None:
    well = tmp_path / "well"
    jobs = {
        "a": (f"test -e {well}", []),
        "b": ("true", ["a"]),
        "c": ("true", ["b"]),
        "other": ("true", []),
    }
    answer = koala("submit", koala.write("tree.yaml", flow(shell, jobs)), "--wait", "--json")
    assert answer.status == 1, answer
    whole = answer.document["id"]
    assert states(koala, whole) == {"a": "failed", "b": "failed", "c": "failed", "other": "done"}
    shown = koala("show", whole)
    assert "1/4 done, 3 failed" in shown.out
    lines = [line.split(":")[0] for line in shown.out.splitlines()]
    assert f"  {whole + 2} b" in lines
    assert koala("logs", whole).status == 2
    well.touch()
    again = koala("resubmit", whole, "--failed", "--wait", "--json").document["id"]
    assert states(koala, again) == {"a": "done", "b": "done", "c": "done"}


def test_the_whole_flow_is_held_released_and_cancelled(koala: Any, shell: Shell) -> None:
    jobs = {"a": ("sleep 100", []), "b": ("true", ["a"]), "c": ("true", [])}
    file = koala.write("tree.yaml", flow(shell, jobs, stages=[["c"], ["a"]]))
    whole = koala("submit", file, "--json").document["id"]
    koala.until(lambda: states(koala, whole)["a"] == "running")
    assert koala("hold", whole).status == 0
    assert states(koala, whole) == {"a": "running", "b": "held", "c": "done"}
    assert koala("release", whole).status == 0
    assert states(koala, whole)["b"] == "blocked"
    assert koala("cancel", whole).status == 0
    assert koala.end(whole)["state"] == "cancelled"
    assert states(koala, whole) == {"a": "cancelled", "b": "cancelled", "c": "done"}


def test_a_large_flow_is_shown_in_parts(koala: Any, shell: Shell) -> None:
    jobs = {"first": ("sleep 100", []), **{f"j{number}": ("true", ["first"]) for number in range(250)}}
    whole = koala("submit", koala.write("tree.yaml", flow(shell, jobs)), "--json").document["id"]
    koala.until(lambda: states(koala, whole)["first"] == "running")

    def listed(shown: Any) -> list[str]:
        return [words[1] for line in shown.out.splitlines() if len(words := line.split()) > 2 and words[1][-1] == ":"]

    first, then = koala("show", whole), koala("show", whole, "--skip", 200)
    assert f"and 51 more; `koala show {whole} --skip 200` goes on" in first.out
    assert "more;" not in then.out
    for shown in (first, then):
        assert [line.split()[1:] for line in shown.out.splitlines() if line.startswith("states ")] == [
            ["250", "blocked,", "1", "running"]
        ]
    assert (len(listed(first)), len(listed(then))) == (200, 51)
    assert sorted(listed(first) + listed(then)) == sorted(f"{name}:" for name in jobs)
    assert len(koala("show", whole, "--json").document["jobs"]) == 251
    koala("show", whole + 1, "--skip", 1).refused(2, f"Job {whole + 1} is not a flow.")


def test_a_job_of_a_flow_may_be_a_sweep(koala: Any, shell: Shell, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    made = {"name": "make", "components": [shell("echo 42 > made.txt")], "stage_out": ["made.txt"]}
    swept = {
        "name": "swept", "after": ["make"], "stage_in": ["made.txt"], "parameters": {"x": "1:3"},
        "components": [shell(f"echo $(cat made.txt)-{{x}} >> {trace}")],
    }  # fmt: skip
    last = {"name": "last", "after": ["swept"], "components": [shell(f"echo last >> {trace}")]}
    file = koala.write("tree.yaml", {"jobs": [last, swept, made]})
    checked = koala("submit", file, "--check")
    assert checked.status == 0, checked
    answer = koala("submit", file, "--wait", "--json")
    assert answer.status == 0, answer
    whole = answer.document["id"]
    *of_sweep, end = trace.read_text().split()
    assert (sorted(of_sweep), end) == (["42-1", "42-2", "42-3"], "last")
    assert states(koala, whole) == {"make": "done", "swept": "done", "last": "done"}
    assert "3/3 done" in koala("show", whole).out
    with koala.client() as grid:
        sweep = next(job for job in grid.flow(whole) if job["name"] == "swept")
    assert len(koala("results", sweep["id"]).out.splitlines()) == 4
    slow = {**swept, "components": [shell("sleep 10{x}")], "after": [], "stage_in": []}
    again = koala("submit", koala.write("tree.yaml", {"jobs": [slow, last]}), "--json").document["id"]
    koala.until(lambda: states(koala, again)["swept"] == "running")
    assert koala("hold", again).status == 0
    koala.until(lambda: states(koala, again) == {"swept": "held", "last": "held"})
    assert koala("release", again).status == 0
    koala.until(lambda: states(koala, again) == {"swept": "running", "last": "blocked"})
    assert koala("cancel", again).status == 0
    assert koala.end(again)["state"] == "cancelled"
    assert states(koala, again) == {"swept": "cancelled", "last": "cancelled"}


def test_a_check_shows_the_flow_and_submits_nothing(koala: Any, shell: Shell) -> None:
    before = koala.ids()
    jobs = {"a": ("true", []), "b": ("true", ["a"])}
    answer = koala("submit", koala.write("tree.yaml", flow(shell, jobs)), "--check")
    assert answer.status == 0, answer
    assert [line.split() for line in answer.out.splitlines()][2:4] == [["a", "1", "-"], ["b", "1", "a"]]
    circle = {"a": ("true", ["b"]), "b": ("true", ["a"])}
    koala("submit", koala.write("tree.yaml", flow(shell, circle))).refused(2, "closes a circle")
    assert koala.ids() == before


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_flow_survives_the_deaths_of_its_koalad(koala: Any, shell: Shell, tmp_path: Path, kills: int) -> None:
    names, gate = [f"j{number}" for number in range(2 * kills)], tmp_path / "gate"
    jobs = {name: (f"echo {name} >> {tmp_path / 'trace'}", names[max(0, at - 1) : at]) for at, name in enumerate(names)}
    jobs["last"] = (f"while [ ! -e {gate} ]; do sleep 0.1; done; echo last >> {tmp_path / 'trace'}", [names[-1]])
    whole = koala("submit", koala.write("tree.yaml", flow(shell, jobs)), "--json").document["id"]
    for number in range(kills):
        time.sleep(0.1 + 0.15 * number)  # at other moments of the flow each time
        os.kill(koala("status", "--json").document["pid"], signal.SIGKILL)
        koala.until(lambda: koala("up").status == 0)
    assert koala.job(whole)["state"] == "running"
    gate.touch()
    assert koala.end(whole)["state"] == "done"
    assert (tmp_path / "trace").read_text().split() == [*names, "last"]
