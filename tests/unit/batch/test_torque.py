"""Torque's dialect: what Slurm's imitation of it prints, captured, and what Torque 6 prints, by its source."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import pbs, torque
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings, Capacity, Dialect, Host, JobStatus
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, Result, TransientError, UnreadableError

SAMPLES = Path(__file__).parents[1] / "samples" / "torque"
CLUSTER = BatchSettings(user="koala")
TAG = "kaaaaa000000001"
ARGV = torque.status_argv(["1"])
DOWN = "qstat: cannot connect to server head (errno=15137) Could not connect to trqauthd\n"


def said(name: str) -> str:
    return (SAMPLES / f"{name}.out").read_text()


def printed(text: str, exit_status: int | None = 0, stderr: str = "") -> Result:
    return Result(ARGV, exit_status, text, stderr)


def listing(**fields: Any) -> str:
    """A job as Torque's `qstat -f` prints it."""
    fields = {"Job_Name": TAG, "Job_Owner": "koala@head", "job_state": "R", "queue": "batch", **fields}
    lines = [f"    {name.replace('__', '.')} = {value}" for name, value in fields.items() if value is not None]
    return "\n".join(["Job Id: 12.head", *lines, "\n"])


def xml(**fields: str) -> str:
    """The same by `qstat -x`."""
    fields = {"Job_Name": TAG, "Job_Owner": "koala@head", "job_state": "R", "queue": "batch", **fields}
    elements = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    return f"<Data><Job><Job_Id>12.head</Job_Id>{elements}</Job></Data>"


def status(text: str) -> JobStatus:
    (found,) = torque.parse_status(printed(text)).values()
    return found


# ---- submit ----------------------------------------------------------------------------------------------------------


def job(**wishes: Any) -> BatchJob:
    wishes = {"processors": 1, "walltime_s": 60, "command": ["true"], "directory": "/home/koala/t", **wishes}
    return BatchJob(tag=TAG, **wishes)


def directives(of: BatchJob) -> list[str]:
    return re.findall(r"^#PBS (.*)$", torque.script(of), re.MULTILINE)


@pytest.mark.parametrize(
    ("processors", "per_node", "nodes"),
    [
        (1, None, "nodes=1:ppn=1"),
        (8, 4, "nodes=2:ppn=4"),
        (9, 4, "nodes=3:ppn=3"),
        (10, 4, "nodes=3:ppn=4"),
        (3, 4, "nodes=1:ppn=3"),
    ],
)
def test_nodes(processors: int, per_node: int | None, nodes: str) -> None:
    assert f"-l {nodes}" in directives(job(processors=processors, processors_per_node=per_node))


def test_several_processors_need_a_number_for_each_node() -> None:
    with pytest.raises(ClusterError) as caught:
        torque.script(job(processors=2))
    assert "processors_per_node" in caught.value.advice


def test_hosts_to_avoid_are_refused_in_words() -> None:
    with pytest.raises(RequestError, match="Torque has no option to leave out c1"):
        torque.script(job(avoid=["c1"]))


def test_the_lowest_priority_has_a_form_that_slurms_qsub_accepts_too(tmp_path: Path) -> None:
    """The priority -1024 of Torque must be a large number for Slurm, which has an sbatch beside it."""
    argv = torque.submit_argv(job(lowest=True), "/home/koala/t/script")
    for name, priority in (("qsub", "-1024"), ("sbatch", "2147483645")):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@"\n')
        (tmp_path / name).chmod(0o755)
        said = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PATH": f"{tmp_path}:/bin"})
        assert said.stdout.split() == ["-p", priority, *torque.submit_argv(job(), "/home/koala/t/script")[1:]]


@pytest.mark.parametrize("wish", [{"qos": "high"}, {"reservation": "R17"}])
def test_what_the_scheduler_decides(wish: dict[str, str]) -> None:
    with pytest.raises(RequestError) as caught:
        torque.script(job(**wish))
    assert (caught.value.code, "native" in caught.value.advice) == ("unsupported", True)


def test_the_walltime_is_written_so_that_nobody_takes_it_for_minutes() -> None:
    assert "-l walltime=25:01:05" in directives(job(walltime_s=90065))


@pytest.mark.parametrize("path", ["/home/my job/script", "/home/$(rm)/script", "/home/a;b"])
def test_a_path_that_slurms_qsub_would_hand_to_a_shell(path: str) -> None:
    with pytest.raises(ClusterError) as caught:
        torque.submit_argv(job(), path)
    assert caught.value.code == "bad_directory"
    assert torque.submit_argv(job(), "/home/koala/t/script")[-1] == "/home/koala/t/script"


