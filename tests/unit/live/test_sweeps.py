"""Sweeps by `koala`, over a real koalad and real Launchers on embedded clusters."""

import csv
import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koalapy.api import openapi

Document = dict[str, Any]
JOB_COUNT = 24


@pytest.fixture(autouse=True)
def idle(koala: Any) -> Iterator[None]:
    koala.known()
    yield
    koala.clear()


def begin(koala: Any, *arguments: object) -> int:
    """A sweep's number."""
    answer = koala("sweep", "--json", *arguments)
    assert answer.status == 0, answer
    openapi.check(answer.document)
    return int(answer.document["id"])


def rows(koala: Any, sweep: int, *options: str) -> list[dict[str, str]]:
    answer = koala("results", sweep, *options)
    assert answer.status == 0, answer
    return list(csv.DictReader(io.StringIO(answer.out)))


def runner(koala: Any, sweep: int) -> Document:
    document = koala("runners", "--all", "--json").document
    openapi.check(document)
    return next(each for each in document["runners"] if each["id"] == sweep)


def no_more_nodes(koala: Any, sweep: int) -> list[str]:
    """As a person reads it."""
    found = koala("explain", sweep, "--json").document
    openapi.check(found)
    assert found["summary"].startswith("It has 4 of its 4 parameters left")
    return [f"  no more nodes of {each['cluster']}: {each['reason']}." for each in found["no_more_nodes"]]


def waits_for(gate: Path) -> list[str]:
    return ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.1; done"]


