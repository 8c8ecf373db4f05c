"""`koala` over a real koalad: every command, for people and for scripts, and its exit status."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import live
import pytest
from typer.testing import CliRunner

from koalapy.api import openapi
from koalapy.cli import up as up_command
from koalapy.cli.main import app

Document = dict[str, Any]
JOB = (
    "id name owner state priority labels type submitted_at started_at finished_at submission_failures "
    "completion_failures held_processor_seconds reason reason_code kept_output components transfers sweep "
    "flow part_of site sent after choice choices suspended_for"
)
COMPONENT = (
    "index cluster named_cluster processors walltime_s state attempt batch_id hosts exit_status queued_at "
    "at_barrier_at released_at started_at ended_at silent_since reason"
)
CLUSTER = (
    "name batch version connection total idle ours scavenged others waiting_local age_s "
    "committed candidates unit walltime_limit_s reason foreign_reports added_by_command draining"
    # the last eight are ours; scripts may rely on the others
)


@pytest.fixture(autouse=True)
def idle(koala: Any) -> Iterator[None]:
    """Each test begins on an idle grid and leaves no job."""
    koala.known()
    yield
    koala.clear()


def fields(names: str) -> set[str]:
    return set(names.split())


# ---- koalad and its clusters


def test_up_when_it_is_up_changes_nothing(koala: Any) -> None:
    before = koala("status", "--json").document
    answer = koala("up")
    assert answer.status == 0
    assert answer.out == f"koalad of grid live was up already (pid {before['pid']})\n"
    assert koala("up", "--json").document == before


def test_up_prints_which_release_runs_if_it_is_another(koala: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in koala.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(up_command, "__version__", "9.9")
    answer = CliRunner().invoke(app, ["up"])
    before = koala("status", "--json").document
    assert answer.stdout.splitlines()[0] == f"koalad of grid live was up already (pid {before['pid']})"
    reported = f"It is koalapy {before['version']}, and this is koalapy 9.9. `koala down`, then `koala up` replaces it;"
    assert answer.stdout.splitlines()[1] == f"{reported} its jobs run on."


def test_status_shows_that_it_is_ready(koala: Any) -> None:
    document = koala("status", "--json").document
    assert set(document) == fields(
        "schema pid version grid grid_file grid_file_changed state pending_cancels troubles runners recovery "
        "unknown_tags "
        "logins_required"
    )
    assert document["schema"] == "koala.status/1"
    assert (document["grid"], document["state"], document["pending_cancels"], document["troubles"]) == (
        "live",
        "ready",
        [],
        [],
    )
    assert os.path.exists(f"/proc/{document['pid']}")
    assert koala("status").out == f"koalad {document['version']} of grid live: ready (pid {document['pid']})\n"


def test_clusters_shows_disks(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.end(koala.submit(shell("head -c 3000000 /dev/urandom > large", cluster="delft")))
    document = koala("clusters", "--disk", "--json").document
    assert document["schema"] == "koala.disk/1"
    places = {each["place"]: each for each in document["places"]}
    assert list(places) == ["amsterdam", "delft", "leiden", "here"]
    assert places["delft"]["bytes"] > 3_000_000, job
    assert places["delft"]["directories"] >= 1
    assert all(each["reason"] is None and each["complete"] and each["bytes"] > 0 for each in places.values())
    assert places["here"]["parts"]["store"] > 0
    lines = koala("clusters", "--disk").out.splitlines()
    assert lines[0].split() == ["PLACE", "BYTES", "DIRECTORIES", "OF", "THEM"]
    assert lines[2].startswith("delft")


def test_clusters_shows_processors(koala: Any) -> None:
    document = koala("clusters", "--json").document
    assert document["schema"] == "koala.clusters/1"
    assert [(each["name"], each["total"], each["idle"]) for each in document["clusters"]] == [
        ("amsterdam", 4, 4),
        ("delft", 4, 4),
        ("leiden", 2, 2),
    ]
    for each in document["clusters"]:
        assert set(each) == fields(CLUSTER)
        assert (each["batch"], each["connection"], each["others"], each["reason"]) == ("local", "up", 0, None)
        assert each["age_s"] >= 0
    lines = koala("clusters").out.splitlines()
    assert lines[0].split() == [
        "CLUSTER",
        "BATCH",
        "CONNECTION",
        "TOTAL",
        "IDLE",
        "OURS",
        "SCAVENGED",
        "OTHERS",
        "WAITING",
        "AGE",
    ]
    assert lines[1].split()[:1] + lines[1].split()[-7:-1] == ["amsterdam", "4", "4", "0", "0", "0", "0"]


def test_without_a_grid_file_every_command_names_the_missing_one(koala: Any) -> None:
    missing = str(koala.root / "missing.yaml")
    for command in (["up"], ["status"], ["jobs"], ["submit", "job.yaml"], ["config", "check"]):
        koala(*command, "--grid", missing).refused(2, f"There is no grid file {missing}.")


def test_config_check_and_schema(koala: Any) -> None:
    assert koala("config", "check").out == f"{koala.grid_file} is fine: grid live, 3 clusters\n"
    assert koala("config", "check", "--json").document == {
        "schema": "koala.config-check/1",
        "grid_file": str(koala.grid_file),
        "grid": "live",
        "clusters": ["amsterdam", "delft", "leiden"],
    }
    assert koala("config", "schema").document["properties"]["clusters"]


# ---- submit


def test_submit_prints_the_jobs_number(koala: Any, shell: Callable[..., Document]) -> None:
    file = koala.write("hello.yaml", {"components": [shell("echo hello")]})
    answer = koala("submit", file)
    assert answer.status == 0
    job = koala.ids()[-1]
    assert answer.out == f"job {job} accepted\n"
    assert koala.end(job)["name"] == "hello"
    document = koala("submit", file, "--json").document
    assert document.pop("accepted_s") > 0
    assert document == {"schema": "koala.submit/1", "id": job + 1}


def test_several_files_are_submitted_together(koala: Any, shell: Callable[..., Document]) -> None:
    good = koala.write("good.yaml", {"components": [shell("exit 0")]})
    bad = koala.write("bad.yaml", {"components": [shell("exit 3")]})
    answer = koala("submit", good, bad, "--wait", "--json")
    assert answer.status == 1, answer
    ids = koala.ids()[-2:]
    assert answer.document == {"schema": "koala.submits/1", "ids": ids, "states": ["done", "failed"]}
    answer = koala("submit", good, good)
    assert answer.out.splitlines() == [f"job {job} accepted: {good}" for job in koala.ids()[-2:]]
    before = koala.ids()
    wrong = koala.write("wrong.yaml", {"components": [shell("exit 0", walltime="soon")]})
    koala("submit", good, wrong).refused(2, "Job 2 of 2", "wrong.yaml", "walltime")
    assert koala.ids() == before


def test_submit_and_wait_ends_as_the_job_does(koala: Any, shell: Callable[..., Document]) -> None:
    file = koala.write("job.yaml", {"components": [shell("exit 0"), shell("exit 0")]})
    answer = koala("submit", "--wait", file)
    assert answer.status == 0, answer
    job = koala.ids()[-1]
    assert answer.out == f"job {job} accepted\n"
    assert answer.err.splitlines()[-1] == f"job {job} is done"  # after what it did meanwhile
    answer = koala("submit", file, "--wait", "--json")
    found = answer.document
    assert (found["schema"], found["id"], found["state"]) == ("koala.submit/1", job + 1, "done")
    file = koala.write("job.yaml", {"components": [shell("exit 3")]})
    answer = koala("submit", "--wait", file)
    assert answer.status == 1
    assert f"job {job + 2} failed: " in answer.err
    assert "exit status 3" in answer.err
    answer = koala("submit", "--wait", "--json", file)
    assert (answer.status, answer.document["state"]) == (1, "failed")


def test_a_failure_quotes_the_last_lines_of_standard_error(koala: Any, shell: Callable[..., Document]) -> None:
    file = koala.write("bad.yaml", {"components": [shell("exec sleep 100"), shell("echo no numpy here >&2; exit 7")]})
    answer = koala("submit", file, "--wait")
    job = koala.ids()[-1]
    advice = f"Look at its standard error with `koala logs {job} -c 1 -e`."
    assert answer.status == 1
    assert "component 1 ended with exit status 7, rank 1 on " in answer.err
    assert advice in answer.err
    assert answer.err.endswith(" said:\n    no numpy here\n")
    said = koala("explain", job).out
    assert advice in said
    assert said.splitlines()[-2].startswith("  Rank 1 on ")
    assert said.splitlines()[-1] == "    no numpy here"
    assert "Its standard error ended with: no numpy here" in koala("show", job).out


def test_the_example_of_the_readme_runs_as_it_stands(koala: Any) -> None:
    readme = (Path(live.__file__).parents[2] / "README.md").read_text()
    job = textwrap.dedent(readme.split("    $ cat job.yaml\n")[1].split("    $ ")[0])
    assert koala("submit", koala.write("readme.yaml", job), "--wait").status == 0
    assert koala("logs", koala.ids()[-1]).out.startswith("rank 0 of 2\n")


def test_submit_takes_other_values_for_once(koala: Any, shell: Callable[..., Document]) -> None:
    file = koala.write("job.yaml", {"name": "first", "components": [shell("true"), shell("true")]})
    changes = ("name=second", "priority=3", "components.1.arguments=[-c, echo changed]", "components.0.cluster=delft")
    options = [part for change in changes for part in ("-o", change)]
    job = koala.end(koala("submit", file, "--json", *options).document["id"])
    assert (job["name"], job["priority"], job["type"], job["state"]) == ("second", 3, "mixed", "done")
    assert koala("logs", job["id"]).out == "changed\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("priority", "'priority' is not KEY=VALUE"),
        ("priorty=3", "priority"),
        ("priority=99", "priority"),
        ("components.7.processors=1", "components.7.processors"),
    ],
)
def test_a_wrong_override_is_refused(koala: Any, shell: Callable[..., Document], change: str, words: str) -> None:
    before = koala.ids()
    file = koala.write("job.yaml", {"components": [shell("true")]})
    koala("submit", file, "-o", change).refused(2, words)
    assert koala.ids() == before


# ---- jobs and show


def test_jobs_and_show_have_the_promised_names(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.end(koala.submit(shell("true", 2), shell("true", 1, cluster="delft"), name="named"))
    document = koala("jobs", "--json").document
    assert set(document) == {"schema", "jobs", "unreadable"}
    openapi.check(document)
    assert [each["id"] for each in document["jobs"]] == sorted(koala.ids())
    assert document["jobs"][-1] == job
    assert set(job) == fields(JOB)
    assert all(set(each) == fields(COMPONENT) for each in job["components"])
    shown = koala("show", job["id"], "--json").document
    openapi.check(shown)
    assert shown["job"] == job
    kinds = [event["kind"] for event in shown["events"]]
    assert kinds[0] == "work_submitted"
    assert kinds[-1] == "work_done"
    assert all(list(event)[:3] == ["at", "kind", "text"] for event in shown["events"])
    assert shown["events"] == sorted(shown["events"], key=lambda event: event["at"])


def test_show_prints_what_a_job_runs_and_resubmit_runs_it_again(koala: Any, shell: Callable[..., Document]) -> None:
    (koala.work / "staged").write_text("data")
    program = shell('echo "$WHO $*"', environment={"WHO": "me you"}, walltime="2m", cluster="leiden")
    program["arguments"] += ["zero", "a b"]
    job = koala.end(koala.submit(program, stage_in=["staged"], priority=7))
    shown = koala("show", job["id"], "--json").document["request"]
    assert shown["directory"] == str(koala.work)
    assert shown["job"]["components"] == [
        {"processors": 1, "cluster": "leiden", "walltime": "2m"}
        | {name: program[name] for name in ("executable", "arguments", "environment")}
    ]
    assert (shown["job"]["stage_in"], shown["parameters"]) == (["staged"], [])
    text = koala("show", job["id"]).out
    for words in ("/bin/sh -c 'echo \"$WHO $*\"' zero 'a b'", "WHO='me you'", str(koala.work), "2m"):
        assert words in text
    answer = koala("resubmit", job["id"], "-o", "priority=3", "-o", "components.0.walltime=", "--wait")
    again = koala.ids()[-1]
    assert (answer.status, answer.out) == (0, f"job {again} accepted, as job {job['id']}\n")
    assert koala("logs", again).out == koala("logs", job["id"]).out == "me you a b\n"
    assert koala.job(again)["priority"] == 3
    assert koala.job(again)["components"][0]["walltime_s"] == 3600
    koala("resubmit", 10**6).refused(1, "no job 1000000")


def test_an_interrupted_submit_has_printed_the_number_of_its_job(koala: Any, shell: Callable[..., Document]) -> None:
    process = koala.start("submit", koala.write("job.yaml", {"components": [shell("sleep 600")]}), "--wait", "--json")
    assert process.stderr is not None
    assert process.stderr.readline().decode() == f"job {koala.ids()[-1]} accepted\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=live.CALL_S)
    assert (process.returncode, out) == (130, b"")


def test_jobs_and_show_for_people(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.end(koala.submit(shell("exit 5", cluster="delft"), name="[bold]:smile:"))
    lines = koala("jobs").out.splitlines()
    assert lines[0].split() == ["ID", "NAME", "STATE", "PROCS", "RUN", "CLUSTERS", "SUBMITTED", "WHY"]
    line = lines[-1].split()
    assert [*line[:4], line[5]] == [str(job["id"]), "[bold]:smile:", "failed", "1", "delft"]
    assert line[4].endswith("s")  # how long it ran
    assert "exit status 5" in lines[-1]
    shown = koala("show", job["id"]).out
    assert "[bold]:smile:" in shown
    story = [line.split("  ", 1)[1] for line in shown.splitlines() if line.startswith("20")]
    assert story[0].startswith("Submitted by ")
    assert story[-1].startswith("It failed: delft: ")
    assert any(f"Attempt {job['id']}.0.1 on delft (batch job " in line and "exit status 5" in line for line in story)
    assert [line for line in story if "_" in line.replace(str(koala.root), "")] == []


def test_jobs_lists_the_newest_and_those_that_are_asked_for(koala: Any, shell: Callable[..., Document]) -> None:
    ids = [koala.submit(shell("true", cluster=cluster), name=name) for name, cluster in FOUR]
    for job in ids:
        koala.end(job)

    def listed(*options: object) -> list[int]:
        return [int(line.split()[0]) for line in koala("jobs", *options).out.splitlines()[1:]]

    assert listed("--last", 2) == ids[-2:]
    assert [job["id"] for job in koala("jobs", "--last", 1, "--json").document["jobs"]] == ids[-1:]
    assert listed("--name", "red-*") == ids[:2]
    assert listed("--name", "red-*", "--cluster", "delft") == [ids[1]]
    assert set(ids) <= set(listed("--since", "1h", "--last", 0))
    assert f"{len(koala.ids()) - 1} older jobs" in koala("jobs", "--last", 1).err
    koala("jobs", "--since", "soon").refused(2, "soon", "Give --since such as 2h or 1d.")
    koala("jobs", "--watch").refused(2, "--watch needs a terminal")


def test_a_shell_completes_ids_and_clusters(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.submit(shell("true"), name="completed")
    koala.end(job)
    assert f'"{job}":"completed, done"' in completed(koala, "koala show ")
    assert "amsterdam" in completed(koala, "koala run --on ams")
    assert "delft" not in completed(koala, "koala run --on ams")


def completed(koala: Any, line: str) -> str:
    """Return the completions that zsh gets."""
    environment = koala.environment | {"_TYPER_COMPLETE_ARGS": line, "_KOALA_COMPLETE": "complete_zsh"}
    begin = "import sys; sys.argv[0] = 'koala'; from koalapy.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", begin], env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout


FOUR = (("red-1", "leiden"), ("red-2", "delft"), ("blue-1", "leiden"), ("blue-2", "delft"))


def test_jobs_of_a_state(koala: Any, shell: Callable[..., Document]) -> None:
    done, failed = koala.submit(shell("true")), koala.submit(shell("false"))
    for job in (done, failed):
        koala.end(job)
    found = koala("jobs", "--state", "failed", "--json").document["jobs"]
    assert failed in [job["id"] for job in found]
    assert {job["state"] for job in found} == {"failed"}
    both = koala("jobs", "--state", "failed", "--state", "done", "--json").document["jobs"]
    assert {done, failed} <= {job["id"] for job in both}
    answer = koala("jobs", "--state", "lost")
    assert answer.status == 2
    assert "'waiting'" in answer.err


def test_output_that_nobody_reads_makes_no_noise(koala: Any) -> None:
    """As by `koala jobs | head`, and on a full disk."""
    process = koala.start("config", "schema")
    process.stdout.close()
    said = process.stderr.read()
    process.wait()
    process.stderr.close()
    assert b"Traceback" not in said
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "koalapy.cli.main", "jobs", "--json"]
        done = subprocess.run(command, env=koala.environment, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"koala: The output cannot be written: No space left on device.\n"


# ---- logs


def test_logs_of_one_component_or_all_of_either_stream(koala: Any, shell: Callable[..., Document]) -> None:
    scripts = [
        shell(f"echo out {n}; echo err {n} >&2", cluster=cluster) for n, cluster in enumerate(("delft", "leiden"))
    ]
    job = koala.submit(*scripts)
    assert koala.end(job)["state"] == "done"
    assert koala("logs", job).out == "out 0\nout 1\n"
    assert koala("logs", job, "-c", 1).out == "out 1\n"
    assert koala("logs", job, "-e").out == "err 0\nerr 1\n"
    assert koala("logs", job, "--errors", "--component", 0).out == "err 0\n"
    koala("logs", job, "-c", 2).refused(2, f"Job {job} has no component 2.", "0 to 1")


def test_logs_are_bytes(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.submit(shell(r"printf '\377\000\033[1m\n'"))
    koala.end(job)
    assert koala_bytes(koala, "logs", job) == b"\xff\x00\x1b[1m\n"


def koala_bytes(koala: Any, *arguments: object) -> bytes:
    process = koala.start(*arguments)
    out, _ = process.communicate(timeout=live.CALL_S)
    return bytes(out)


# ---- check


def test_a_check_prints_what_would_be_submitted_and_submits_nothing(koala: Any, shell: Callable[..., Document]) -> None:
    """As an override changes it: from a job that fits into one that never does, or is none."""
    koala.known()
    before = koala.ids()
    job = {"name": "checked", "components": [shell("echo hello", 2, cluster="Delft"), shell("true")], "priority": 3}
    fits, never = koala.write("fits.yaml", job), koala.write("never.yaml", {"components": [shell("true", 5)]})
    answer = koala("submit", "--check", fits, "-o", "priority=7", "--label", "project=x")
    assert answer.status == 0, answer
    lines = [line.split() for line in answer.out.splitlines()]
    assert lines[0] == [f"{fits}:", "checked,", "not", "submitted"]
    assert ["0", "delft", "2"] in lines
    assert ["1", "any", "1"] in lines
    assert "echo hello" in answer.out
    assert answer.out.endswith("It fits on its clusters.\n")
    answer = koala("submit", "--check", "--json", fits, never, "-o", "priority=7", "--label", "project=x")
    assert answer.status == 1, answer
    first, second = answer.document["jobs"]
    assert (first["fits"], first["reason"], first["unknown_clusters"], first["parameters"]) == ("yes", None, [], None)
    assert (first["request"]["job"]["priority"], first["request"]["job"]["labels"]) == (7, {"project": "x"})
    assert (second["fits"], second["reason"]["code"]) == ("never", "too_large")
    answer = koala("submit", "--check", never)
    assert (answer.status, "never fits" in answer.err) == (1, True), answer
    koala("submit", "--check", fits, "-o", "components.0.cluster=utrecht").refused(2, "utrecht", "cluster")
    koala("submit", "--check", fits, "-o", "colour=red").refused(2, "colour")
    koala("submit", "--check", koala.work / "no.yaml").refused(2, "no.yaml")
    koala("submit", "--check", fits, "-o", "stage_in=[absent.dat]").refused(2, "absent.dat")
    with koala.client() as grid:
        [found] = grid.check(fits, overrides={"components.0.processors": "4"})["jobs"]
        assert (found["fits"], found["request"]["job"]["components"][0]["processors"]) == ("yes", 4)
        [found] = grid.check({"components": [shell("true", 4), shell("true", 4), shell("true", 4)]})["jobs"]
        assert found["fits"] == "never"
    assert koala.ids() == before


def test_a_check_of_a_sweep(koala: Any) -> None:
    koala.known()
    before = koala.ids()
    words = ["-p", "x=1:1000", "--on", "delft", "--", "echo", "{x}"]
    answer = koala("sweep", "--check", *words)
    assert answer.status == 0, answer
    assert "1,000 parameters\nIt fits on its clusters.\n" in answer.out
    answer = koala("sweep", "--check", "--json", "--threads", 99, *words)
    [found] = answer.document["jobs"]
    assert (answer.status, found["fits"], found["reason"]["code"], found["parameters"]) == (
        1,
        "never",
        "too_large",
        1000,
    )
    koala("sweep", "--check", "--on", "utrecht", "-p", "x=1:2", "--", "echo").refused(2, "utrecht")
    assert koala.ids() == before


def test_a_check_without_koalad_or_its_clusters(fresh: Any, shell: Callable[..., Document]) -> None:
    """An unknown cluster is reported neither to fit nor to fail."""
    file = fresh.write("job.yaml", {"components": [shell("true", 400, cluster="delft")]})
    fresh("submit", "--check", file).refused(3, "not running")
    shared = fresh.root / "delft"
    shared.write_text("no directory")
    assert fresh("up").status == 0
    answer = fresh("submit", "--check", file, "--json")
    [found] = answer.document["jobs"]
    assert (answer.status, found["fits"], found["unknown_clusters"]) == (0, "unknown", ["delft"])
    answer = fresh("submit", "--check", file)
    assert (answer.status, answer.err) == (0, "It is not known whether it can ever fit: delft cannot be asked now.\n")


def test_logs_follow_until_the_job_is_over(koala: Any, shell: Callable[..., Document]) -> None:
    gate = koala.work / "gate"
    job = koala.submit(shell(f"echo one; while [ ! -e {gate} ]; do sleep 0.1; done; echo two"))
    koala.until(lambda: koala("logs", job).out == "one\n")
    process = koala.start("logs", "-f", job)
    assert process.stdout.readline() == b"one\n"
    gate.touch()
    rest, errors = process.communicate(timeout=live.CALL_S)
    assert (process.returncode, rest, errors) == (0, b"two\n", b"")


def test_logs_without_output_report_that_nothing_has_run(koala: Any, shell: Callable[..., Document]) -> None:
    blocker = koala.submit(shell("sleep 1000", 4, cluster="delft"))
    koala.until(lambda: koala.job(blocker)["state"] == "running")
    job = koala.submit(shell("true", 4, cluster="delft"), when_busy="wait")
    answer = koala("logs", job)
    said = f"koala: There is no output: job {job} has not started. The job is waiting.\n"
    assert (answer.status, answer.out, answer.err) == (0, "", said)
    koala("cancel", job)
    assert koala.end(job)["components"][0]["state"] == "not_started"
    koala("logs", job).refused(1, f"Job {job} has run nowhere")
    assert "not started" in koala("show", job).out
    silent = koala.submit(shell("true"))
    koala.end(silent)
    assert koala("logs", silent).err == ""


# ---- wait, cancel, hold, release


def test_wait_gives_up_in_words(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.submit(shell("sleep 1000"))
    answer = koala("wait", job, "--timeout", "0.2")
    answer.refused(1, f"Job {job} is not final yet.", "0.2 s", "wait again")
    koala("cancel", job)
    answer = koala("wait", job)
    assert answer.status == 1
    assert answer.err == f"job {job} was cancelled\n"


def test_wait_for_several(koala: Any, shell: Callable[..., Document]) -> None:
    done, failed = koala.submit(shell("true")), koala.submit(shell("false"))
    answer = koala("wait", failed, done, "--json")
    assert answer.status == 1
    openapi.check(answer.document)
    assert [(job["id"], job["state"]) for job in answer.document["jobs"]] == [(failed, "failed"), (done, "done")]
    assert koala("wait", done).status == 0


def test_cancel_ends_what_runs(koala: Any, shell: Callable[..., Document]) -> None:
    mark = f"sleep 98{os.getpid()}"
    job = koala.submit(shell(mark, 2), shell(mark, 2))
    koala.until(lambda: koala.job(job)["state"] == "running")
    answer = koala("cancel", job, "--json")
    assert answer.status == 0
    openapi.check(answer.document)
    assert koala.end(job)["state"] == "cancelled"
    assert not [entry for entry in Path("/proc").glob("[0-9]*") if mark in command_line(entry)]


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def test_several_are_cancelled_whatever_is_wrong_with_some(koala: Any, shell: Callable[..., Document]) -> None:
    over = koala.submit(shell("true"))
    koala.end(over)
    first, second = koala.submit(shell("sleep 1000")), koala.submit(shell("sleep 1000"))
    answer = koala("cancel", first, over, 10**6, second)
    assert answer.status == 1
    assert f"koala: Job {over} is final already; nothing was left to cancel." in answer.err
    assert "koala: There is no job 1000000." in answer.err
    for job in (first, second):
        assert f"job {job} is " in answer.out
        assert koala.end(job)["state"] == "cancelled"


def test_to_cancel_what_is_over_is_no_error(koala: Any, shell: Callable[..., Document]) -> None:
    over = koala.submit(shell("true"))
    koala.end(over)
    answer = koala("cancel", over, "--json")
    assert answer.status == 0
    assert answer.err == f"koala: Job {over} is final already; nothing was left to cancel.\n"
    openapi.check(answer.document)
    assert [each["id"] for each in answer.document["refused"]] == [over]


def test_jobs_are_cancelled_by_range_name_and_state_or_all(koala: Any, shell: Callable[..., Document]) -> None:
    blocker = koala.submit(shell("sleep 1000", 4, cluster="delft"), name="blocker")
    koala.until(lambda: koala.job(blocker)["state"] == "running")
    names = ("red", "red", "blue", "blue", "green")
    waiting = [koala.submit(shell("true", 4, cluster="delft"), name=name, when_busy="wait") for name in names]
    assert koala("cancel", f"{waiting[0]}-{waiting[1]}").out.splitlines() == [
        f"job {job} is cancelled" for job in waiting[:2]
    ]
    assert koala("cancel", "--name", "bl*", "--state", "waiting").status == 0
    left = [job["id"] for job in koala("jobs", "--state", "waiting", "--json").document["jobs"]]
    assert left == waiting[4:]
    assert koala.job(blocker)["state"] == "running"
    koala("cancel", "--all").refused(2, "To cancel all 2 jobs, confirm it on a terminal.", "--yes")
    answer = koala("cancel", "--name", "nobody")
    assert (answer.status, answer.err) == (0, "No job matches, so nothing was cancelled.\n")
    assert koala("cancel", "--all", "--yes").status == 0
    assert koala.end(blocker)["state"] == "cancelled"
    koala("cancel").refused(2, "not clear which jobs")
    koala("cancel", blocker, "--all").refused(2, "not clear which jobs")
    koala("cancel", "900-999").refused(1, "There are no jobs 900-999.")
    koala("cancel", "1,2").refused(2, "'1,2' is not a job's id.")


def test_with_json_an_error_is_a_document_too(koala: Any, shell: Callable[..., Document]) -> None:
    bad = koala.write("bad.yaml", {"components": [shell("true", 0)]})
    for command, status, code in (
        (["show", 10**6], 1, "no_such_job"),
        (["submit", bad], 2, "wrong_value"),
        (["cancel", "one"], 2, "bad_id"),
        (["status", "--grid", "nobody"], 3, "not_reachable"),
    ):
        answer = koala(*command, "--json")
        openapi.check(answer.document)
        assert (answer.status, answer.document["error"]["code"]) == (status, code)
        assert answer.err.startswith(f"koala: {answer.document['error']['message']}\n")
        assert koala(*command).out == ""
    job = koala.submit(shell("sleep 1000"))
    assert koala("wait", job, "--timeout", "0.1", "--json").document["error"]["code"] == "not_final"


def test_several_jobs_are_shown_together(koala: Any, shell: Callable[..., Document]) -> None:
    ids = [koala.submit(shell("true"), name=name) for name in ("red", "blue")]
    for job in ids:
        koala.end(job)
    document = koala("show", f"{ids[0]}-{ids[1]}", "--json").document
    assert document["schema"] == "koala.shown/1"
    for each in document["jobs"]:
        openapi.check(each)
    assert [each["job"]["name"] for each in document["jobs"]] == ["red", "blue"]
    lines = [line.split() for line in koala("show", *ids).out.splitlines()]
    assert [line[1] for line in lines if line[:1] == ["name"]] == ["red", "blue"]


def test_times_are_local_and_with_utc_those_of_utc(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.submit(shell("true"))
    submitted = datetime.fromisoformat(koala.end(job)["submitted_at"])
    local, utc = f"{submitted.astimezone():%Y-%m-%d %H:%M:%S}", f"{submitted:%Y-%m-%d %H:%M:%S}Z"
    shown = koala("show", job).out
    assert f"submitted at            {local}\n" in shown
    assert f"\n{local}  Submitted by " in shown
    (ended,) = [line for line in shown.splitlines() if "(at its barrier " in line and " ended well" in line]
    assert ended.count(local[:5]) == 1  # the day stands in front, and not with each time
    for command in (["show", job, "--utc"], ["--utc", "show", job]):
        assert f"submitted at            {utc}\n" in koala(*command).out


def test_a_job_that_never_fits_is_reported_at_once(koala: Any, shell: Callable[..., Document]) -> None:
    large = koala.write("large.yaml", {"components": [shell("true", 5)]})
    answer = koala("submit", large)
    job = koala.ids()[-1]
    assert (answer.status, answer.out) == (1, f"job {job} accepted\n")
    assert answer.err.startswith(f"job {job} failed: ")
    answer = koala("submit", large, "--json")
    assert (answer.status, answer.document["state"]) == (1, "failed")


def test_a_job_is_submitted_from_standard_input(koala: Any, shell: Callable[..., Document]) -> None:
    (koala.work / "piped").write_text("staged\n")
    text = json.dumps({"components": [shell("cat piped")], "stage_in": ["piped"]})
    process = koala.start("submit", "-", "--json", stdin=subprocess.PIPE)
    answer, _ = process.communicate(text.encode(), timeout=live.CALL_S)
    job = json.loads(answer)["id"]
    assert koala.end(job)["name"] == "stdin"
    assert koala("logs", job).out == "staged\n"
    process = koala.start("submit", "-", stdin=subprocess.PIPE)
    _, errors = process.communicate(b"components: [", timeout=live.CALL_S)
    assert process.returncode == 2
    assert errors.startswith(b"koala: stdin:1:")
    koala("submit", "-", "-").refused(2, "Standard input is named twice.")


def test_a_held_job_waits_until_it_is_released(koala: Any, shell: Callable[..., Document]) -> None:
    blocker = koala.submit(shell("sleep 1000", 4, cluster="delft"))
    koala.until(lambda: koala.job(blocker)["state"] == "running")
    job = koala.submit(shell("true", 4, cluster="delft"), when_busy="wait")
    answer = koala("hold", job)
    assert (answer.status, answer.out) == (0, f"job {job} is held\n")
    assert koala("hold", job).status == 0
    koala("cancel", blocker)
    koala.end(blocker)
    koala.known()
    assert koala.job(job)["state"] == "held"
    document = koala("release", job, "--json").document
    openapi.check(document)
    assert document["jobs"][0]["state"] in ("waiting", "claiming")
    assert koala.end(job)["state"] == "done"
    koala("release", job).refused(1, f"Job {job} is not held.")
    koala("hold", job).refused(1, f"Job {job} cannot be held.")


@pytest.mark.parametrize(
    ("command", "job"),
    [(each, 10**6) for each in ("logs", "explain", "wait", "cancel", "hold", "release")]
    + [("show", 0), ("show", 10**30)],
)
def test_a_job_that_is_not_there_is_reported_as_none(koala: Any, command: str, job: int) -> None:
    answer = koala(command, job)
    assert answer.status == 1, answer
    assert answer.out == ""
    assert answer.err.splitlines() == [f"koala: There is no job {job}.", "`koala jobs` lists those there are."]


@pytest.mark.parametrize(
    "arguments", [["show"], ["logs", "one"], ["submit"], ["nothing"], ["wait", "1", "--timeout", "-1"]]
)
def test_wrong_usage_is_exit_status_2(koala: Any, arguments: list[str]) -> None:
    answer = koala(*arguments)
    assert (answer.status, answer.out) == (2, "")
    assert "Usage: " in answer.err


# ---- explain


def test_explain_a_job_that_waits_for_processors(koala: Any, shell: Callable[..., Document]) -> None:
    blocker = koala.submit(shell("sleep 1000", 3, cluster="delft"))
    koala.until(lambda: koala.job(blocker)["state"] == "running")
    job = koala.submit(shell("true", 4, cluster="delft"), shell("true", 1))
    koala.until(lambda: "is idle, but 4 are needed" in koala("explain", job).out)
    lines = koala("explain", job).out.splitlines()
    assert lines[0].startswith(f"Job {job}: It waits for delft: 1 of 4 processors is idle, but 4 are needed.")
    assert lines[1].strip().startswith("component 0 on delft: 1 of 4 processors is idle")
    document = koala("explain", job, "--json").document
    openapi.check(document)
    assert document["lacks"][0]["cluster"] == "delft"
    together = koala.submit(shell("true", 4), shell("true", 4))
    said = koala("explain", together).out
    why = "each of its components would fit somewhere now, but not all of them at once."
    assert said.splitlines()[0] == f"Job {together}: It waits: {why} Job {job} comes before it in the queue."


def test_explain_a_job_that_never_fits(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.submit(shell("true", 5))
    assert koala.end(job)["reason_code"] == "too_large"
    said = koala("explain", job).out
    assert said.startswith(f"Job {job}: It failed: ")
    assert "amsterdam has 4, delft has 4, leiden has 2" in said


def test_explain_a_held_job(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.submit(shell("true", 4), shell("true", 4), shell("true", 2))
    koala("hold", job)
    koala.until(lambda: koala.job(job)["state"] in ("held", "done"))
    if koala.job(job)["state"] == "held":
        assert koala("explain", job).out == f"Job {job}: It is held; `koala release {job}` releases it.\n"
        koala("cancel", job)


def test_explain_a_job_in_a_batch_queue(koala: Any, shell: Callable[..., Document]) -> None:
    """After `queue_after` a job of one component goes into the queue of a cluster that is busy."""
    blocker = koala.submit(shell("sleep 1000", 2, cluster="leiden"))
    koala.until(lambda: koala.job(blocker)["state"] == "running")
    job = koala.submit(shell("true", 2, cluster="leiden"))
    koala.until(lambda: koala.job(job)["components"][0]["state"] == "queued")
    said = koala("explain", job).out
    assert said.startswith(f"Job {job}: It waits for component 0 on leiden, which is queued"), said
    koala("cancel", blocker)
    assert koala.end(job)["state"] == "done"
    assert koala("explain", job).out == f"Job {job}: It is done.\n"


def test_explain_a_failed_job(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.submit({"processors": 1, "executable": "./missing", "cluster": "leiden"})
    koala.end(job)
    said = koala("explain", job).out
    assert "leiden: The executable ./missing does not exist" in said
    document = koala("explain", job, "--json").document
    assert (document["reason"]["code"], document["lacks"]) == ("no_executable", [])


# ---- staging


def test_files_come_and_go_with_their_permission_bits(koala: Any) -> None:
    script = koala.work / "make.sh"
    script.write_text("#!/bin/sh\ncat data/in.txt > out.txt; chmod 640 out.txt; cp make.sh tool; chmod 751 tool\n")
    script.chmod(0o754)
    (koala.work / "data").mkdir()
    (koala.work / "data" / "in.txt").write_text("carried\n")
    (koala.work / "data" / "in.txt").chmod(0o604)
    staged = {"stage_in": ["make.sh", "data/in.txt"], "stage_out": ["out.txt", "tool", "make.sh", "data/in.txt"]}
    job = koala.submit({"processors": 1, "executable": "./make.sh"}, **staged)
    found = koala.end(job)
    assert found["state"] == "done", found["reason"]
    assert (koala.work / "out.txt").read_text() == "carried\n"
    modes = {name: (koala.work / name).stat().st_mode & 0o777 for name in staged["stage_out"]}
    assert modes == {"out.txt": 0o640, "tool": 0o751, "make.sh": 0o754, "data/in.txt": 0o604}


def test_a_file_to_be_staged_that_is_missing_is_refused_in_words(koala: Any, shell: Callable[..., Document]) -> None:
    for name in ("missing.dat", "*.missing"):
        file = koala.write("job.yaml", {"components": [shell("true")], "stage_in": [name]})
        koala("submit", file).refused(2, name)
    job = koala.end(koala.submit(shell("true"), stage_out=["never.dat"]))
    assert job["state"] == "failed"
    assert "never.dat" in job["reason"]


def test_what_was_left_is_fetched_again(koala: Any, shell: Callable[..., Document]) -> None:
    job = koala.submit(shell("mkdir d; echo 1 > d/1; echo 2 > d/2"), stage_out=["d/1", "d/none"])
    assert koala.end(job)["reason_code"] == "no_output_file"
    (koala.work / "d" / "1").unlink()
    answer = koala("fetch", job, "--json")
    assert answer.status == 1
    assert (answer.document["files"], answer.document["missing"]) == (1, ["d/none"])
    assert koala("fetch", job, "d/*", "--to", "there").out == f"job {job}: 2 files, 4 bytes\n"
    assert (koala.work / "there" / "d" / "2").read_text() == "2\n"
    assert (koala.work / "d" / "1").read_text() == "1\n"
    koala("fetch", job, "../x").refused(2, "../x")


def test_files_that_were_left_out_are_reported_where_the_job_ends(koala: Any, shell: Callable[..., Document]) -> None:
    """Two components leave a file of one name: only the first one's is brought."""
    components = [shell(f"echo {index} > result", cluster="delft") for index in range(2)]
    file = koala.write("twice.yaml", {"components": components, "stage_out": ["result"]})
    answer = koala("submit", file, "--wait")
    assert answer.status == 0
    job = koala.ids()[-1]
    note = "  Not brought, since an earlier component's file has the same place: result of component 1."
    assert answer.err.splitlines()[-2:] == [f"job {job} is done", note]
    assert koala("explain", job).out.splitlines() == [f"Job {job}: It is done.", note]
    assert (koala.work / "result").read_text() == "0\n"


