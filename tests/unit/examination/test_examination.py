"""A head node's description of its batch system and of itself, from output as real ones print it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, Result
from koalapy_adapters.examination import head, pbs, probe, probe_program, sge, slurm, survey, torque
from koalapy_adapters.examination.protocol import Environment, Lowest, Misnamed, Queue, chosen, nearest
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, load
from koalapy_adapters.kcm.execution.job_spec import batch_settings
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.messages.details import diagnosed
from koalapy_adapters.messages.koalad import ClusterConfig

SAMPLES = Path(__file__).parents[1] / "samples"
PARTITIONS = """\
PartitionName=batch AllowGroups=ALL AllowAccounts=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=00:10:00 \
MaxNodes=UNLIMITED MaxTime=02:00:00 MinNodes=0 Nodes=alpha-c[1-8] State=UP TotalCPUs=32 TotalNodes=8 TRES=cpu=32
PartitionName=short Default=NO MaxTime=00:05:00 Nodes=alpha-c[1-8] State=UP TotalCPUs=32 TotalNodes=8
PartitionName=long Default=NO MaxTime=UNLIMITED Nodes=alpha-c[1-8] State=DOWN TotalCPUs=32 TotalNodes=8
PartitionName=old Default=NO MaxTime=7-12:00:00 Nodes=alpha-d[1-2] State=UP TotalCPUs=8 TotalNodes=2
"""
STATES = "batch|idle\nbatch|down*\nshort|mixed\nlong|idle\nold|down\nold|idle*\n"
ENVIRONMENT = """\
pe_name            mpi
slots              999
user_lists         NONE
allocation_rule    $fill_up
control_slaves     TRUE
job_is_first_task  FALSE
"""
QUEUE = """\
qname                 all.q
hostlist              @allhosts
pe_list               smp mpi,[node1=openmp \\
                      mpi2]
