"""Grid Engine's dialect (8.1.9) on output captured from real clusters."""

import gzip
import os
import re
import time
from pathlib import Path

import pytest
from koalapy_adapters.batch import sge
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings, Host, JobStatus
from koalapy_adapters.errors import (
    BatchError,
    ClusterError,
    RequestError,
    Result,
    TransientError,
    UnreadableError,
)
from koalapy_adapters.kcm.execution.batch_system import BatchSystem
from koalapy_adapters.kcm.execution.subprocess_runner import Ran, run

SAMPLES = Path(__file__).parents[1] / "samples" / "sge"


def tag(number: int) -> str:
    return f"kaaaaa{number:09d}"


def said(name: str, exit_status: int = 0) -> Result:
    """A command that printed this sample on stdout."""
    return Result([name], exit_status, (SAMPLES / f"{name}.out").read_text(), "")


def failed(name: str, exit_status: int = 1) -> Result:
    return Result([name], exit_status, "", (SAMPLES / f"{name}.err").read_text())


def printed(text: str) -> Result:
    return Result(["a command"], 0, text, "")


def listing(*states: str) -> Result:
    """A qstat -xml of jobs with our tags, in these states."""
    entry = "<job_list><JB_job_number>{0}</JB_job_number><JB_name>{1}</JB_name><state>{2}</state></job_list>"
    entries = (entry.format(number, tag(number), state) for number, state in enumerate(states))
    return printed("<?xml version='1.0'?>\n<job_info><queue_info>" + "".join(entries) + "</queue_info></job_info>\n")


# ---- submit ----------------------------------------------------------------------------------------------------------


def job(**wishes: object) -> BatchJob:
    wishes = {"processors": 1, "walltime_s": 60, "command": ["true"], "directory": "/home/koala/t", **wishes}
    return BatchJob(tag=tag(1), **wishes)  # type: ignore[arg-type]


def directives(of: BatchJob) -> list[str]:
    return re.findall(r"^#\$ (.*)$", sge.script(of), re.MULTILINE)


def test_slots_come_from_a_parallel_environment() -> None:
    assert "-pe mpi 6" in directives(job(processors=6, parallel_environment="mpi"))
    assert "-pe mpi 1" in directives(job(parallel_environment="mpi"))
    assert not [line for line in directives(job()) if line.startswith("-pe")]


def test_several_processors_without_a_parallel_environment() -> None:
    with pytest.raises(ClusterError) as caught:
        sge.script(job(processors=2))
    assert caught.value.code == "no_parallel_environment"


def test_an_account_is_a_project() -> None:
    assert "-P physics" in directives(job(account="physics"))


@pytest.mark.parametrize("wish", [{"qos": "high"}, {"gpus": 1}], ids=["qos", "gpus"])
def test_what_grid_engine_has_no_words_for(wish: dict[str, object]) -> None:
    with pytest.raises(RequestError) as caught:
        sge.script(job(**wish))
    assert caught.value.code == "unsupported"
    assert "native" in caught.value.advice


def test_a_users_options_cannot_undo_what_is_promised() -> None:
    lines = directives(job(native=["-r y", "-N other", "-S /bin/csh"]))
    assert lines.index("-r y") < lines.index("-r n")
    assert lines.index("-N other") < lines.index(f"-N {tag(1)}")
    assert lines.index("-S /bin/csh") < lines.index("-S /bin/sh")


@pytest.mark.parametrize("field", ["queue", "account", "reservation", "constraint", "parallel_environment"])
def test_a_line_break_cannot_reach_the_shell(field: str) -> None:
    with pytest.raises(RequestError) as caught:
        sge.script(job(**{field: "a\nrm -rf /"}))
    assert caught.value.code == "bad_value"


@pytest.mark.parametrize("directory", ["/home/o'hara", '/home/"x"', "/home/$USER", "/home/a#b"])
def test_a_directory_that_qsub_would_read_otherwise(directory: str) -> None:
    with pytest.raises(ClusterError) as caught:
        sge.script(job(directory=directory))
    assert caught.value.code == "bad_directory"


@pytest.mark.parametrize("text", ["2\n", "warning: something\n2\n"])
def test_submit_gives_the_id(text: str) -> None:
    assert sge.parse_submit(printed(text)) == "2"
    assert sge.parse_submit(said("qsub_terse")) == "2"


@pytest.mark.parametrize("text", ["", 'Your job 1 ("direct") has been submitted\n', "4.1-2:1\n"])
def test_submit_without_an_id_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        sge.parse_submit(printed(text))


