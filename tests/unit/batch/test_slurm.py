"""Slurm's dialect on output captured from real clusters (22.05 unless a name has another)."""

import re
import subprocess
from pathlib import Path

import pytest
from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings
from koalapy_adapters.batch.slurm_states import STATES, holds, stuck
from koalapy_adapters.errors import (
    BatchError,
    ClusterError,
    RequestError,
    Result,
    TransientError,
    UnreadableError,
)

SAMPLES = Path(__file__).parents[1] / "samples" / "slurm"
CLUSTER = BatchSettings(user="koala")


def tag(number: int) -> str:
    return f"kaaaaa{number:09d}"


def said(name: str, argv: list[str] | None = None) -> Result:
    """A command that succeeded with this sample."""
    return Result(argv or [name], 0, (SAMPLES / f"{name}.out").read_text(), "")


def failed(name: str, exit_status: int | None = 1) -> Result:
    return Result([name], exit_status, "", (SAMPLES / f"{name}.err").read_text())


def printed(text: str, argv: list[str] | None = None) -> Result:
    """A command that succeeded with these lines; the last may lack its end here, as it does not there."""
    return Result(argv or ["a command"], 0, text if text.endswith("\n") or not text else text + "\n", "")


def job(**wishes: object) -> BatchJob:
    wishes = {"processors": 2, "walltime_s": 60, "command": ["true"], "directory": "/home/koala/t", **wishes}
    return BatchJob(tag=tag(1), **wishes)  # type: ignore[arg-type]


# ---- submit ----------------------------------------------------------------------------------------------------------


def directives(of: BatchJob) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", slurm.script(of), re.MULTILINE)


@pytest.mark.parametrize(
    ("processors", "per_node", "shape"),
    [
        (5, None, ["--ntasks=5"]),
        (8, 4, ["--ntasks=8", "--nodes=2", "--ntasks-per-node=4"]),
        (9, 4, ["--ntasks=9", "--nodes=3", "--ntasks-per-node=3"]),
        (5, 4, ["--ntasks=5", "--nodes=2", "--ntasks-per-node=3"]),
        (2, 4, ["--ntasks=2", "--nodes=1", "--ntasks-per-node=2"]),
    ],
)
def test_processors_are_tasks_spread_evenly(processors: int, per_node: int | None, shape: list[str]) -> None:
    assert directives(job(processors=processors, processors_per_node=per_node))[: len(shape)] == shape


@pytest.mark.parametrize(("walltime_s", "minutes"), [(1, 1), (60, 1), (61, 2), (3600, 60)])
def test_walltime_is_rounded_up_to_minutes(walltime_s: int, minutes: int) -> None:
    assert f"--time={minutes}" in directives(job(walltime_s=walltime_s))


@pytest.mark.parametrize("option", ["-x a,b[1-3]", "-xa,b[1-3]", "--exclude=a,b[1-3]", "--exclude a,b[1-3]"])
def test_hosts_to_avoid_are_added_to_those_that_the_user_excludes(option: str) -> None:
    """sbatch uses the last --exclude alone."""
    found = directives(job(native=[option], avoid=["c2", "c1", "c2"]))
    assert [line for line in found if "exclude" in line][-1] == "--exclude=a,b[1-3],c1,c2"


@pytest.mark.parametrize("host", ["a,b", "-a", "a b", "c[1-2]", "", "a\n#SBATCH --wrap=x"])
def test_an_invalid_host_name_cannot_be_avoided(host: str) -> None:
    with pytest.raises(RequestError, match="is not the name of a host"):
        slurm.script(job(avoid=[host]))


def test_the_lowest_priority_beats_what_the_user_wrote() -> None:
    found = directives(job(native=["--nice=0"], lowest=True))
    assert [line for line in found if "nice" in line][-1] == "--nice=2147483645"


@pytest.mark.parametrize("option", ["-Mother", "-M other", "--clusters=a,b", "--cluster other", "--cl=other"])
def test_another_cluster_of_a_federation_is_refused(option: str) -> None:
    with pytest.raises(RequestError) as caught:
        slurm.script(job(native=["--licenses=a", option]))
    assert caught.value.code == "other_cluster"


