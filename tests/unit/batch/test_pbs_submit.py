"""OpenPBS's dialect writes a batch job, and reads qsub's answers to it."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.batch import pbs, torque
from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, Result, TransientError, UnreadableError

SAMPLES = Path(__file__).parents[1] / "samples" / "pbs"
TAG = "kaaaaa000000001"
DOWN = "Connection refused\nqsub: cannot connect to server pbs-head (errno=111)\n"
# What a line of a batch script can hold.
WRITABLE = st.characters(exclude_categories=["Cc", "Cs"])


def said(name: str, exit_status: int = 0) -> Result:
    return Result(["qsub"], exit_status, (SAMPLES / name).read_text(), "")


def printed(text: str, exit_status: int = 0, stderr: str = "") -> Result:
    return Result(["qsub"], exit_status, text, stderr)


# ---- submit ----------------------------------------------------------------------------------------------------------


def job(**wishes: Any) -> BatchJob:
    wishes = {"processors": 1, "walltime_s": 60, "command": ["true"], "directory": "/home/koala/t", **wishes}
    return BatchJob(tag=TAG, **wishes)


def directives(of: BatchJob) -> list[str]:
    return re.findall(r"^#PBS (.*)$", pbs.script(of), re.MULTILINE)


@pytest.mark.parametrize(
    ("processors", "per_node", "select", "place"),
    [
        (1, None, "1:ncpus=1:mpiprocs=1", "free"),
        (6, None, "6:ncpus=1:mpiprocs=1", "free"),
        (8, 4, "2:ncpus=4:mpiprocs=4", "scatter"),
        (9, 4, "2:ncpus=4:mpiprocs=4+1:ncpus=1:mpiprocs=1", "scatter"),
        (3, 4, "1:ncpus=3:mpiprocs=3", "scatter"),
    ],
)
def test_chunks(processors: int, per_node: int | None, select: str, place: str) -> None:
    lines = directives(job(processors=processors, processors_per_node=per_node))
    assert f"-l select={select}" in lines
    assert f"-l place={place}" in lines


def test_memory_is_that_of_all_processors_of_a_chunk() -> None:
    lines = directives(job(processors=3, processors_per_node=2, memory_per_processor=1024**2 + 1))
    assert "-l select=1:ncpus=2:mpiprocs=2:mem=3mb+1:ncpus=1:mpiprocs=1:mem=2mb" in lines


def test_gpus_of_each_node_need_nodes() -> None:
    assert "-l select=1:ncpus=1:mpiprocs=1:ngpus=2" in directives(job(gpus=2))
    with pytest.raises(RequestError) as caught:
        pbs.script(job(processors=2, gpus=2))
    assert "processors_per_node" in caught.value.advice


def test_a_reservation_is_its_queue() -> None:
    assert "-q R17" in directives(job(queue="workq", reservation="R17"))
    assert "-q workq" in directives(job(queue="workq"))


def test_there_are_no_words_for_a_quality_of_service() -> None:
    with pytest.raises(RequestError) as caught:
        pbs.script(job(qos="high"))
    assert (caught.value.code, "native" in caught.value.advice) == ("unsupported", True)


def test_a_users_options_cannot_undo_what_is_promised() -> None:
    lines = directives(job(native=["-r y", "-N other", "-o /etc/passwd"]))
    assert lines[-4:] == [f"-N {TAG}", "-r n", "-j oe", "-o localhost:/dev/null"]
    argv = pbs.submit_argv(job(), "/home/koala/t/script")
    assert argv[-1] == "/home/koala/t/script"
    assert argv[argv.index("-r") + 1] == "n"
    assert argv[argv.index("-N") + 1] == TAG
    assert argv[argv.index("-o") + 1] == "localhost:/dev/null", "to another host PBS would copy it"


@pytest.mark.parametrize("field", ["queue", "account", "reservation", "constraint", "directory"])
def test_a_line_break_cannot_reach_the_shell(field: str) -> None:
    with pytest.raises(RequestError) as caught:
        pbs.script(job(**{field: "a\nrm -rf /"}))
    assert caught.value.code == "bad_value"


@pytest.mark.parametrize("dialect", [pbs, torque], ids=["pbs", "torque"])
@settings(max_examples=25)
@given(
    name=st.text(WRITABLE, min_size=1, max_size=20).filter(lambda name: "/" not in name and name not in (".", "..")),
    words=st.lists(st.text(WRITABLE, max_size=20), max_size=4),
)
def test_words_of_the_command_and_the_directory_arrive_byte_for_byte(dialect: Any, name: str, words: list[str]) -> None:
    """In the shell that reads the script; the file's own name is what PBS makes of it."""
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent, name)
        directory.mkdir()
        made = job(directory=str(directory), command=["/usr/bin/env", "printf", "%s\\0", *words])
        subprocess.run(["/bin/sh"], input=dialect.script(made).encode(), cwd="/", check=True, env={"PATH": "/usr/bin"})
        arrived = (directory / "batch.out").read_bytes()
    assert arrived == b"".join(word.encode() + b"\0" for word in words or [""])