@pytest.mark.parametrize(
    ("sample", "error", "code"),
    [
        ("err_bad_option", RequestError, "bad_native"),
        ("err_bad_project", RequestError, "account_not_permitted"),
        ("err_bad_queue", RequestError, "no_such_queue"),
        ("err_bad_resource", RequestError, "no_such_resource"),
        ("err_no_script", ClusterError, "script_missing"),
        ("err_pe_too_many_we", RequestError, "too_large_a_request"),
        ("err_pe_unknown", RequestError, "no_such_parallel_environment"),
        ("err_toolong", RequestError, "too_large_a_request"),
        ("qmaster_down_qsub__b_y_true", TransientError, "batch_system_unreachable"),
    ],
)
def test_a_refusal_names_whose_move_it_is(sample: str, error: type[BatchError], code: str) -> None:
    with pytest.raises(error) as caught:
        sge.parse_submit(failed(sample))
    assert caught.value.code == code
    assert caught.value.message.endswith(".")
    assert caught.value.advice.endswith(".")


# The answer of qsub 8.1.9 to each of these, beside those of the samples.
@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        ("Unable to run job: the advance reservation id 99 is invalid\nExiting.", RequestError, "no_such_reservation"),
        ('Unable to run job: attribute "h_rt" is not a time value\nExiting.', RequestError, "no_such_resource"),
        ('Unable to run job: "job" rejected: pe range must be greater than zero', RequestError, "too_large_a_request"),
        ("Unable to run job: Error reading answer list from qmaster", TransientError, "batch_system_unreachable"),
        ("qsub: Unknown option", RequestError, "bad_native"),
        ("the moon is in the wrong place", ClusterError, "unknown_words"),
    ],
)
def test_words_of_qsub(words: str, error: type[BatchError], code: str) -> None:
    with pytest.raises(error) as caught:
        sge.parse_submit(Result(["qsub"], 1, "", words))
    assert caught.value.code == code


def test_describe_gives_the_version() -> None:
    assert sge.parse_describe(printed("SGE 8.1.9\nusage: qstat [options]\n")) == ("8.1.9", [])
    with pytest.raises(UnreadableError):
        sge.parse_describe(printed("hello\n"))


@pytest.mark.parametrize(
    "reported",
    [
        pytest.param(Result(["qstat"], 0, "Usage:\nqstat [-f] [-a|-i|-r]\n", ""), id="slurm"),
        pytest.param(Result(["qstat"], 2, "", "qstat: invalid option -- 'h'\nusage: \nqstat [-f]\n"), id="pbs"),
    ],
)
def test_the_qstat_of_another_batch_system_is_recognized(reported: Result) -> None:
    with pytest.raises(ClusterError) as caught:
        sge.parse_describe(reported)
    assert caught.value.code == "batch_system_other"


# ---- status, find, cancel --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "state", "code", "restarts"),
    [
        ("r", "running", "", 0),
        ("t", "running", "", 0),
        ("dr", "running", "", 0),
        ("Rr", "running", "", 1),
        ("Rt", "running", "", 1),
        ("qw", "queued", "", 0),
        ("Rq", "queued", "", 1),
        ("hqw", "held", "", 0),
        ("Eqw", "queued", "error_state", 0),
        ("Ehqw", "held", "error_state", 0),
        ("s", "suspended", "", 0),
        ("S", "suspended", "", 0),
        ("T", "suspended", "", 0),
        ("z", "ended", "", 0),
    ],
)
def test_states(word: str, state: str, code: str, restarts: int) -> None:
    status = sge.parse_status(listing(word))["0"]
    assert (status.state, status.stuck, status.restarts) == (state, code, restarts)
    assert ("to be deleted" in status.reason) == ("d" in word)


@pytest.mark.parametrize("word", ["", "X", "r?"])
def test_an_unknown_state_is_named(word: str) -> None:
    with pytest.raises(UnreadableError, match=re.escape(repr(word))):
        sge.parse_status(listing(word))


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("S", "S: suspended with its queue, by another queue or the cluster"),
        ("s", "s: suspended by its owner or the cluster"),
        ("T", "T: suspended since its host is overloaded"),
        ("hqw", "hqw"),
        ("r", ""),
    ],
)
def test_reasons(word: str, reason: str) -> None:
    assert sge.parse_status(listing(word))["0"].reason == reason


def test_why_a_job_is_in_error() -> None:
    why = sge.parse_explain(said("qstat_j_error_wd_xml"))
    assert why == {"13": "can't chdir to /no/such/wd: No such file or directory"}
    assert sge.parse_explain(said("qstat_j_unknown_xml")) == {}
    with pytest.raises(TransientError):
        sge.parse_explain(failed("qmaster_down_qstat__xml"))


