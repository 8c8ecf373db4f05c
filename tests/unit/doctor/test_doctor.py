"""`koala doctor`: its tree of checks, how it reads a node's report, and a whole examination of this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.protocol import Channel, Lines
from koalapy_adapters.examination import probe_program as program
from koalapy_adapters.examination.protocol import Lowest
from koalapy_adapters.messages import kcm
from koalapy_adapters.messages.kcm import BatchStatus
from typer.testing import CliRunner

from koalapy.cli.main import app
from koalapy.cli.signals import interruptible
from koalapy.config import read_grid
from koalapy.config.convert import cluster_config
from koalapy.doctor import doctor, end_to_end_job, probe_job
from koalapy.doctor.checks import (
    BY_ID,
    CHECKS,
    QUICK,
    Doubtful,
    Failure,
    Finding,
    Inapplicable,
    Report,
    Status,
    Trouble,
)
from koalapy.doctor.doctor import Doctor, examine_quickly
from koalapy.doctor.error_advice import failure
from koalapy.doctor.examination import Examination
from koalapy.doctor.examiner import ExaminedCluster, judge_isolation, lowest_priority
from koalapy.doctor.interpreters import find_pythons, parse
from koalapy.model.errors import ClusterError, Reason, TransientError
from koalapy.runtime.cluster_link.connect import connection_of

TAG = "kabcde000000001"
COMMAND = [sys.executable, "-m", "koalapy.cli.main"]
OLD_PYTHON = f"""\
#!{sys.executable} -S
import sys
sys.version_info = (3, 5, 9, "final", 0)
program = sys.argv[sys.argv.index("-c") + 1]
sys.argv = ["-c", *sys.argv[sys.argv.index("-c") + 2:]]
exec(program)
"""
MINIMAL_PYTHON = """\
#!/bin/sh
echo "ModuleNotFoundError: No module named 'shlex'" >&2
exit 1
"""
Document = dict[str, Any]


# ---- the tree


def test_whatever_a_check_depends_on_comes_before_it() -> None:
    seen: set[str] = set()
    for check in CHECKS:
        assert set(check.after) <= seen
        seen.add(check.id)
    assert len(BY_ID) == len(CHECKS)


def test_every_check_has_a_function() -> None:
    from koalapy.doctor.examiner import FUNCTIONS

    assert set(FUNCTIONS) == set(BY_ID)


def test_a_lowest_priority_without_effect_is_a_warning_with_what_to_do() -> None:
    words, advice = "It has no job_sort_formula.", "Ask the administrator to set it."
    with pytest.raises(Doubtful) as raised:
        lowest_priority(Lowest(False, words, advice)._asdict())
    assert str(raised.value).startswith(f"It has no effect. {words} ")
    assert str(raised.value).endswith(f" {advice}")
    message, _ = lowest_priority(Lowest(True, "Its job_sort_formula is job_priority.")._asdict())
    assert message.endswith(" Its job_sort_formula is job_priority.")
    with pytest.raises(Inapplicable):
        lowest_priority(None)


# ---- a node's report


def seen(wrong: int, **answer: Any) -> probe_job.Seen:
    return probe_job.Seen(wrong, answer, sent=100_000_000, read=103_000_000)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (0, None),
        (program.NO_RELAY, None),
        (program.NOT_SEEN, "shared_not_seen"),
        (program.OTHER_CONTENT, "shared_not_seen"),
        (program.NOT_WRITABLE | program.NO_RELAY, "shared_not_writable"),
    ],
)
def test_what_is_wrong_with_the_shared_directory_is_distinguished(wrong: int, code: str | None) -> None:
    reason = probe_job.shared_trouble(seen(wrong, node="c1"), "/shared")
    assert (reason and reason.code) == code


def test_a_relay_that_is_out_of_reach_is_reported_with_the_error_of_each_address() -> None:
    reason = probe_job.relay_trouble(seen(program.NO_RELAY, errors={"10.0.0.1": "no answer", "10.0.0.2": "refused"}))
    assert reason is not None
    assert (reason.code, reason.words) == ("relay_blocked", "10.0.0.1: no answer; 10.0.0.2: refused")
    assert probe_job.relay_trouble(seen(program.NOT_SEEN)) is None


@pytest.mark.parametrize(
    ("clock", "ahead_s", "skew_s"),
    [(101_000_000, 0.0, 0.0), (163_000_000, 0.0, 60.0), (40_000_000, 0.0, -60.0), (161_500_000, 60.0, 0.0)],
)
def test_a_nodes_clock_is_off_by_what_the_time_of_the_job_does_not_explain(
    clock: int, ahead_s: float, skew_s: float
) -> None:
    assert seen(0, clock=clock).skew_s(ahead_s) == pytest.approx(skew_s)
    assert seen(0).skew_s(0.0) is None


def test_a_clock_that_is_off_is_noted_and_far_off_a_failure() -> None:
    from koalapy.doctor.examiner import judge_clock

    assert judge_clock("Its clock", -0.3, "ours")[0] == "Its clock agrees with ours."
    with pytest.raises(Doubtful, match=r"is 7\.0 s ahead of ours"):
        judge_clock("Its clock", 7.0, "ours")
    with pytest.raises(Trouble, match=r"is at least 90\.0 s behind ours"):
        judge_clock("Its clock", -90.0, "ours", bound=True)


@pytest.mark.parametrize(
    ("status", "code"),
    [(127, "no_python_on_node"), (program.TOO_OLD, "no_python_on_node"), (1, "job_silent"), (None, "job_silent")],
)
def test_a_job_without_a_report_is_judged_by_how_it_ended(status: int | None, code: str) -> None:
    ended = BatchStatus(TAG, "1", 0, "ended", "its reason", exit_status=status)
    assert probe_job._mistakes_in_exit_status(ended) is None
    reason = probe_job._no_answer(ended, "python3")
    assert (reason.code, reason.words, reason.exit_status) == (code, "its reason", status)


def test_the_exit_status_reports_where_no_file_can() -> None:
    ended = BatchStatus(TAG, "1", 0, "ended", exit_status=program.OURS + program.NOT_SEEN + program.NO_RELAY)
    assert probe_job._mistakes_in_exit_status(ended) == program.NOT_SEEN | program.NO_RELAY
    report = kcm.Report(TAG, "1", "ended", [], ending="failed", exit_status=66, error={"words": "it lacks it"})
    found = probe_job._status_of_ended([BatchStatus(TAG, "1", 0, "running"), report])
    assert found is not None
    assert (found.exit_status, found.reason) == (66, "it lacks it")


def test_a_job_that_can_never_start_is_a_failure_at_once() -> None:
    with pytest.raises(Trouble) as caught:
        end_to_end_job._phase("at_barrier")(
            [BatchStatus(TAG, "1", 0, "queued", "Can Never Run", stuck="can_never_run")]
        )
    assert (caught.value.reason.code, caught.value.reason.words) == ("can_never_run", "Can Never Run")


def test_a_canary_that_ends_without_a_word_or_badly_is_a_failure() -> None:
    with pytest.raises(Trouble) as caught:
        end_to_end_job._phase("at_barrier")([BatchStatus(TAG, "1", 0, "ended", "NonZeroExitCode", exit_status=3)])
    assert caught.value.reason.code == "wrapper_silent"
    with pytest.raises(Trouble) as caught:
        end_to_end_job._check(kcm.Report(TAG, "1", "ended", [], ending="killed", exit_status=137))
    assert caught.value.reason.code == "canary_ended"


# ---- what to do


def test_a_failure_states_whose_move_it_is_and_what_to_write_where() -> None:
    reason = Reason("no_such_queue", "cluster", "There is no queue named x.", "There are a, b.", "qconf", 1, "words")
    reported = failure("vu", reason, "a")
    assert (reported.move, reported.key, reported.value) == ("you", "queue", "a")
    assert reported.change == "There are a, b. Write `queue: a` for vu in the grid file."
    assert (reported.command, reported.exit_status, reported.output) == ("qconf", 1, "words")


def test_another_batch_system_than_in_the_grid_file_is_for_its_writer_to_correct() -> None:
    reported = failure("lab", Reason("batch_system_other", "cluster", "This is not OpenPBS.", "Write `batch: torque`."))
    assert (reported.move, reported.key) == ("you", "batch")


@pytest.mark.parametrize(
    ("whose", "move"),
    [("transient", "nobody"), ("cluster", "administrator"), ("request", "you"), ("ours", "koalapy")],
)
def test_a_failure_of_an_unknown_code_is_whose_the_error_names(whose: Any, move: str) -> None:
    assert failure("vu", Reason("unheard_of", whose, "It is.")).move == move


def test_pythons_are_found_among_whatever_a_login_prints(tmp_path: Path) -> None:
    found = parse("Welcome!\nkoalapy-python /usr/bin/python3 3.5.2\nkoalapy-python /opt/a/python3 3.11.0rc1\nbye\n")
    assert [(python.path, python.usable) for python in found] == [("/usr/bin/python3", False), ("/opt/a/python3", True)]
    grid = grid_of(here={"batch": "local", "connect": "local:"})
    assert any(python.usable for python in find_pythons(connection_of(grid.clusters["here"])))


# ---- whole examinations of this machine


def grid_of(**clusters: Document) -> Any:
    return read_grid(json.dumps({"grid": "examined", "clusters": clusters}), "grid.yaml", ["local", "slurm"])


def local(directory: Path, **changed: Any) -> Document:
    return {"batch": "local", "connect": "local:", "slots": 2, "shared": str(directory), **changed}


def examined(grid: Any) -> dict[str, Report]:
    reports = Doctor(grid, grid.clusters, 60.0, lambda *_: None, lambda *_: None).run()
    return {report.cluster: report for report in reports}


def by_status(report: Report, status: Status) -> list[str]:
    return [finding.check for finding in report.findings if finding.status is status]


def test_a_machine_that_is_well_and_what_is_wrong_beside_it(tmp_path: Path) -> None:
    """Side by side, and each failure is one: what depends on it is not examined."""
    old = tmp_path / "old"
    old.write_text(OLD_PYTHON)
    old.chmod(0o755)
    minimal = tmp_path / "minimal-python"
    minimal.write_text(MINIMAL_PYTHON)
    minimal.chmod(0o755)
    reports = examined(
        grid_of(
            well=local(tmp_path / "well"),
            old=local(tmp_path / "too-old", python=str(old)),
            none=local(tmp_path / "none", python="/nowhere/python3"),
            minimal=local(tmp_path / "minimal", python=str(minimal)),
            unwritable=local(Path("/proc/koala")),
            lost={"batch": "local", "connect": "command:false"},
            other=local(tmp_path / "other", batch="slurm") | {"slots": None},
        )
    )
    well = reports["well"]
    assert well.well, well
    assert by_status(well, Status.NOT_APPLICABLE) == ["access", "lowest", "drmaa", "launch", "isolation"]
    assert sorted(os.listdir(tmp_path / "well")) == ["bin", "local-queue"]
    failed = {name: wrong(report) for name, report in reports.items() if name != "well"}
    assert failed == {
        "old": ("python", "python_too_old"),
        "none": ("python", "no_python"),
        "minimal": ("python", "python_incomplete"),
        "unwritable": ("shared", "directory_not_writable"),
        "lost": ("login", "login_ended"),
        "other": ("batch", "command_missing"),
    }
    assert by_status(reports["lost"], Status.NOT_EXAMINED) == [check.id for check in CHECKS[1:]]
    assert {finding.message for finding in reports["lost"].findings[1:]} == {"It depends on “login”."}
    suggestion = next(finding.failure for finding in reports["old"].findings if finding.failure)
    assert suggestion.key == "python"
    assert suggestion.value


@pytest.mark.parametrize(
    ("lend", "status", "words"),
    [
        ({}, Status.OK, "isolates programs by"),
        ({"isolation": "unshare"}, Status.OK, "isolates programs by unshare."),
        ({"isolation": "none"}, Status.WARNING, "`site.lend.isolation` is none"),
        ({"clusters": ["other"]}, Status.NOT_APPLICABLE, "Nothing of this cluster is lent."),
    ],
    ids=["auto", "unshare", "none", "another cluster"],
)
def test_how_a_cluster_that_is_lent_isolates_programs(
    tmp_path: Path, lend: Document, status: Status, words: str
) -> None:
    clusters = {"here": local(tmp_path / "here"), "other": local(tmp_path / "other")}
    site = {"name": "delft", "lend": {"to": ["lyon"], "processors": 2, **lend}}
    grid = read_grid(json.dumps({"grid": "examined", "clusters": clusters, "site": site}), "grid.yaml", ["local"])
    (report,) = Doctor(grid, ["here"], 60.0, lambda *_: None, lambda *_: None).run()
    finding = report.findings[-1]
    assert (finding.check, finding.status) == ("isolation", status), finding
    assert words in finding.message


def test_nodes_that_cannot_isolate_are_a_failure_with_the_reason_of_each_means() -> None:
    refused = {"bwrap": "bwrap is not installed", "unshare": "no user namespace can be made (Operation not permitted)"}
    with pytest.raises(Trouble) as trouble:
        judge_isolation(json.dumps({"node": "n7", "methods": [], "refused": refused}).encode())
    assert trouble.value.reason.message == "n7 cannot isolate programs, so that nothing of this cluster is lent."
    assert "unshare: no user namespace" in trouble.value.reason.words
    with pytest.raises(ClusterError, match="no answer"):
        judge_isolation(b"[]")


def wrong(report: Report) -> tuple[str, str]:
    """The one failure, and the code of its cause."""
    (finding,) = (finding for finding in report.findings if finding.status is Status.FAILED)
    assert finding.failure is not None
    assert finding.failure.change
    return finding.check, finding.failure.code


def test_the_quick_part_finds_what_is_wrong_without_a_batch_job(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text(OLD_PYTHON)
    old.chmod(0o755)
    grid = grid_of(
        well=local(tmp_path / "well"),
        old=local(tmp_path / "too-old", python=str(old)),
        unwritable=local(Path("/proc/koala")),
    )
    found = examine_quickly(grid, threading.Event())
    assert sorted(found) == ["old", "unwritable"]
    assert [line.partition(":")[0] for line in found["old"]] == ["Python on the head node"]
    assert [line.partition(":")[0] for line in found["unwritable"]] == ["shared directory"]
    assert sorted(os.listdir(tmp_path / "well")) == ["bin", "local-queue"]
    assert [check.id for check in QUICK] == [
        "login",
        "python",
        "shared",
        "clock",
        "batch",
        "queue",
        "access",
        "lowest",
        "drmaa",
    ]


def test_the_quick_part_ends_with_koalad_and_leaves_nothing(tmp_path: Path) -> None:
    ending = threading.Event()
    ending.set()
    with pytest.raises(TransientError, match="ended before all was examined"):
        examine_quickly(grid_of(here=local(tmp_path / "shared")), ending)
    assert {path.name for path in (tmp_path / "shared").glob("*")} <= {"bin", "local-queue"}


def test_a_login_that_asks_a_person_is_passed_over() -> None:
    def report(code: str) -> Report:
        failed = Failure(code, "It asks for a password.", "Answer it.", "you")
        return Report("vu", (Finding("login", Status.FAILED, "It asks.", failure=failed),))

    assert list(doctor._wrong(report("asks"))) == []
    assert list(doctor._wrong(report("login_ended"))) == ["login: It asks for a password. Answer it."]


def test_an_examination_interrupted_during_its_login_leaves_no_agent(tmp_path: Path) -> None:
    channels: list[Channel] = []

    class Watched(LocalConnection):
        def open(self, shell_command: str, stderr: Lines) -> Channel:
            channels.append(super().open(shell_command, stderr))
            return channels[-1]

    def began(cluster: str, check: str) -> None:
        examination.interrupt()

    config = cluster_config(grid_of(here=local(tmp_path / "shared")), "here")
    examination = Examination(ExaminedCluster("here", config, Watched(), 60.0), began, lambda *_: None)
    assert examination.run().left == ()
    assert channels
    assert all(channel.exit_status(0) is not None for channel in channels)
    assert {path.name for path in (tmp_path / "shared").glob("*")} <= {"bin", "local-queue"}


def test_an_interrupted_examination_leaves_nothing(tmp_path: Path) -> None:
    """Interrupted as by a person, while it waits for its thread."""
    grid = grid_of(here=local(tmp_path / "shared"))

    def reported(cluster: str, finding: Finding) -> None:
        if finding.check == "node_relay":
            os.kill(os.getpid(), signal.SIGINT)

    doctor = Doctor(grid, ["here"], 60.0, lambda *_: None, reported)
    with pytest.raises(KeyboardInterrupt), interruptible():
        doctor.run()
    doctor.interrupt()
    (report,) = doctor.reports
    assert "canary" not in by_status(report, Status.OK)
    assert report.left == ()
    assert sorted(os.listdir(tmp_path / "shared")) == ["bin", "local-queue"]


def test_an_examination_whose_end_takes_too_long_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(here=local(tmp_path / "shared"))
    entered, leave = threading.Event(), threading.Event()

    def reported(cluster: str, finding: Finding) -> None:
        entered.set()
        assert leave.wait(120)

    monkeypatch.setattr("koalapy.doctor.doctor._CLEANING_S", 0.01)
    doctor = Doctor(grid, ["here"], 60.0, lambda *_: None, reported)
    runner = threading.Thread(target=doctor.run)
    runner.start()
    try:
        assert entered.wait(120)
        doctor.interrupt()
        (report,) = doctor.reports
    finally:
        leave.set()
        runner.join(60)
    assert [finding.check for finding in report.findings] == ["login"]
    assert "took too long" in report.left[0]
    assert not report.well


# ---- the command


def koala(*arguments: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


@pytest.fixture
def broken(tmp_path: Path) -> str:
    path = tmp_path / "grid.yaml"
    path.write_text(
        yaml.safe_dump({"grid": "broken", "clusters": {"vu": {"batch": "slurm", "connect": "command:false"}}})
    )
    return str(path)


def test_the_document_has_its_schema_and_a_failure_its_exit_status(broken: str) -> None:
    done = koala("doctor", "--grid", broken, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert (found["schema"], found["grid"], found["ok"], found["complete"]) == (
        "koala.doctor/1",
        "broken",
        False,
        True,
    )
    (cluster,) = found["clusters"]
    assert (cluster["cluster"], cluster["batch"], cluster["connect"]) == ("vu", "slurm", ["command:false"])
    assert set(cluster["checks"][0]) == {"check", "title", "status", "message", "took_s", "figures", "failure"}
    assert cluster["checks"][0]["failure"]["code"] == "login_ended"


def test_a_person_reads_lines_and_then_what_to_do(broken: str) -> None:
    done = koala("doctor", "vu", "--grid", broken)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("vu: login: failed: ")
    assert lines[1:3] == [f"vu: {len(CHECKS) - 1} further checks were not examined. They depend on “login”.", ""]
    assert lines[-1] == "Problems on: vu."
    assert any(line.startswith("  What you can do: ") for line in lines)


def test_a_reader_that_goes_away_ends_it_without_a_word(broken: str) -> None:
    process = subprocess.Popen([*COMMAND, "doctor", "--grid", broken], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # as `| head` does
    with process:
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody"], "has no cluster nobody"),
        (["--patience", "soon"], "not a duration"),
        (["--grid", "/nowhere/grid.yaml"], "There is no grid file"),
    ],
)
def test_what_cannot_be_examined_is_a_mistake_of_usage(broken: str, arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["doctor", "--grid", broken, *arguments])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stdout == ""