@pytest.mark.parametrize("option", ["--cluster-constraint=x", "-pMain", "--mem=1", "--comment=-M"])
def test_options_that_look_like_it_are_not(option: str) -> None:
    assert option in directives(job(native=[option]))


def test_memory_is_rounded_up_to_mebibytes() -> None:
    assert "--mem-per-cpu=513M" in directives(job(memory_per_processor=512 * 1024**2 + 1))


def test_a_users_options_cannot_undo_what_is_promised() -> None:
    lines = directives(job(native=["--requeue", "--export=NONE", "--job-name=other"]))
    assert lines.index("--requeue") < lines.index("--no-requeue")
    assert lines.index("--export=NONE") < lines.index("--export=ALL")
    assert lines.index("--job-name=other") < lines.index(f"--job-name={tag(1)}")
    argv = slurm.submit_argv(job(), "/home/koala/t/script")
    assert {"--no-requeue", "--export=ALL", f"--job-name={tag(1)}"} < set(argv)


@pytest.mark.parametrize("field", ["queue", "account", "qos", "reservation", "constraint"])
def test_a_line_break_cannot_reach_the_shell(field: str) -> None:
    with pytest.raises(RequestError) as caught:
        slurm.script(job(**{field: "a\nrm -rf /"}))
    assert caught.value.code == "bad_value"


def test_a_line_break_in_a_native_option_is_refused() -> None:
    with pytest.raises(RequestError):
        slurm.script(job(native=["--comment=a\nrm -rf /"]))


@pytest.mark.parametrize(("printed_id", "batch_id"), [("59\n", "59"), ("59;alpha\n", "59")])
def test_submit_gives_the_id(printed_id: str, batch_id: str) -> None:
    assert slurm.parse_submit(printed(printed_id)) == batch_id


@pytest.mark.parametrize("words", ["", "Submitted\n", "59 60\n"])
def test_submit_without_an_id_is_unreadable(words: str) -> None:
    with pytest.raises(UnreadableError):
        slurm.parse_submit(printed(words))


@pytest.mark.parametrize(
    ("sample", "error", "code"),
    [
        ("err_bad_account", RequestError, "account_not_permitted"),
        ("err_bad_constraint", RequestError, "no_such_constraint"),
        ("err_bad_gres", RequestError, "no_such_resource"),
        ("err_license", RequestError, "no_such_resource"),
        ("err_bad_nodelist", RequestError, "bad_native"),
        ("err_bad_option", RequestError, "bad_native"),
        ("err_bad_time", RequestError, "bad_native"),
        ("err_bad_partition", RequestError, "no_such_queue"),
        ("err_bad_reservation", RequestError, "no_such_reservation"),
        ("err_time_limit", RequestError, "walltime_too_long"),
        ("err_too_many_cpus", RequestError, "too_many_processors"),
        ("err_too_many_nodes_partition", RequestError, "too_many_processors"),
        ("err_too_much_mem", RequestError, "memory_too_large"),
        ("err_no_script", ClusterError, "script_missing"),
        ("ctld_down_sbatch___wrap_true", TransientError, "batch_system_unreachable"),
    ],
)
def test_a_refusal_names_whose_move_it_is(sample: str, error: type[BatchError], code: str) -> None:
    with pytest.raises(error) as caught:
        slurm.parse_submit(failed(sample))
    assert caught.value.code == code
    assert caught.value.message.endswith(".")
    assert caught.value.advice.endswith(".")
    assert caught.value.result is not None


@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        ("sbatch: error: AssocMaxSubmitJobLimit", TransientError, "submit_limit"),
        ("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's "
         "size and/or time limits)", RequestError, "accounting_limit"),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", TransientError,
         "batch_system_unreachable"),
        ("sbatch: error: Batch job submission failed: Unspecified error", ClusterError, "cluster_refuses"),
        ("sbatch: error: the moon is in the wrong place", ClusterError, "unknown_words"),
    ],
    ids=["submit limit", "policy", "timed out", "submit filter", "unknown"],
)  # fmt: skip
def test_words_of_slurm_errno(words: str, error: type[BatchError], code: str) -> None:
    with pytest.raises(error) as caught:
        slurm.parse_submit(Result(["sbatch"], 1, "", words))
    assert caught.value.code == code