@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        (
            "qsub: submit error (Job exceeds queue resource limits MSG=cannot locate feasible nodes (nodes file is"
            " empty, all systems are busy, or no nodes have the requested feature))",
            RequestError,
            "too_large_a_request",
        ),
        ("qsub: submit error (Unknown queue MSG=requested queue not found)", RequestError, "no_such_queue"),
        ("qsub: submit error (Queue is not enabled MSG=queue is disabled)", ClusterError, "queue_closed"),
        (
            "qsub: submit error (Maximum number of jobs already in queue for user MSG=total number of current user's"
            " jobs exceeds the queue limit)",
            TransientError,
            "submit_limit",
        ),
        ("qsub: submit error (Bad UID for job execution MSG=root user not allowed)", ClusterError, "not_permitted"),
        ("qsub: submit error (Unknown resource type  Resource_List.foo)", RequestError, "no_such_resource"),
        (DOWN, TransientError, "batch_system_unreachable"),
        (
            "There was an error running the Slurm sbatch command.\nThe command was:\n'/usr/bin/sbatch -o /dev/null"
            " script 2>&1'\nand the output was:\n'sbatch: unrecognized option '--nonsense'\n"
            "sbatch: error: Unrecognized command line parameter ?\n'",
            RequestError,
            "bad_native",
        ),
        ("the moon is in the wrong place", ClusterError, "unknown_words"),
    ],
)
def test_words_of_qsub(words: str, error: type[BatchError], code: str) -> None:
    with pytest.raises(error) as caught:
        torque.parse_submit(printed("", 1, words))
    assert caught.value.code == code


def test_submit_gives_the_id() -> None:
    assert torque.parse_submit(printed("56.head.cluster\n")) == "56.head.cluster"
    assert torque.parse_submit(printed(said("qsub_script"))) == "1"
    with pytest.raises(UnreadableError):
        torque.parse_submit(printed("There was an error\n"))


# ---- describe --------------------------------------------------------------------------------------------------------


def test_describe() -> None:
    assert torque.parse_describe(printed("Version: 6.1.2\nCommit: 661e09\n")) == ("6.1.2", [])
    usage = (SAMPLES / "qstat_x_unsupported.err").read_text().replace("option: x", "option: version")
    assert torque.parse_describe(printed(usage)).features == ["slurm"]
    with pytest.raises(ClusterError, match="OpenPBS"):
        torque.parse_describe(printed("pbs_version = 23.06.06\n"))
    with pytest.raises(ClusterError, match="Grid Engine"):
        torque.parse_describe(printed("SGE 8.1.9\nusage: qstat [options]\n", 1))
    with pytest.raises(ClusterError, match="qstat was not found"):
        torque.parse_describe(printed("", 127, "qstat: 1: qstat: not found"))
    with pytest.raises(UnreadableError):
        torque.parse_describe(printed("hello\n"))


# ---- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [listing, xml])
@pytest.mark.parametrize(
    ("letter", "state"),
    [("Q", "queued"), ("W", "queued"), ("H", "held"), ("R", "running"), ("E", "running"), ("S", "suspended")],
)
def test_states(form: Any, letter: str, state: str) -> None:
    found = status(form(job_state=letter))
    assert (found.batch_id, found.name, found.state) == ("12.head", TAG, state)


def test_a_job_in_a_state_without_a_letter_in_slurms_qstat_still_holds_its_nodes() -> None:
    assert status(listing(job_state="U")).state == "running"


@pytest.mark.parametrize("form", [listing, xml])
@pytest.mark.parametrize(
    ("reported", "ending", "exit_status"),
    [
        ("0", "exited", 0),
        ("7", "exited", 7),
        ("271", "killed", 143),
        ("265", "killed", 137),
        ("-10", "memory", None),
        ("-11", "walltime", None),
        ("-3", "lost", None),
        ("-9", "lost", None),
    ],
)
def test_how_jobs_ended(form: Any, reported: str, ending: str, exit_status: int | None) -> None:
    found = status(form(job_state="C", exit_status=reported))
    assert (found.state, found.ending, found.exit_status) == ("ended", ending, exit_status)


def test_slurm_does_not_report_how() -> None:
    found = status(said("qstat_done"))
    assert (found.state, found.ending, found.exit_status) == ("ended", "lost", None)


def test_long_values_go_on_in_the_next_line() -> None:
    text = listing(
        Variable_List="PBS_O_HOME=/home/koala,\n\tPBS_O_LANG=C,X=1\nJob_state = C\n\tjob_state = C", comment="a"
    )
    assert status(text).state == "running"


def test_xml_with_entities_is_refused() -> None:
    with pytest.raises(UnreadableError, match="document type"):
        status("<!DOCTYPE a [<!ENTITY b 'c'>]><Data>&b;</Data>")