def test_the_reason_is_asked_for_once_and_only_of_those_that_are_stuck() -> None:
    asked: list[list[str]] = []
    answers = {"qstat -f": listing("Eqw", "r", "Eqw"), "qselect": printed("all.q@n\n"), "sh": printed("")}

    def runner(argv: list[str], timeout: float, handle: object) -> Ran:
        asked.append(argv)
        if argv[1] == "-j":
            return Ran(printed(said("qstat_j_error_wd_xml").stdout.replace(">13<", ">0<")), 0)
        return Ran(next(answer for words, answer in answers.items() if " ".join(argv).startswith(words)), 0)

    batch = BatchSystem(sge, BatchSettings(user=""), runner=runner)
    for _ in range(2):
        seen = batch.capacity().statuses
        assert seen["0"].reason == "can't chdir to /no/such/wd: No such file or directory"
        assert seen["2"].reason == "Eqw: `qstat -j 2` shows why"
    assert [argv for argv in asked if argv[1] == "-j"] == [["qstat", "-j", "0,2", "-xml"]]


def test_what_a_site_seldom_changes_is_seldom_asked() -> None:
    asked: list[str] = []
    environment = printed((SAMPLES / "qconf_sp_mpi.out").read_text())
    answers = {"qstat": listing(), "qselect": printed("all.q@n\n"), "sh": printed(""), "qconf": environment}

    def runner(argv: list[str], timeout: float, handle: object) -> Ran:
        asked.append(argv[0])
        return Ran(answers[argv[0]]._replace(argv=argv), 0)

    cluster = BatchSettings(user="koala", parallel_environment="mpi")
    batch = BatchSystem(sge, cluster, runner=runner, keeps=True)
    batch.capacity()
    batch.capacity()
    assert asked == ["qstat", "qselect", "sh", "qconf", "qstat"]
    answers["sh"] = printed((SAMPLES / "quotas.out").read_text())
    other = BatchSystem(sge, cluster, runner=runner, keeps=True)
    del asked[:]
    other.capacity()
    other.capacity()
    assert asked == ["qstat", "qselect", "sh", "qconf", "qstat", "sh"]


def test_an_answer_that_cannot_be_read_is_not_kept() -> None:
    """qconf and qselect are asked once a minute, but again at once after an answer that means nothing."""
    environment = printed((SAMPLES / "qconf_sp_mpi.out").read_text())
    answers = {"qstat": listing(), "qselect": printed(""), "sh": printed(""), "qconf": printed("")}
    asked: list[str] = []

    def runner(argv: list[str], timeout: float, handle: object) -> Ran:
        asked.append(argv[0])
        return Ran(answers[argv[0]]._replace(argv=argv), 0)

    cluster = BatchSettings(user="koala", parallel_environment="mpi")
    batch = BatchSystem(sge, cluster, runner=runner, keeps=True)
    with pytest.raises(UnreadableError, match="parallel environment"):
        batch.capacity()
    answers.update(qconf=environment, qstat=listing("r"))
    batch.capacity()
    answers.update(qselect=printed("all.q@n\n"), qstat=listing("r", "r"))
    batch.capacity()
    answers.update(qstat=listing())
    batch.capacity()
    assert asked == [*answers, *answers, "qstat", "qselect", "qstat"]


def test_find_reads_whole_names() -> None:
    found = sge.parse_find(said("find-qstat"), tag(11))
    assert found is not None
    assert (found.batch_id, found.state) == ("69", "running")
    assert sge.parse_find(said("find-qstat"), tag(99)) is None
    assert sge.parse_status(said("qstat_xml_all")) == {}  # jobs, but none of ours


def test_a_qmaster_that_is_down_knows_nothing() -> None:
    for parse in (sge.parse_status, lambda result: sge.parse_find(result, tag(1)), sge.parse_cancel):
        with pytest.raises(TransientError):
            parse(failed("qmaster_down_qstat__xml"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<job_info>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><job_info>&b;</job_info>",
        "usage: qstat [options]",
    ],
    ids=["nothing", "half", "entities", "text"],
)
def test_xml_that_is_none(text: str) -> None:
    with pytest.raises(UnreadableError):
        sge.parse_status(printed(text))


def test_a_control_character_in_anybodys_name_does_no_harm() -> None:
    text = listing("r").stdout.replace("<queue_info>", "<queue_info><job_list><JB_name>a\x01b</JB_name></job_list>")
    assert list(sge.parse_status(printed(text))) == ["0"]