def test_a_command_that_was_ended_may_have_done_its_work() -> None:
    with pytest.raises(TransientError) as caught:
        slurm.parse_submit(Result(["sbatch"], None, "", ""))
    assert caught.value.code == "no_answer"


def test_a_missing_command_is_the_sites() -> None:
    with pytest.raises(ClusterError) as caught:
        slurm.parse_describe(Result(["scontrol"], 127, "", "scontrol: not there"))
    assert caught.value.code == "command_missing"


def test_an_invalid_list_of_jobs_is_not_taken_for_an_empty_one() -> None:
    for words in ("CLUSTER: other\n", "module loaded\n1|RUNNING|koala|batch|1|0:0|0|None|k\n", '{"jobs": []}\n'):
        with pytest.raises(UnreadableError):
            slurm.parse_status(printed(words))


@pytest.mark.parametrize("left", range(1, 76, 5))
def test_an_answer_that_stops_in_the_middle_of_a_line_is_not_read(left: int) -> None:
    line = f"12|RUNNING|koala|batch|2|0:0|0|None| {tag(1)}\n"
    cut = Result(["squeue"], 0, (line + line)[:left], "")
    if cut.stdout.endswith("\n"):
        assert list(slurm.parse_status(cut)) == ["12"]
    else:
        with pytest.raises(UnreadableError):
            slurm.parse_find(cut, tag(1))


def test_a_head_without_sacct_has_no_history() -> None:
    argv = slurm.history_argv(CLUSTER, tag(1), "")
    assert argv is not None
    done = subprocess.run(
        argv, env={"PATH": "/nowhere"}, executable="/bin/sh", capture_output=True, text=True, check=False
    )
    assert slurm.parse_history(Result(argv, done.returncode, done.stdout, done.stderr), tag(1)) is None


# ---- describe --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "features"), [("config-scontrol", ["memory"]), ("config_accounting", ["accounting", "memory"])]
)
def test_describe_gives_version_and_features(sample: str, features: list[str]) -> None:
    assert slurm.parse_describe(said(sample)) == ("22.05.8", features)


@pytest.mark.parametrize("version", ["17.11.2", "19.05.5", "20.02.7"])
def test_a_slurm_whose_srun_knows_too_little_is_refused(version: str) -> None:
    text = (SAMPLES / "config-scontrol.out").read_text().replace("22.05.8", version)
    with pytest.raises(ClusterError) as caught:
        slurm.parse_describe(printed(text))
    assert caught.value.code == "batch_system_too_old"


@pytest.mark.parametrize("version", ["20.11.9", "21.08.5", "23.02.0", "26.05.0-0rc1"])
def test_later_ones_are_not(version: str) -> None:
    text = (SAMPLES / "config-scontrol.out").read_text().replace("22.05.8", version)
    assert slurm.parse_describe(printed(text)).version == version


@pytest.mark.parametrize(
    ("private", "hidden"),
    [("none", False), ("jobs", True), ("accounts,jobs,usage", True), ("accounts,usage", False), ("all", True)],
)
def test_hidden_jobs_of_others_are_reported(private: str, hidden: bool) -> None:
    text = (SAMPLES / "24.11-config-scontrol.out").read_text().replace("= none\nProctrack", f"= {private}\nProctrack")
    found = slurm.parse_describe(printed(text))
    assert found.version == "24.11.5"
    assert ("others_hidden" in found.features) == hidden


# ---- status, find, history -------------------------------------------------------------------------------------------

ENDED = {
    21: ("exited", 7),
    22: ("killed", 137),
    23: ("exited", 0),
    25: ("cancelled", 143),
}