@pytest.mark.parametrize("text", ["<Data>", "<job_info/>", "<Data><Job/></Data>", "Job Id: x\n", "hello\n", "<"])
def test_an_invalid_listing_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        torque.parse_status(printed(text))


def test_jobs_that_are_no_longer_listed_have_no_status() -> None:
    gone = "qstat: Unknown Job Id Error 99.head\n"
    assert torque.parse_status(printed("", 153, gone)) == {}
    assert list(torque.parse_status(printed(listing(), 153, gone))) == ["12.head"]
    assert torque.parse_status(printed("", 153)) == {}  # Slurm's, without a word
    with pytest.raises(TransientError):
        torque.parse_status(printed("", 153, gone + DOWN))


def test_find_by_tag() -> None:
    found = torque.parse_find(printed(said("qstat_f").replace("opts", TAG)), TAG)
    assert found is not None
    assert (found.batch_id, found.state) == ("2", "running")
    assert torque.parse_find(printed(said("qstat_f")), TAG) is None
    assert torque.history_argv(CLUSTER, TAG, "2") is None


def test_cancelling_what_has_ended_is_no_error() -> None:
    torque.parse_cancel(printed("", 1))  # Slurm's, without a word
    torque.parse_cancel(printed("", 153, "qdel: Unknown Job Id Error 99.head"))
    torque.parse_cancel(printed("", 170, "qdel: Request invalid for state of job MSG=invalid state for job 9.head"))
    for result in (printed("", 1, DOWN), printed("", None)):
        with pytest.raises(TransientError):
            torque.parse_cancel(result)
    with pytest.raises(ClusterError):
        torque.parse_cancel(printed("", 127))


# ---- capacity --------------------------------------------------------------------------------------------------------

NODE = "node1\n     state = free\n     power_state = Running\n     np = 4\n     ntype = cluster\n"


def capacity(
    nodes: str, jobs: str = "", queues: str = "", cluster: BatchSettings = CLUSTER, server: str = ""
) -> Capacity:
    """`server`: what `qstat -B -f` prints of it; Slurm's prints nothing."""
    answers = [nodes, jobs, queues or said("qstat_Qf")]
    return torque.parse_capacity(cluster, [*map(printed, answers), printed(server, 0 if server else 1)])


def test_slurms_nodes_by_what_its_jobs_hold() -> None:
    jobs = said("qstat_f").replace("opts", TAG)
    seen = capacity(said("pbsnodes_a"), jobs)
    assert (seen.total, seen.idle, seen.ours, seen.others, seen.free_nodes) == (8, 3, 1, 4, [[3, 1]])
    assert seen.allocated == [TAG]


@pytest.mark.parametrize(
    ("held", "free"),
    [
        ("", 4),
        ("     jobs = 0/12.head\n", 3),
        ("     jobs = 0/12.head, 1/12.head, 2/13.head\n", 1),
        ("     jobs = 0-2/12.head,3/13.head\n", 0),
    ],
)
def test_torques_nodes_by_their_jobs(held: str, free: int) -> None:
    seen = capacity(NODE + held)
    assert (seen.total, seen.idle, seen.others) == (4, free, 4 - free)
    assert capacity(NODE + held, cluster=CLUSTER._replace(exclusive=True)).idle == (4 if free == 4 else 0)


def test_ours_by_the_processors_that_torque_numbers() -> None:
    jobs = listing(exec_host="node1/0-1+node2/0", Resource_List__nodes="2:ppn=2")
    assert capacity(NODE + "     jobs = 0-2/12.head\n", jobs).ours == 3


@pytest.mark.parametrize(
    "state", ["down", "offline", "down,offline", "job-exclusive", "busy", "reserve", "unknown", "draining", "free,new"]
)
def test_nodes_that_can_start_nothing_now(state: str) -> None:
    seen = capacity(NODE.replace("free", state))
    assert (seen.total, seen.idle, seen.free_nodes) == (4, 0, [])


def test_only_nodes_that_have_the_properties_count() -> None:
    nodes = NODE + "     properties = haswell,ib\n\n" + NODE.replace("node1", "node2")
    assert capacity(nodes).total == 8
    assert capacity(nodes, cluster=CLUSTER._replace(constraint="ib:haswell")).total == 4


def test_a_queue_that_is_stopped_or_full_or_missing() -> None:
    queue = "Queue: batch\n    queue_type = Execution\n    enabled = True\n    started = True\n"
    cluster = CLUSTER._replace(queue="batch")
    assert capacity(NODE, queues=queue, cluster=cluster).idle == 4
    assert capacity(NODE, queues=queue.replace("started = True", "started = False"), cluster=cluster).idle == 0
    busy = listing(Job_Owner="wombat@head")
    assert capacity(NODE, busy, queue + "    max_running = 1\n", cluster).idle == 0
    with pytest.raises(ClusterError) as caught:
        capacity(NODE, queues=queue, cluster=CLUSTER._replace(queue="nope"))
    assert caught.value.code == "no_such_queue"