def test_a_document_is_json_whatever_its_language(koala: Any, shell: Callable[..., Document]) -> None:
    name = "Grüße, 世界"
    job = koala.end(koala.submit(shell("true"), name=name))
    assert json.loads(koala("show", job["id"], "--json").out)["job"]["name"] == name


# ---- labels


def test_labelled_jobs_are_listed_shown_and_cancelled_by_their_labels(
    koala: Any, shell: Callable[..., Document]
) -> None:
    component = shell("sleep 1000", 4, cluster="delft")
    file = koala.write("labelled.yaml", {"components": [component], "labels": {"project": "poisson", "run": 1}})
    assert koala("submit", file, file, "--label", "run=2", "--label", "by=submit").status == 0
    assert koala("run", "-n", 1, "-d", "--label", "project=poisson", "--label", "by=run", "--", "true").status == 0
    assert koala("sweep", "-p", "x=1:2", "--label", "by=sweep", "--", "true", "{x}").status == 0
    first, second, ran, swept = koala.ids()[-4:]
    koala("wait", ran, swept)

    def found(*labels: str) -> list[int]:
        options = [word for label in labels for word in ("--label", label)]
        document = koala("jobs", "--json", *options).document
        openapi.check(document)
        return [job["id"] for job in document["jobs"]]

    assert found("project") == found("project=poisson") == [first, second, ran]
    assert found("by=sweep") == [swept]
    assert found("project", "by=submit") == [first, second]
    assert found("project=other") == []
    assert koala.job(first)["labels"] == {"project": "poisson", "run": "2", "by": "submit"}
    shown = [line.split() for line in koala("show", first).out.splitlines()]
    assert [words[1] for words in shown if words[:1] == ["label"]] == ["project=poisson", "run=2", "by=submit"]
    answer = koala("cancel", "--label", "by=submit", "--label", "run", "--json").document
    assert [job["id"] for job in answer["jobs"]] == [first, second]
    assert [koala.end(job)["state"] for job in (first, second)] == ["cancelled", "cancelled"]
    assert koala("cancel", "--label", "by=submit").err == "No job matches, so nothing was cancelled.\n"
    koala("submit", file, "--label", "nothing").refused(2, "--label 'nothing' is not KEY=VALUE.", "project=poisson")
    koala("submit", file, "--label", "a b=c").refused(2, "The label 'a b' has an invalid key.", "Use letters")
    koala("jobs", "--label", "=c").refused(2, "The label '=c' has an invalid key.", "KEY or KEY=VALUE")
    koala("sweep", "--rerun-failed", swept, "--label", "a=b").refused(2, "--rerun-failed takes all else", "Leave out")
    assert koala("run", "-n", 1, "--label", "x", "--", "true").status == 125