rerun                 FALSE
h_rt                  12:30:00
"""

TORQUE = """\
#!/bin/sh
case "$1" in --version) echo "Version: 6.1.2"; exit;; esac
echo "qstat: Invalid option" >&2
exit 2
"""


def result(stdout: str = "", stderr: str = "", status: int | None = 0) -> Result:
    return Result(["command"], status, stdout, stderr)


def answering(answers: dict[str, Result]) -> Callable[[Sequence[str]], Result]:
    return lambda argv: answers[" ".join(argv)]


def test_partitions_are_reported_with_their_limits_and_with_why_they_start_nothing() -> None:
    batch, short, long, old = slurm.parse_queues(result(PARTITIONS), result(STATES))
    assert batch == Queue("batch", True, "", 7200, 8, 32)
    assert (short.default, short.closed, short.walltime_s) == (False, "", 300)
    assert (long.closed, long.walltime_s) == ("its state is DOWN", None)
    assert (old.closed, old.walltime_s) == ("none of its nodes is up", (7 * 24 + 12) * 3600)


def test_slurm_is_asked_about_a_job_without_submitting_it() -> None:
    argv = slurm.access_argv(BatchSettings("me", queue="batch", account="physics", reservation="mine"))
    assert argv[-2:] == ["sbatch", "--test-only"]
    assert {f"#SBATCH --{each}" for each in ("partition=batch", "account=physics", "reservation=mine")} < set(
        argv[4].splitlines()
    )
    refused = result(stderr="allocation failure: Requested reservation is invalid", status=1)
    with pytest.raises(RequestError) as caught:
        slurm.try_access(lambda _: refused, BatchSettings("me", reservation="mine"))
    assert caught.value.code == "no_such_reservation"


def test_accounts_are_none_where_nobody_keeps_them() -> None:
    assert slurm.accounts(lambda _: result("physics\nphysics\nchemistry\n"), BatchSettings("me")) == [
        "chemistry",
        "physics",
    ]
    assert (
        slurm.accounts(lambda _: result(stderr="not running a supported plugin", status=1), BatchSettings("me")) == []
    )
    assert sge.accounts(lambda _: result("no project list defined\n", status=1), BatchSettings("me")) == []


def test_a_queue_of_grid_engine_is_open_as_long_as_one_of_its_hosts_is() -> None:
    well, disabled, lost = ["node1", 4, ""], ["node2", 4, "d"], ["node3", 8, "au"]
    queue = sge.parse_queue(result(QUEUE), [well, disabled])
    assert queue == Queue("all.q", True, "", 45000, 2, 8, ["smp", "mpi", "openmp", "mpi2"])
    shut = sge.parse_queue(result(QUEUE), [disabled, lost]).closed
    assert shut == "all of it is disabled or on a host that does not answer"
    assert sge.parse_queue(result(QUEUE), [["node1", 4, "a"]]).closed == ""  # a load alarm passes
    assert sge.parse_queue(result(QUEUE), []).closed == "it has no hosts"


def test_a_parallel_environment_must_be_there_be_offered_and_control_its_slaves() -> None:
    mpi = sge.parse_environment(result(ENVIRONMENT))
    assert mpi == Environment("mpi", True, "$fill_up", 999)
    tied = Environment("tied", False, "$fill_up", 9)
    alone = Environment("alone", True, "$fill_up", 9)
    queues = [Queue("all.q", environments=["mpi", "tied"])]

    def refusal(name: str) -> tuple[str, str]:
        with pytest.raises(Misnamed) as caught:
            sge.check_environment(BatchSettings("me", "all.q", parallel_environment=name), [mpi, tied, alone], queues)
        return caught.value.code, caught.value.value

    sge.check_environment(BatchSettings("me", parallel_environment="mpi"), [mpi, tied], queues)
    assert refusal("mpii") == ("no_such_parallel_environment", "mpi")
    assert refusal("tied") == ("no_control_slaves", "mpi")
    threads = Environment("threads", False, "$pe_slots", 9)
    sge.check_environment(
        BatchSettings("me", parallel_environment="threads"), [threads], [Queue("q", environments=["threads"])]
    )
    assert refusal("alone") == ("parallel_environment_not_in_queue", "mpi")


@pytest.mark.parametrize(
    ("rule", "wishes"),
    [
        ("$fill_up", {"processors": 9}),
        ("$round_robin", {"processors": 2}),
        ("4", {"processors": 8}),
        ("$pe_slots", None),
    ],
)
def test_a_job_lies_on_two_nodes_by_the_rule_of_its_environment(rule: str, wishes: dict[str, int] | None) -> None:
    listing = """<job_info><queue_info>
        <Queue-List><name>all.q@n1</name><slots_total>8</slots_total></Queue-List>
        <Queue-List><name>all.q@n2</name><slots_total>4</slots_total></Queue-List></queue_info></job_info>"""
    run = answering(
        {
            "qconf -spl": result("mpi\n"),
            "qconf -sp mpi": result(ENVIRONMENT.replace("$fill_up", rule)),
            "qconf -sql": result("all.q\n"),
            "qconf -sq all.q": result(QUEUE),
            "qstat -f -xml": result(listing),
            "qstat -f -q all.q -xml": result(listing),
        }
    )
    assert sge.span(run, BatchSettings("me", "all.q", parallel_environment="mpi")) == wishes


def test_queues_of_openpbs_and_torque_are_read_from_the_same_words() -> None:
    openpbs = pbs.parse_queues(result((SAMPLES / "pbs" / "qstat-Q-f.txt").read_text()), "workq")
    reported = {queue.name: (queue.default, queue.closed, queue.walltime_s) for queue in openpbs}
    assert reported["workq"] == (True, "", None)
    assert reported["short"] == (False, "", 600)
    assert reported["closed"] == (False, "it takes no jobs (enabled = False)", None)
    assert reported["parked"] == (False, "it starts no jobs (started = False)", None)
    torque = pbs.parse_queues(result((SAMPLES / "torque" / "qstat_Qf.out").read_text()))
    assert [(queue.name, queue.closed) for queue in torque][:2] == [("batch", ""), ("short", "")]


QSTAT_Q, QSTAT_B = ((SAMPLES / "pbs" / name).read_text() for name in ("qstat-Q-f.txt", "qstat-B-f.txt"))
SCHED = "Sched default\n    sched_host = pbs-head\n"


def lowest(queue: str | None = None, sched: str = SCHED, server: str = QSTAT_B, queues: str = QSTAT_Q) -> Lowest:
    """Return the lowest priority as a PBS with this configuration reports it."""
    answers = {"qmgr -c list sched": sched, "qstat -B -f": server, "qstat -Q -f": queues}
    found = pbs.lowest(answering({name: result(text) for name, text in answers.items()}), BatchSettings("me", queue))
    assert found is not None
    return found


def test_as_installed_pbs_passes_over_the_lowest_priority() -> None:
    found = lowest()
    assert diagnosed("lowest", {"lowest": dict(found._asdict())}) == {"lowest": found._asdict()}
    assert not found.is_last
    assert "sched_config" in found.words
    assert "job_sort_formula" in found.advice


@pytest.mark.parametrize("where", ["sched", "server"])
def test_a_formula_of_scheduler_or_server_decides_whether_pbs_honours_the_lowest_priority(where: str) -> None:
    before = {"sched": SCHED, "server": QSTAT_B}[where]
    by_priority = lowest(**{where: before + "    job_sort_formula = job_priority + 2 * eligible_time\n"})
    assert by_priority == (True, "Its job_sort_formula is job_priority + 2 * eligible_time.", "")
    by_size = lowest(**{where: before + "    job_sort_formula = ncpus\n"})
    assert (by_size.is_last, by_size.words) == (False, "Its job_sort_formula, ncpus, does not have job_priority.")


def test_a_queue_below_all_others_that_start_jobs_makes_a_lowest_priority_of_its_own() -> None:
    raised = QSTAT_Q.replace("Queue: workq\n", "Queue: workq\n    Priority = 10\n")
    assert lowest("short", queues=raised).is_last
    assert not lowest("short").is_last
    assert not lowest("workq", queues=raised).is_last
    assert not lowest(queues=raised).is_last  # workq is the default


def test_without_qmgr_the_lowest_priority_is_judged_by_the_output_of_qstat() -> None:
    def run(argv: Sequence[str]) -> Result:
        if argv[0] == "qmgr":
            raise ClusterError("command_missing", "There is no qmgr.")
        return result({"-B": QSTAT_B + "    job_sort_formula = job_priority\n", "-Q": QSTAT_Q}[argv[1]])

    found = pbs.lowest(run, BatchSettings("me"))
    assert found is not None
    assert found.is_last


def test_the_queue_that_was_meant_is_the_nearest_else_the_only_default() -> None:
    assert nearest("batsch", ["batch", "short"], ["short"]) == "batch"
    assert nearest("xyz", ["batch", "short"], ["short"]) == "short"
    assert nearest(None, ["batch", "short"], []) == ""
    queues = [Queue("a", True), Queue("b"), Queue("c")]
    assert [queue.name for queue in chosen(queues, BatchSettings("me"))] == ["a"]
    assert [queue.name for queue in chosen(queues, BatchSettings("me", queue="b,c"))] == ["b", "c"]


# ---- the head node itself


def examined(shared: Path, batch: str = "local", **config: Any) -> head.Head:
    described = ClusterConfig("here", batch, shared=str(shared), **config)
    directories = Directories(str(shared), "abcde", "here", 1)
    system = BatchSystem(load(batch), batch_settings(described, str(shared), "/nowhere.pyz"))
    return head.Head(described, system, directories)


def test_the_shared_directory_is_written_to_linked_and_left_as_it_was(tmp_path: Path) -> None:
    found = head.diagnose(examined(tmp_path / "shared"), "shared")
    assert found["path"] == str(tmp_path / "shared")
    assert found["free_bytes"] > 0
    assert sorted(os.listdir(tmp_path / "shared" / "abcde")) == ["ended", "stage"]


def test_a_shared_directory_that_cannot_be_made_is_a_failure_in_words() -> None:
    failure = head.diagnose(examined(Path("/proc/koala")), "shared")["failure"]
    assert failure["code"] == "shared_gone"
    assert "/proc/koala" in failure["message"]


def test_where_the_relay_listens_is_reported_without_its_secret(tmp_path: Path) -> None:
    head_node = examined(tmp_path)
    head_node.directories.create()
    head_node.directories.address_file.publish(["10.0.0.1"], 4711)
    assert head.diagnose(head_node, "relay") == {"kind": "tcp", "addresses": ["10.0.0.1"], "port": 4711}


def test_commands_that_are_missing_are_a_failure_of_the_batch_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    failure = head.diagnose(examined(tmp_path, "slurm"), "batch")["failure"]
    assert (failure["code"], failure["whose"]) == ("command_missing", "cluster")


def test_a_library_that_is_not_there_is_reported_with_what_to_write(tmp_path: Path) -> None:
    found = head.diagnose(examined(tmp_path, "slurm", drmaa="/nowhere/libdrmaa.so"), "drmaa")
    assert found["failure"]["code"] == "no_drmaa_library"
    assert found["value"] == "off"
    assert head.diagnose(examined(tmp_path, "slurm"), "drmaa") == {"library": None}


def test_what_nobody_knows_how_to_examine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        head.diagnose(examined(tmp_path), "weather")


def test_a_store_that_is_over_leaves_nothing_but_not_before_its_attempts_are_gone(tmp_path: Path) -> None:
    directories = examined(tmp_path).directories
    directories.create()
    attempt = tmp_path / "abcde" / "kabcde000000001"
    attempt.mkdir()
    with pytest.raises(RequestError) as caught:
        directories.dissolve()
    assert caught.value.code == "attempts_left"
    attempt.rmdir()
    directories.dissolve()
    directories.dissolve()
    assert os.listdir(tmp_path) == ["bin"]


# ---- the probe


def probed(directory: Path, nonce: str, addresses: Sequence[str] = (), port: int = 1) -> int:
    order = {"addresses": list(addresses), "port": port}
    argv = probe.command(sys.executable, str(directory), order, nonce)
    return subprocess.run(argv, env={}, timeout=240, check=False).returncode


def attempt_with(directory: Path, nonce: str) -> Path:
    (directory / "work").mkdir(parents=True)
    (directory / "component.json").write_text(json.dumps({"program": {"arguments": [nonce]}}))
    return directory


def test_a_probe_that_sees_all_reports_it_and_leaves_its_answer(tmp_path: Path) -> None:
    assert probed(attempt_with(tmp_path / "it", "n1"), "n1") == probe_program.OURS
    answer = json.loads((tmp_path / "it" / "work" / probe_program.ANSWER).read_text())
    assert answer["wrong"] == 0
    assert answer["node"] == os.uname().nodename


def test_a_probe_distinguishes_a_directory_of_the_same_name_from_the_same_directory(tmp_path: Path) -> None:
    directory = attempt_with(tmp_path / "it", "another")
    program: Any = probe_program  # it runs by any Python 3, and has no annotations
    assert program.look(str(directory), "n1", 0) == probe_program.OTHER_CONTENT
    assert program.look(str(tmp_path / "none"), "n1", 0) == probe_program.NOT_SEEN
    assert program.answer(str(tmp_path / "none"), {}) == probe_program.NOT_WRITABLE


def test_a_probe_whose_head_does_not_answer_reports_it(tmp_path: Path) -> None:
    directory = attempt_with(tmp_path / "it", "n1")
    assert probed(directory, "n1", ["127.0.0.1"]) == probe_program.OURS + probe_program.NO_RELAY
    answer = json.loads((directory / "work" / probe_program.ANSWER).read_text())
    assert answer["errors"] == {"127.0.0.1": "Connection refused"}


def test_a_probes_script_needs_no_directory_of_ours() -> None:
    job = probe.Probe("kabcde000000001", "/shared/it", ["python3"], 1, 60)
    script = load("slurm").script(probe.as_scripted(job))
    assert '--chdir="/"' in script
    assert '--output="/dev/null"' in script
    plain = BatchJob("kabcde000000001", "/shared/it", ["python3"], 1, 60)
    assert probe.as_scripted(plain) is plain


# ---- a survey


def test_a_survey_reports_which_file_system_a_home_lies_on() -> None:
    mounts = "/dev/sda1 / ext4 rw 0 0\nhome:/export /home nfs4 rw 0 0\ntmpfs /home/me/scratch tmpfs rw 0 0\n"
    assert survey.file_system("/home/me", mounts) == "nfs4"
    assert survey.file_system("/home/me/scratch/x", mounts) == "tmpfs"
    assert survey.file_system("/root", mounts) == "ext4"
    assert survey.file_system("/root", "") == ""


def test_a_survey_finds_no_batch_system_where_there_are_no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = survey.survey("me")
    assert found["systems"] == []
    assert found["python"] == sys.executable


def test_a_survey_distinguishes_torque_from_openpbs_and_reports_why_it_knows_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("qstat", "pbsnodes"):
        command = tmp_path / name
        command.write_text(TORQUE)
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (system,) = survey.survey("me")["systems"]
    assert (system["batch"], system["version"]) == ("torque", "6.1.2")
    assert system["error"].endswith(".")


def test_what_a_profile_sets_for_sbatch_is_reported_by_the_grid_files_keys() -> None:
    profile = {"SBATCH_ACCOUNT": "physics", "SBATCH_PARTITION": "long", "SBATCH_QOS": "", "SBATCH_WAIT": "1"}
    assert slurm.profile(profile) == {"queue": "long", "account": "physics"}


def test_if_no_server_names_a_default_queue_any_may_be_it() -> None:
    listed = result("Queue: batch\n    enabled = True\n    started = True\n\nQueue: short\n    enabled = True\n")

    def reported(server: Result) -> list[bool]:
        found = pbs.queues(lambda argv: listed if argv[1] == "-Q" else server, BatchSettings("me"))
        return [queue.default for queue in found]

    assert reported(result("Server: old\n    default_queue = short\n")) == [False, True]
    assert reported(result(stderr="Option B requires an argument", status=2)) == [True, True]


def test_most_of_torques_nodes_have_so_many_processors() -> None:
    listed = result("node1\n     np = 8\n\nnode2\n     np = 16\n\nnode3\n     np = 16\n")
    assert pbs.usual_size(lambda _: listed) == 16
    assert pbs.usual_size(lambda _: result(stderr="no nodes", status=1)) is None


def test_every_module_that_examines_has_what_is_asked_of_it() -> None:
    for module in (slurm, sge, pbs, torque):
        assert module.COMMANDS
        for name in ("queues", "accounts", "try_access", "lowest", "span"):
            assert callable(getattr(module, name))
    assert issubclass(Misnamed, BatchError)