@pytest.mark.parametrize("sample", ["ended-squeue", "24.11-ended-squeue"])
def test_status_of_ended_jobs(sample: str) -> None:
    statuses = {status.name: status for status in slurm.parse_status(said(sample)).values()}
    for number, (ending, exit_status) in ENDED.items():
        status = statuses[tag(number)]
        assert (status.state, status.ending, status.exit_status) == ("ended", ending, exit_status)


def test_a_job_that_could_not_write_its_output_was_not_started() -> None:
    status = slurm.parse_status(said("ended-squeue"))["104"]
    assert (status.ending, status.exit_status, status.reason) == ("not_started", None, "JobLaunchFailure")


def test_a_forgotten_job_is_not_listed() -> None:
    forgotten = Result(["squeue"], 1, "", (SAMPLES / "forgotten-squeue.out").read_text())
    assert slurm.parse_status(forgotten) == {}


@pytest.mark.parametrize("sample", ["ctld_down_squeue", "ctld_down_sinfo"])
def test_a_controller_that_is_down_is_not_a_forgotten_job(sample: str) -> None:
    for parse in (
        slurm.parse_status,
        lambda result: slurm.parse_find(result, tag(1)),
        lambda result: slurm.parse_history(result, tag(1)),
    ):
        with pytest.raises(TransientError):
            parse(failed(sample))


def test_find_prefers_the_job_that_lives() -> None:
    lines = [f"7|RUNNING|koala|batch|1|0|0|None| {tag(1)}", f"9|FAILED|koala|batch|1|256|0|NonZeroExitCode| {tag(1)}"]
    found = slurm.parse_find(printed("\n".join(lines)), tag(1))
    assert found is not None
    assert (found.batch_id, found.state) == ("7", "running")
    assert slurm.parse_find(printed(""), tag(1)) is None


def test_a_name_that_merely_begins_like_a_tag_is_another_job() -> None:
    assert slurm.parse_find(printed(f"7|RUNNING|koala|batch|1|0|0|None|{tag(1)}0"), tag(1)) is None


def test_every_state_of_the_manual_is_known_and_no_other() -> None:
    line = f"7|%s|koala|batch|1|0|0|None| {tag(1)}"
    for word, state in STATES.items():
        assert slurm.parse_status(printed(line % word))["7"].state == state
    with pytest.raises(UnreadableError, match="BEWITCHED"):
        slurm.parse_status(printed(line % "BEWITCHED"))


@pytest.mark.parametrize(
    ("word", "exit_code", "ending", "exit_status"),
    [
        ("TIMEOUT", "0:15", "walltime", 143),
        ("DEADLINE", "0", "walltime", None),
        ("NODE_FAIL", "0:0", "lost", None),
        ("BOOT_FAIL", "0", "lost", None),
        ("OUT_OF_MEMORY", "0:125", "memory", None),
        ("PREEMPTED", "0:15", "preempted", 143),
        ("CANCELLED", "0:0", "cancelled", None),
        ("FAILED", "0:53", "not_started", None),
    ],
)
def test_endings(word: str, exit_code: str, ending: str, exit_status: int | None) -> None:
    status = slurm.parse_status(printed(f"7|{word}|koala|batch|1|{exit_code}|0|None| {tag(1)}"))["7"]
    assert (status.state, status.ending, status.exit_status) == ("ended", ending, exit_status)


def test_restarts_are_counted() -> None:
    status = slurm.parse_status(printed(f"7|PENDING|koala|batch|1|0|1|BeginTime| {tag(1)}"))["7"]
    assert (status.state, status.restarts, status.reason, status.stuck) == ("queued", 1, "BeginTime", "")


def test_no_accounting_is_no_knowledge() -> None:
    assert slurm.parse_history(failed("sacct_disabled"), tag(1)) is None
    assert slurm.parse_history(printed(""), tag(1)) is None
    with pytest.raises(TransientError):
        slurm.parse_history(failed("dbd_down_sacct___"), tag(1))
    with pytest.raises(UnreadableError):
        slurm.parse_history(printed("something new\n"), tag(1))