def test_every_parameter_is_run_once_and_has_one_result(koala: Any) -> None:
    ran = koala.work / "ran"
    script = f"echo $0 $1 >> {ran}; echo out $0; echo err $1 >&2; [ $0 -ne 3 ]"
    sweep = begin(
        koala, "-p", f"x=1:{JOB_COUNT}", "-p", "y=a,b", "--name", "scan", "--", "sh", "-c", script, "{x}", "{y}"
    )
    answer = koala("wait", sweep)
    assert answer.status == 1, answer
    assert f"job {sweep} is done: {2 * JOB_COUNT} of {2 * JOB_COUNT} done, 2 failed" in answer.err
    expected = [f"{x} {y}" for x in range(1, JOB_COUNT + 1) for y in "ab"]
    assert sorted(ran.read_text().splitlines()) == sorted(expected)
    found = rows(koala, sweep)
    assert sorted(int(each["parameter"]) for each in found) == list(range(1, 2 * JOB_COUNT + 1))
    by_number = {int(each["parameter"]): each for each in found}
    assert [f"{by_number[n]['x']} {by_number[n]['y']}" for n in sorted(by_number)] == expected
    assert {each["exit_status"] for each in found if each["x"] != "3"} == {"0"}
    failed = rows(koala, sweep, "--failed")
    assert [(each["x"], each["exit_status"]) for each in failed] == [("3", "1"), ("3", "1")]
    number = int(failed[0]["parameter"])
    assert koala("logs", sweep, "--parameter", number).out == "out 3\n"
    assert koala("logs", sweep, "--parameter", number, "--errors").out == f"err {failed[0]['y']}\n"
    document = koala("results", sweep, "--json").document
    openapi.check(document)
    assert len(document["results"]) == 2 * JOB_COUNT
    lines = koala("results", sweep, "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == document["results"]
    assert (runner(koala, sweep)["done"], runner(koala, sweep)["failed"]) == (2 * JOB_COUNT, 2)
    again = begin(koala, "--rerun-failed", sweep)
    assert koala("wait", again).status == 1
    assert sorted((each["x"], each["y"]) for each in rows(koala, again)) == [("3", "a"), ("3", "b")]
    shown = koala("show", again, "--json").document["request"]["parameters"]
    assert [(each["names"], each["values"]) for each in shown] == [(["x"], ["3", "3"]), (["y"], ["a", "b"])]
    koala("sweep", "--rerun-failed", again, "--", "true").refused(2, "Leave out the program")


def test_what_parameters_left_comes_home(koala: Any) -> None:
    script = "mkdir -p $0; echo $1 >$0/out; echo $2 >log-$0; [ $0 -ne 5 ] || rm log-5; [ $0 -ne 2 ]"
    program = {"processors": 1, "executable": "sh", "arguments": ["-c", script, "{#}", "{x}", "{y}"]}
    staged = [{"path": "{#}/*", "to": "left/{y}"}, {"path": "log-{#}", "to": "left"}]
    sweep = koala.submit(program, parameters={"x": "1:4", "y": ["a", "b"]}, stage_out=staged)
    home = koala.work / "left"
    assert koala.end(sweep)["state"] == "failed"
    found = koala("show", sweep, "--json").document["job"]
    assert found["reason_code"] == "no_output_file"
    assert "1 expected output file is missing (of 8 parameters): log-5 (parameter 5)." in found["reason"]
    well = [number for number in range(1, 9) if number != 2]
    assert {path.name for path in home.glob("log-*")} == {f"log-{number}" for number in well if number != 5}
    expected = {f"{'ab'[(number + 1) % 2]}/{number}/out": f"{(number + 1) // 2}\n" for number in well}
    assert {str(path.relative_to(home)): path.read_text() for path in home.glob("?/*/out")} == expected
    assert "1 parameter did not end well (2): what they left stays" in koala("show", sweep).out
    answer = koala("fetch", sweep, "log-{#}", "--to", home / "again", "--json")
    assert (answer.status, answer.document["files"]) == (1, 7)
    assert {path.name for path in (home / "again").iterdir()} == {f"log-{n}" for n in range(1, 9) if n != 5}
    answer = koala("fetch", sweep, "2/*", "--to", home / "two")
    assert answer.status == 0, answer
    assert [path.read_text() for path in (home / "two").rglob("out")] == ["1\n"]
    koala("fetch", sweep, "{x}").refused(2, "'{x}' is the same path for several of the 8 parameters")


def test_results_go_into_a_file(koala: Any) -> None:
    sweep = begin(koala, "-p", "x=1:3", "--order", "back-home", "--", "true", "{x}")
    assert koala("wait", sweep).status == 0
    file = koala.work / "results.csv"
    answer = koala("results", sweep, "-o", file)
    assert (answer.status, answer.out) == (0, "")
    assert len(file.read_text().splitlines()) == 4
    assert [each for each in koala.work.iterdir() if "results.csv" in each.name] == [file]


def test_results_go_where_a_pipe_or_nothing_is_and_replace_neither(koala: Any) -> None:
    sweep = begin(koala, "-p", "x=1:3", "--", "true", "{x}")
    assert koala("wait", sweep).status == 0
    pipe, link = koala.work / "pipe", koala.work / "link"
    os.mkfifo(pipe)
    link.symlink_to("linked.csv")
    writing = koala.start("results", sweep, "-o", pipe)
    assert len(pipe.read_text().splitlines()) == 4
    assert writing.communicate() == (b"", b"")
    assert pipe.is_fifo()
    assert koala("results", sweep, "-o", link).status == 0
    assert link.is_symlink()
    assert len((koala.work / "linked.csv").read_text().splitlines()) == 4
    for nowhere in (".", "/", "missing/file", "/proc/1"):
        koala("results", sweep, "-o", nowhere).refused(1, f"{nowhere} cannot be written: ", "Name another file.")


def test_a_sweep_in_the_list_of_jobs_and_its_launchers_are_not(koala: Any) -> None:
    gate = koala.work / "gate-jobs"
    sweep = begin(koala, "-p", "x=1:4", "--", *waits_for(gate), "{x}")
    koala.until(lambda: runner(koala, sweep)["assigned"])
    found = {job["id"]: job for job in koala("jobs", "--json").document["jobs"]}
    assert max(found) == sweep
    assert (found[sweep]["type"], found[sweep]["components"]) == ("sweep", [])
    assert found[sweep]["sweep"]["parameters"] == 4
    assert any("0 of 4 done" in line for line in koala("jobs").out.splitlines())
    koala.until(lambda: sum(each["nodes"] for each in runner(koala, sweep)["clusters"]))
    koala.until(lambda: sum(each["scavenged"] for each in koala("clusters", "--json").document["clusters"]))
    koala.until(lambda: "none of its nodes is idle altogether" in str(no_more_nodes(koala, sweep)))
    koala.until(lambda: set(no_more_nodes(koala, sweep)) & set(koala("explain", sweep).out.splitlines()))
    assert koala("status", "--json").document["runners"]["active"] == 1
    assert "sweeps: 1 active" in koala("status").out
    gate.touch()
    assert koala("wait", sweep).status == 0
    story = koala("show", sweep).out
    assert "parameters              4 of 4 done" in story
    assert "It grows by " in story


def test_a_cancelled_sweep_leaves_nothing(koala: Any) -> None:
    gate = koala.work / "gate-cancel"
    sweep = begin(koala, "-p", "x=1:40", "--", *waits_for(gate), "{x}")
    koala.until(lambda: sum(each["nodes"] for each in runner(koala, sweep)["clusters"]))
    assert koala("cancel", sweep).status == 0
    assert koala.end(sweep)["state"] == "cancelled"
    assert koala("wait", sweep).status == 1
    koala.known()


def test_a_held_sweep_gives_back_its_nodes_and_goes_on_when_released(koala: Any) -> None:
    gate = koala.work / "gate-hold"
    sweep = begin(koala, "-p", "x=1:12", "--", *waits_for(gate), "{x}")
    koala.until(lambda: sum(each["nodes"] for each in runner(koala, sweep)["clusters"]))
    for word, becomes in (("hold", "to be held"), ("release", "and goes on then"), ("hold", "to be held")):
        answer = koala(word, sweep)
        assert answer.status == 0, answer
        assert "stopping" not in answer.out or answer.out == f"job {sweep} is stopping, {becomes}\n"
    koala.until(lambda: runner(koala, sweep)["state"] == "held")
    koala.known()
    assert runner(koala, sweep)["ends_at"] is None
    gate.touch()
    assert koala("release", sweep).status == 0
    assert koala("wait", sweep).status == 0
    assert len(rows(koala, sweep)) == 12


def test_what_is_no_sweep_and_no_parameter_is_reported(koala: Any) -> None:
    job = koala.submit({"processors": 1, "executable": "true"})
    koala("results", job).refused(2, f"Job {job} is not a sweep")
    for nobody in (10_000, 2**70):
        koala("results", nobody).refused(1, f"no job {nobody}")
    lost = koala("sweep", "-p", "x=1:3", "--order", "back-hom", "--", "true", "{x}")
    lost.refused(2, "'back-hom'", "is not registered", "back-home?")
    gate = koala.work / "gate-words"
    sweep = begin(koala, "-p", "x=1:4", "--", *waits_for(gate), "{x}")
    koala("logs", sweep).refused(2, "is a sweep", "--parameter")
    koala("logs", sweep, "--parameter", 5).refused(2, "no parameter 5", "1 to 4")
    koala("logs", sweep, "--parameter", 1).refused(1, "has not ended yet")
    koala("logs", sweep, "--parameter", 1, "--component", 0).refused(2, "exclude each other")
    gate.touch()
    assert koala("wait", sweep).status == 0


def test_waiting_for_a_sweep_reports_how_far_it_is(koala: Any) -> None:
    answer = koala("sweep", "--wait", "-p", "x=1:4", "--", "sleep", "0.{x}")
    assert answer.status == 0, answer
    assert answer.out.startswith("job ")
    assert " of 4 done" in answer.err
    assert answer.err.endswith("is done: 4 of 4 done\n")


def test_the_end_of_waiting_prints_that_the_sweep_goes_on(koala: Any) -> None:
    gate = koala.work / "gate-interrupt"
    waiting = koala.start("sweep", "--wait", "-p", "x=1:4", "--", *waits_for(gate), "{x}")
    reported = waiting.stderr.readline().decode()
    waiting.send_signal(signal.SIGINT)
    sweep = int(reported.removeprefix("sweep ").partition(":")[0])
    assert f"`koala wait {sweep}` waits for it again" in waiting.communicate()[1].decode()
    assert waiting.returncode == 130
    reported = koala("show", sweep).out
    assert "0 of 4 done" in reported
    assert "processor hours" in reported
    gate.touch()
    assert koala("wait", sweep).status == 0


def test_a_job_file_with_parameters_is_a_sweep(koala: Any) -> None:
    program = {"processors": 1, "executable": "test", "arguments": ["{x}", "-lt", "9"]}
    file = koala.write("sweep.yaml", {"parameters": {"x": "7:9"}, "components": [program]})
    answer = koala("submit", "--wait", "--json", file)
    assert answer.status == 1, answer
    assert (answer.document["state"], answer.document["sweep"]["failed"]) == ("done", 1)