def test_a_job_that_the_site_lets_users_drop_is_dropped() -> None:
    asked: list[list[str]] = []

    def runner(argv: list[str], timeout: float, handle: object) -> Ran:
        asked.append(argv)
        return Ran(Result(argv, 0, "koala has forced the deletion of job 7\n", ""), 0)

    BatchSystem(sge, BatchSettings(user="koala"), runner=runner).cancel("7", forced=True)
    assert asked == [["qdel", "-f", "7"]]


@pytest.mark.parametrize(
    ("sample", "exit_status"), [("qdel_multi", 0), ("qdel_running", 0), ("qdel_done", 1), ("cancel-qdel", 1)]
)
def test_cancelling_what_has_ended_is_no_error(sample: str, exit_status: int) -> None:
    sge.parse_cancel(said(sample, exit_status))


def test_a_cancel_that_reached_nobody_is_one() -> None:
    for result in (said("qmaster_down_qdel_1", 1), failed("qmaster_down_qdel_1"), Result(["qdel"], None, "", "")):
        with pytest.raises(TransientError):
            sge.parse_cancel(result)


# ---- history ---------------------------------------------------------------------------------------------------------


def remembered(sample: str) -> JobStatus:
    result = said(sample)
    name = re.search(r"^jobname +(\S+)", result.stdout, re.MULTILINE)
    assert name is not None
    status = sge.parse_history(result, name.group(1))
    assert status is not None
    return status


@pytest.mark.parametrize(
    ("sample", "ending", "exit_status"),
    [
        ("qacct_ex7", "exited", 7),
        ("qacct_nocmd", "exited", 127),
        ("qacct_kill9", "killed", 137),
        ("qacct_hrt", "walltime", 137),
        ("16-qacct", "walltime", 137),
    ],
)
def test_how_jobs_ended(sample: str, ending: str, exit_status: int) -> None:
    status = remembered(sample)
    assert (status.state, status.ending, status.exit_status) == ("ended", ending, exit_status)


def test_the_latest_of_several_accounting_records_counts() -> None:
    """The same tag was submitted three times."""
    assert remembered("11-qacct").batch_id == "69"


def changed(sample: str, **fields: str) -> JobStatus | None:
    """A real record with some of its fields changed."""
    text = said(sample).stdout
    for name, value in fields.items():
        text = re.sub(rf"^{name} .*$", f"{name:<13}{value}", text, flags=re.MULTILINE)
    return sge.parse_history(printed(text), "kill9")


@pytest.mark.parametrize(
    ("fields", "ending", "exit_status"),
    [
        ({"category": "-l h_vmem=50M", "maxvmem": "51.200MB"}, "memory", 137),
        ({"category": "-l h_vmem=50M -pe mpi 2", "maxvmem": "51.200MB", "slots": "2"}, "killed", 137),
        ({"category": "-l h_rt=60,h_vmem=50M", "ru_wallclock": "61s", "maxvmem": "1.387MB"}, "walltime", 137),
        ({"failed": "26  : opening input/output file"}, "lost", None),
        ({"failed": "1   : assumedly before job"}, "lost", None),
        ({"failed": "15  : in epilog", "exit_status": "7"}, "exited", 7),
        ({"failed": "17  : through signal"}, "killed", 137),
        ({"failed": "100 : assumedly after job", "exit_status": "0"}, "lost", None),
        ({"failed": "25  : rescheduling", "exit_status": "99"}, "lost", None),
        ({"failed": "77  : of which no manual speaks"}, "lost", None),
    ],
    ids=[
        "memory",
        "memory is per slot",
        "walltime",
        "no output file",
        "never started",
        "epilog",
        "signal",
        "its host died",
        "to be started again",
        "unknown",
    ],
)
def test_causes(fields: dict[str, str], ending: str, exit_status: int | None) -> None:
    status = changed("qacct_kill9", **fields)
    assert status is not None
    assert (status.ending, status.exit_status) == (ending, exit_status)


def test_the_manuals_words_of_a_failure_are_kept() -> None:
    status = changed("qacct_kill9", failed="28  : changing into working directory")
    assert status is not None
    assert (status.reason, status.restarts) == ("failed 28: changing into working directory", 0)
    assert status.stuck == "error_state", "by DRMAA nobody else tells"
    status = changed("qacct_kill9", failed="25  : rescheduling")
    assert status is not None
    assert status.restarts == 1


