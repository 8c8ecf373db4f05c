"""`koala run` as a real process: what it passes through, when, and how it ends."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest

from koalapy.api import openapi

Process = subprocess.Popen[bytes]


@pytest.fixture(autouse=True)
def idle(koala: Any) -> Iterator[None]:
    koala.known()
    yield
    koala.clear()


def last(koala: Any) -> int:
    return int(koala.ids()[-1])


def line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


def end(process: Process) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=live.CALL_S)
    return process.returncode, out.decode(), err.decode()


def test_output_and_errors_go_their_own_ways(koala: Any) -> None:
    answer = koala("run", "-n", 1, "--", "sh", "-c", "echo out; echo err >&2")
    job = last(koala)
    assert (answer.status, answer.out) == (0, "out\n")
    reported = [line for line in answer.err.splitlines() if " is " not in line]  # what it does, if that takes long
    assert reported == [f"job {job} accepted", "err"]
    assert koala.job(job)["name"] == "sh"


def test_the_words_of_the_program_reach_it_as_they_are(koala: Any) -> None:
    words = ["a b", "$HOME", "*", "'", '"', "\\", "--json", "-n", "", "é\n;"]
    answer = koala("run", "-n", 1, "--name", "words", "--", "printf", "%s|", *words)
    assert answer.status == 0, answer
    assert answer.out == "".join(f"{word}|" for word in words)
    assert koala.job(last(koala))["name"] == "words"


def test_output_comes_as_it_is_written(koala: Any) -> None:
    """The program waits for a file that is made only once its first line has been read here."""
    gate = koala.work / "gate-run"
    script = f"echo one; while [ ! -e {gate} ]; do sleep 0.1; done; echo two"
    process = koala.start("run", "-n", 1, "--", "sh", "-c", script)
    assert line(process) == "one\n"
    gate.touch()
    assert end(process)[:2] == (0, "two\n")


def test_components_on_the_clusters_that_are_named(koala: Any) -> None:
    show = "echo $KOALA_COMPONENT $KOALA_RANK $KOALA_SIZE"
    answer = koala("run", "-n", 2, "-n", 1, "--on", "delft", "--on", "leiden", "--", "sh", "-c", show)
    assert answer.status == 0, answer
    assert sorted(answer.out.splitlines()) == ["[0.0] 0 0 3", "[0.1] 0 1 3", "[1.2] 1 2 3"]
    answer = koala("run", "-n", 2, "-n", 1, "--no-prefix", "--on", "delft", "--on", "leiden", "--", "sh", "-c", show)
    assert sorted(answer.out.splitlines()) == ["0 0 3", "0 1 3", "1 2 3"]
    job = koala.job(last(koala))
    assert [(each["cluster"], each["processors"]) for each in job["components"]] == [("delft", 2), ("leiden", 1)]
    assert job["type"] == "ordered"
    answer = koala("run", "-n", 1, "-n", 1, "--on", "leiden", "--", "true")
    assert answer.status == 0, answer
    assert koala.job(last(koala))["type"] == "mixed"


@pytest.mark.parametrize("name", ["./prog.sh", "sub/prog.sh", "../beside/prog.sh"])
def test_a_program_of_ours_travels_with_the_job(koala: Any, name: str) -> None:
    path = koala.work / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\necho ran $1\n")
    path.chmod(0o755)
    answer = koala("run", "-n", 1, "--", name, "well")
    assert (answer.status, answer.out) == (0, "ran well\n"), answer


def test_its_document_comes_alone_on_standard_output(koala: Any) -> None:
    answer = koala("run", "--json", "-n", 1, "--", "sh", "-c", "echo out; echo err >&2; exit 4")
    assert answer.status == 4
    openapi.check(answer.document)
    assert answer.document["schema"] == "koala.job/1"
    assert answer.document["job"]["components"][0]["exit_status"] == 4
    assert answer.document["events"]
    lines = answer.err.splitlines()
    assert {"out", "err"} <= set(lines)


def test_a_failing_program_is_its_exit_status_and_a_reason(koala: Any) -> None:
    answer = koala("run", "-n", 1, "--", "sh", "-c", "echo before; exit 7")
    assert (answer.status, answer.out) == (7, "before\n")
    assert f"job {last(koala)} failed: " in answer.err
    assert "exit status 7" in answer.err
    assert "koala logs" not in answer.err  # its output was shown
    answer = koala("run", "-n", 1, "--", "no-such-program-anywhere")
    assert answer.status == 125
    assert "no-such-program-anywhere" in answer.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_interrupted_it_cancels_its_job(koala: Any, number: signal.Signals) -> None:
    process = koala.start("run", "-n", 1, "--", "sh", "-c", "echo ready; exec sleep 1000")
    assert line(process) == "ready\n"
    process.send_signal(number)
    status, out, err = end(process)
    job = last(koala)
    assert (status, out) == (130, "")
    assert f"job {job} is stopping" in err or f"job {job} is cancelled" in err
    assert "Traceback" not in err
    assert koala.end(job)["state"] == "cancelled"


def test_interrupted_before_it_could_start_it_leaves_no_job(koala: Any) -> None:
    process = koala.start("run", "-n", 4, "-n", 4, "-n", 2, "--on", "leiden", "--", "sleep", 1000)
    assert process.stderr is not None
    koala.until(lambda: process.stderr.readline().decode().startswith("job "))
    process.send_signal(signal.SIGINT)
    status, _, err = end(process)
    assert status in (130, 1), err  # it may have ended before that
    assert koala.end(last(koala))["state"] in ("cancelled", "failed")


def test_a_reader_that_goes_away_does_not_end_the_job(koala: Any) -> None:
    process = koala.start("run", "-n", 1, "--", "sh", "-c", "echo one; sleep 1; seq 100000; touch $KOALA_HOSTS.done")
    assert line(process) == "one\n"
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(live.CALL_S) == 0, err
    assert "Traceback" not in err
    assert koala.job(last(koala))["state"] == "done"


def test_a_large_output_is_whole(koala: Any) -> None:
    answer = koala("run", "-n", 2, "--", "sh", "-c", "seq -f $KOALA_RANK.%.0f 200000")
    assert answer.status == 0
    lines = answer.out.splitlines()
    for rank in (0, 1):
        found = [each for each in lines if each.startswith(f"{rank}.")]
        assert found == [f"{rank}.{number}" for number in range(1, 200001)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "1", "--on", "delft", "--on", "leiden", "--", "true"], "more --on than -n"),
        (["-n", "0", "--", "true"], "processors"),
        (["-n", "-3", "--", "true"], "processors"),
        (["-n", "1000000000", "--", "true"], "processors"),
        (["-n", "1", "--on", "delf", "--", "true"], "delf"),
        (["-n", "1", "-t", "soon", "--", "true"], "walltime"),
        (["-n", "1", "--", "./missing.sh"], "There is no file ./missing.sh."),
        (["-n", "1", "--", "./"], "./"),
        (["-n", "1", "--optional", "1", "--", "true"], "--optional 1 names no component"),
        (["-n", "1", "--env", "NOT_SET_HERE", "--", "true"], "the variable NOT_SET_HERE is not set here"),
        (["-n", "1", "--priority", "99", "--", "true"], "priority"),
    ],
)
def test_what_cannot_be_run_is_refused(koala: Any, arguments: list[str], words: str) -> None:
    before = koala.ids()
    koala("run", *arguments).refused(125, words)
    assert koala.ids() == before


@pytest.mark.parametrize("arguments", [["--on", "", "--"], ["--on", "--"]], ids=["empty", "none"])
@pytest.mark.parametrize("command", [["run", "-n", 2], ["sweep", "-p", "x=1:2"]], ids=["run", "sweep"])
def test_a_missing_name_of_a_cluster_is_named_as_that(koala: Any, command: list[Any], arguments: list[str]) -> None:
    answer = koala(*command, *arguments, "true")
    assert answer.status == 2
    assert "'--on': The name of the cluster is missing." in " ".join(answer.err.split())


def test_options_of_run_are_those_of_a_job_file(koala: Any) -> None:
    koala.write("given", "given\n")
    options = ["-n", 2, "-n", 2, "--optional", 1, "--threads", 2, "--memory", "64M", "--priority", 3]
    files = ["--stage-in", "given", "--stage-out", "made"]
    script = "cat given; echo $SAID $GOT; echo made > made"
    answer = koala(
        "run", "--json", *options, *files, "--env", "SAID=a b", "--env", "GOT", "--", "sh", "-c", script, GOT="c"
    )
    assert answer.status == 0, answer
    request = answer.document["request"]["job"]
    assert (request["priority"], request["stage_in"], request["stage_out"]) == (3, ["given"], ["made"])
    assert [each.get("optional", False) for each in request["components"]] == [False, True]
    for each in request["components"]:
        assert (each["threads_per_process"], each["environment"]) == (2, {"SAID": "a b", "GOT": "c"})
        assert each["memory_per_processor"]
    assert "given\n" in answer.err
    assert "a b c\n" in answer.err
    assert (koala.work / "made").read_text() == "made\n"


def test_a_detached_job_is_submitted_only(koala: Any) -> None:
    answer = koala("run", "-d", "-n", 1, "--", "sleep", "1000")
    job = last(koala)
    assert (answer.status, answer.out) == (0, f"job {job} accepted\n")
    assert koala.job(job)["finished_at"] is None
    assert koala("run", "--detach", "--json", "-n", 1, "--", "true").document["id"] == job + 1
    answer = koala("run", "-d", "-n", 99, "--", "true")
    assert (answer.status, answer.out) == (125, f"job {job + 2} accepted\n")
    assert f"job {job + 2} failed: " in answer.err


@pytest.mark.parametrize("arguments", [["--", "true"], ["-n", "1"], ["-n", "many", "--", "true"]])
def test_wrong_usage_of_run(koala: Any, arguments: list[str]) -> None:
    answer = koala("run", *arguments)
    assert (answer.status, answer.out) == (2, "")


def test_standard_input_that_is_not_passed_on_is_reported(koala: Any) -> None:
    with open(koala.write("input", "hello\n")) as file:
        process = koala.start("run", "-n", 1, "--", "cat", stdin=file.fileno())
    status, out, err = end(process)
    assert (status, out) == (0, "")
    assert "Standard input is not passed on to the program." in err
    assert "Standard input" not in koala("run", "-n", 1, "--", "cat").err


def test_while_it_waits_it_prints_why_and_then_what_it_does(koala: Any) -> None:
    gates = [koala.work / name for name in ("first", "second")]
    wait = "while [ ! -e {} ]; do sleep 0.1; done"
    holder = koala.submit(live.sh(wait.format(gates[0]), 2, cluster="leiden"))
    koala.until(lambda: koala.job(holder)["state"] == "running")
    process = koala.start("run", "-n", 2, "--on", "leiden", "--", "sh", "-c", wait.format(gates[1]))
    try:
        assert process.stderr is not None
        assert process.stderr.readline().decode() == f"job {last(koala)} accepted\n"
        why = next(reported for reported in iter(process.stderr.readline, b"") if b": " in reported)
        assert why.startswith(b"job %d: It waits for " % last(koala))
        gates[0].touch()
        assert b"job %d is running (leiden)\n" % last(koala) in iter(process.stderr.readline, b"")
    finally:
        for gate in gates:
            gate.touch()
        status, *_ = end(process)
    assert status == 0


def test_koalad_that_goes_away_is_reported(koala: Any) -> None:
    """The job goes on without us, and is found again."""
    gate = koala.work / "gate-away"
    script = f"echo one; while [ ! -e {gate} ]; do sleep 0.1; done; echo two"
    process = koala.start("run", "-n", 1, "--", "sh", "-c", script)
    assert line(process) == "one\n"
    os.kill(koala("status", "--json").document["pid"], signal.SIGKILL)
    status, _, err = end(process)
    job_prints = [each for each in err.splitlines() if "goes on" in each]
    assert status == 125, err
    assert job_prints
    assert koala("up").status == 0
    gate.touch()
    job = last(koala)
    assert koala.end(job)["state"] == "done"
    assert koala("logs", job).out == "one\ntwo\n"


def test_paths_of_the_program_are_of_the_caller(koala: Any, tmp_path: Path) -> None:
    program = tmp_path / "mine.sh"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    answer = koala("run", "-n", 1, "--", "./mine.sh", cwd=tmp_path)
    assert answer.status == 0, answer
    assert answer.out.strip().startswith(str(koala.root))