def test_local_jobs_that_wait() -> None:
    assert capacity(NODE, listing(job_state="Q", Job_Name="fill")).waiting_local == 1
    assert capacity(NODE, listing(job_state="H", Job_Name="fill")).waiting_local == 0
    assert capacity(NODE, listing(job_state="Q")).waiting_local == 0


@pytest.mark.parametrize(
    ("asked", "lacks"),
    [("2:ppn=4", 8), ("1", 4), ("node1+2:ppn=4:haswell", 12), ("2:ppn=2", 8)],
)
def test_a_local_job_lacks_whole_nodes(asked: str, lacks: int) -> None:
    """Torque prints of a job that waits no more than what it asked for."""
    full = NODE.replace("free", "job-exclusive")
    nodes = "\n".join(full.replace("node1", f"node{number}") for number in range(4))
    count = len(asked.split("+")) if "+" in asked else int(asked.partition(":")[0])
    wish = {"Resource_List__nodes": asked, "Resource_List__nodect": count + ("+" in asked)}
    seen = capacity(nodes, listing(job_state="Q", Job_Name="fill", **wish))
    assert (seen.idle, seen.wanted_local, seen.whole_nodes) == (0, lacks, [])


def test_nodes_that_are_idle_altogether() -> None:
    used = NODE.replace("node1", "node2") + "     jobs = 0/12.head\n"
    assert capacity(NODE + "\n" + used, listing().replace("Job Id: 7.", "Job Id: 12.")).whole_nodes == [[4, 1]]


@pytest.mark.parametrize(
    ("server", "hidden"),
    [
        ("Server: head\n    query_other_jobs = True\n    pbs_version = 6.1.2\n", False),
        ("Server: head\n    query_other_jobs = False\n    pbs_version = 6.1.2\n", True),
        ("Server: head\n    pbs_version = 6.1.2\n", True),
        ("", False),
    ],
)
def test_whether_others_are_hidden(server: str, hidden: bool) -> None:
    """As they are by default in Torque; Slurm's qstat does not show it."""
    assert capacity(NODE, server=server).others_hidden is hidden


def test_jobs_that_no_list_shows_are_hidden() -> None:
    assert capacity(NODE + "     jobs = 0/12.head\n").others_hidden
    slurms = said("pbsnodes_a")
    assert capacity(slurms).others_hidden
    assert not capacity(slurms, said("qstat_f")).others_hidden


# ---- inside a job ----------------------------------------------------------------------------------------------------


def test_inside_a_job_of_torque() -> None:
    environment = {"PBS_JOBID": "12.head", "PBS_NODEFILE": "/aux/12"}
    assert torque.batch_id(environment) == "12.head"
    assert torque.hosts(environment, lambda path: "n1\nn1\nn2\n") == [Host("n1", 2), Host("n2", 1)]
    (launch,) = torque.launch(environment, ["n2"], ["python3", "x.pyz", "agent", "n2"])
    assert launch.argv[2:4] == ["pbs-bridge", "n2"]
    assert torque.restarts(environment) == 0


def test_inside_a_job_of_slurm() -> None:
    environment = {
        "SLURM_JOB_ID": "3",
        "SLURM_JOB_NODELIST": "c[1-2]",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_JOB_CPUS_PER_NODE": "2(x2)",
        "SLURM_RESTART_COUNT": "1",
    }
    assert torque.batch_id(environment) == "3"
    assert torque.hosts(environment, str) == [Host("c1", 2), Host("c2", 2)]
    (launch,) = torque.launch(environment, ["c2"], ["python3", "x.pyz", "agent", "c2"])
    assert launch.argv[0] == "srun"
    assert torque.restarts(environment) == 1


# ---- the family ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [pbs, torque], ids=["pbs", "torque"])
def test_it_offers_all_that_the_protocol_asks(dialect: Any) -> None:
    asked = set(Dialect.__annotations__)
    assert {name for name in asked if not hasattr(dialect, name)} == set()
    assert dialect.__name__.rpartition(".")[2] == dialect.NAME


def test_memory_is_that_of_the_smallest_node() -> None:
    small = NODE.replace("node1", "node2") + "     status = arch=x86_64,physmem=2048kb,ncpus=4\n"
    large = NODE + "     status = arch=x86_64,physmem=8192kb,ncpus=4\n"
    assert capacity(f"{large}\n{small}").memory == 2 << 20
    assert capacity(NODE).memory is None