@pytest.mark.parametrize(("slurm", "kept"), [({}, "C"), ({"SLURM_JOB_ID": "1"}, "")], ids=["torque", "slurm"])
def test_of_our_commands_environment_nothing_reaches_a_program(
    tmp_path: Path, slurm: dict[str, str], kept: str
) -> None:
    """Torque's environment is the login's; that of Slurm's qsub is ours."""
    made = job(directory=str(tmp_path), command=["/bin/sh", "-c", "echo $LC_ALL,$PBS_JOBID"])
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PBS_JOBID": "7", **slurm}
    subprocess.run(["/bin/sh"], input=torque.script(made).encode(), check=True, env=environment)
    assert (tmp_path / "batch.out").read_text() == f"{kept},7\n"


@pytest.mark.parametrize("text", ["56.pbs-head\n", "Charged to physics.\n56.pbs-head\n\n", "56\n"])
def test_submit_gives_the_id(text: str) -> None:
    assert pbs.parse_submit(printed(text)) in ("56.pbs-head", "56")


def test_submit_that_blocked_gives_the_id_whatever_became_of_the_job() -> None:
    assert pbs.parse_submit(said("qsub-block-exit4", 4)) == "48.pbs-head"


@pytest.mark.parametrize("text", ["", "45[].pbs-head\n", "no id\n"])
def test_submit_without_an_id_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        pbs.parse_submit(printed(text))


# The messages of OpenPBS's source, beside those of the samples.
@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        ("qsub: would exceed queue workq's per-user limit", TransientError, "submit_limit"),
        ("qsub: Maximum number of jobs already in queue workq", TransientError, "submit_limit"),
        ("qsub: would exceed limit on resource ncpus in queue workq", TransientError, "submit_limit"),
        ("qsub: Access to queue is denied", RequestError, "account_not_permitted"),
        ("qsub: Invalid Account", RequestError, "account_not_permitted"),
        ("qsub: Bad UID for job execution", ClusterError, "not_permitted"),
        ("qsub: Unknown resource Resource_List.matlab_license", RequestError, "no_such_resource"),
        ("qsub: Job rejected by all possible destinations", ClusterError, "cluster_refuses"),
        ("qsub: Request not allowed: Server shutting down", TransientError, "batch_system_unreachable"),
        (DOWN, TransientError, "batch_system_unreachable"),
        ("pbs_iff: cannot connect to host\nNo Permission.\nqsub: Invalid credential", ClusterError, None),
        ("the moon is in the wrong place", ClusterError, "unknown_words"),
    ],
)
def test_words_of_qsub(words: str, error: type[BatchError], code: str | None) -> None:
    with pytest.raises(error) as caught:
        pbs.parse_submit(printed("", 1, words))
    assert code in (None, caught.value.code)


def test_hosts_to_avoid_are_refused_in_words() -> None:
    with pytest.raises(RequestError, match="leave out c1 and c2") as caught:
        pbs.script(job(avoid=["c2", "c1"]))
    assert caught.value.code == "unsupported"


def test_the_message_of_a_hook_is_the_refusal() -> None:
    """Any words, but PBSE_HOOKERROR, 15136, as exit status."""
    with pytest.raises(ClusterError) as caught:
        pbs.parse_submit(printed("", 32, "qsub: Bitte Projekt angeben"))
    assert caught.value.code == "cluster_refuses"
    assert "Bitte Projekt angeben" in caught.value.result.words  # type: ignore[union-attr]