@pytest.fixture
def accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cell whose accounting was turned over, and a qacct that knows what stands in a file, and nothing else."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "qacct").write_text(
        "#!/bin/sh\nfile=$SGE_ROOT/default/common/accounting\n"
        '[ "$1" = -f ] && file=$2 && shift 2\n'
        'grep -qx "$4" "$file" && echo "found $4" && exit 0\n'
        'echo "error: job name $4 not found" >&2; exit 1\n'
    )
    (commands / "qacct").chmod(0o755)
    common = tmp_path / "default" / "common"
    common.mkdir(parents=True)
    (common / "accounting").write_text("new\n")
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("SGE_ROOT", str(tmp_path))
    monkeypatch.delenv("SGE_CELL", raising=False)
    return common / "accounting"


@pytest.mark.parametrize("name", ["accounting.0", "accounting.1.gz", "accounting-20261121"])
def test_a_job_that_ended_before_the_accounting_was_turned_over(accounting: Path, name: str) -> None:
    data = b"old\n"
    accounting.with_name(name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert history("new").stdout == "found new\n"
    assert history("old").stdout == "found old\n"
    assert sge.parse_history(history("nowhere"), tag(1)) is None
    month = time.time() - 30 * 86400
    os.utime(accounting.with_name(name), (month, month))
    assert sge.parse_history(history("old"), tag(1)) is None


def history(name: str) -> Result:
    argv = sge.history_argv(BatchSettings(user="koala"), name, "")
    assert argv is not None
    return run(argv, 30).result


def test_a_job_the_accounting_does_not_know() -> None:
    assert sge.parse_history(failed("qacct_unknown"), tag(1)) is None
    assert sge.parse_history(Result(["qacct"], 1, "", said("18-qacct").stdout), tag(18)) is None
    assert sge.parse_history(said("qacct_ex7"), tag(1)) is None


def test_a_record_without_its_fields_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        changed("qacct_kill9", failed="who knows")


# ---- inside a job ----------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The environment of a real job of one slot."""
    lines = (SAMPLES / "job_env.out").read_text().splitlines()
    return {line.partition("=")[0]: line.partition("=")[2] for line in lines}


def no_file(path: str) -> str:
    raise AssertionError(path)


def test_a_job_without_a_parallel_environment_has_its_own_host() -> None:
    assert sge.hosts(environment(), no_file) == [Host("gamma", 1)]
    assert sge.batch_id(environment()) == "1"


def test_a_host_may_have_slots_of_several_queues() -> None:
    files = {
        "/spool/pe": "nu-c2 4 all.q@nu-c2 UNDEFINED\nnu-c1 2 all.q@nu-c1 <NULL>\nnu-c2 1 short.q@nu-c2 UNDEFINED\n"
    }
    found = sge.hosts({"PE_HOSTFILE": "/spool/pe"}, files.__getitem__)
    assert found == [Host("nu-c2", 5), Host("nu-c1", 2)]


def test_a_host_file_that_makes_no_sense_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        sge.hosts({"PE_HOSTFILE": "/spool/pe"}, lambda path: "nu-c2 many\n")


def test_restarts() -> None:
    assert sge.restarts(environment()) == 0
    assert sge.restarts({"RESTARTED": "1"}) == 1
    assert sge.restarts({}) == 0


def test_agents_of_other_hosts_are_started_by_qrsh() -> None:
    here, there = sge.launch(environment(), ["gamma", "gamma-c2"], ["python3", "agent", "it's"])
    assert (here.argv, here.hosts) == (["python3", "agent", "it's"], ["gamma"])
    assert there.hosts == ["gamma-c2"]
    assert there.argv[2:] == ["qrsh", "-inherit", "-noshell", "gamma-c2", "/usr/bin/env", "python3", "agent", "it's"]
    assert there.argv[1].startswith("PATH=/tmp/1.1.all.q:")
    assert there.argv[1].endswith(":/usr/sbin/lx-amd64:/var/lib/gridengine/bin/lx-amd64")


# ---- what a user or a cluster has made a default (sge_request(5), sge_qstat(5))


def test_no_default_hides_the_scripts_options_or_has_qsub_wait() -> None:
    argv = sge.submit_argv(BatchJob("kabcde000000001", "/d", ["true"], 1, 60), "/d/script")
    assert " ".join(argv) == "qsub -terse -b n -sync n -now n /d/script"


def test_no_default_hides_jobs_from_a_list() -> None:
    lists = [
        sge.status_argv(["1"]),
        sge.find_argv(BatchSettings("me"), "kabcde000000001"),
        sge.capacity_argvs(BatchSettings("me"))[0],
    ]
    for argv in lists:
        assert "-s a" in " ".join(argv), argv
        assert "-g" not in argv, argv