def test_the_accounting_knows_ended_jobs() -> None:
    rows = [line.split("|") for line in (SAMPLES / "sacct_short.out").read_text().splitlines()]
    argv = slurm.history_argv(CLUSTER, "tlimit", "")
    assert argv is not None
    assert "--format=JobIDRaw,JobName,State,ExitCode" in argv
    answer = printed("".join("|".join(row[1:5]) + "\n" for row in rows), argv)
    endings = {name: slurm.parse_history(answer, name) for name in ("done0", "fail7", "kill9", "tlimit", "running")}
    assert {name: (status.ending, status.exit_status) for name, status in endings.items() if status} == {
        "done0": ("", None),  # this one was requeued
        "fail7": ("exited", 7),
        "kill9": ("killed", 137),
        "tlimit": ("walltime", None),
        "running": ("cancelled", None),
    }


# ---- pending reasons -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("PartitionTimeLimit", "partition_time_limit"),
        ("PartitionNodeLimit", "partition_node_limit"),
        ("BadConstraints", "bad_constraints"),
        ("InvalidAccount", "invalid_account"),
        ("InvalidQOS", "invalid_qos"),
        ("QOSNotAllowed", "qos_not_allowed"),
        ("QOSMaxCpuPerJobLimit", "qos_max_cpu_per_job_limit"),
        ("QOSMaxWallDurationPerJobLimit", "qos_max_wall_duration_per_job_limit"),
        ("QOSMinCpuNotSatisfied", "qos_min_cpu_not_satisfied"),
        ("AssocMaxCpuMinutesPerJobLimit", "assoc_max_cpu_minutes_per_job_limit"),
        ("AssocGrpCPUMinutesLimit", "assoc_grp_cpu_minutes_limit"),
        ("AssocGrpBillingMinutes", "assoc_grp_billing_minutes"),
        ("QOSGrpWallLimit", "qos_grp_wall_limit"),
        ("JobHeldAdmin", "job_held_admin"),
        ("launch failed requeued held", "launch_failed"),
        ("launch_failed_requeued_held", "launch_failed"),
        ("job requeued in held state", "launch_failed"),
    ],
)
def test_reasons_that_cannot_clear(reason: str, code: str) -> None:
    assert stuck(reason) == code


@pytest.mark.parametrize(
    "reason",
    [
        "None",
        "Resources",
        "Priority",
        "BeginTime",
        "Dependency",
        "Licenses",
        "JobHeldUser",
        "PartitionDown",
        "PartitionInactive",
        "Reservation",
        "ReqNodeNotAvail",
        "ReqNodeNotAvail, UnavailableNodes:alpha-c3",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "AssocMaxJobsLimit",
        "AssocGrpCpuLimit",
        "AssocGrpCPURunMinutesLimit",
        "AssocGrpGRESRunMinutes",
        "QOSMaxCpuPerUserLimit",
        "QOSMaxJobsPerUserLimit",
        "QOSGrpNodeLimit",
        "MaxCpuPerAccount",
    ],
)
def test_reasons_that_clear_by_themselves(reason: str) -> None:
    assert stuck(reason) == ""


def test_a_job_that_was_requeued_held_is_held_and_stuck() -> None:
    line = f"7|PENDING|koala|batch|1|0|1|launch failed requeued held| {tag(1)}"
    status = slurm.parse_status(printed(line))["7"]
    assert (status.state, status.stuck) == ("held", "launch_failed")
    assert holds("JobHeldUser")
    assert not holds("Resources")


# ---- cancel ----------------------------------------------------------------------------------------------------------


def test_cancelling_what_has_ended_is_no_error() -> None:
    slurm.parse_cancel(printed(""))
    slurm.parse_cancel(failed("scancel_done_verbose"))
    with pytest.raises(TransientError):
        slurm.parse_cancel(failed("ctld_down_scancel_1", 8))


def test_no_list_contains_other_members_of_a_federation() -> None:
    lists = [
        slurm.status_argv(["1"]),
        slurm.find_argv(BatchSettings("me"), "kabcde000000001"),
        *slurm.capacity_argvs(BatchSettings("me"))[:2],
    ]
    assert [argv[:2] for argv in lists] == [[name, "--local"] for name in ("squeue", "squeue", "sinfo", "squeue")]
