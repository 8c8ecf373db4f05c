"""A job that is submitted by Slurm's API is the same as by sbatch: to Slurm, and in what its program finds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.contract.live import Live
from koalapy_adapters.contract.target import Target
from koalapy_adapters.kcm.execution.slurm_api.submitter import OFF, REQUIRED

from koalapy.testgrid import Running
from koalapy.testgrid.state import grid_file

WISHES: list[dict[str, Any]] = [
    {},
    {"processors": 5, "processors_per_node": 4},
    {"memory_per_processor": (150 << 20) + 1, "exclusive": True, "walltime_s": 61},
    {"queue": "short", "avoid": ["alpha-c1", "alpha-c2"]},
]
# What is each job's own, in the words of `scontrol show job`, or comes from when and where it ran.
OWN = {
    "JobId", "JobName", "Priority", "AllocNode:Sid", "Command", "WorkDir", "StdOut", "StdErr", "NodeList", "BatchHost",
    "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime", "LastSchedEval", "RunTime", "PreemptTime",
    "PreemptEligibleTime", "JobState", "Reason", "ExitCode", "Scheduler", "SuspendTime",
}  # fmt: skip
OF_THE_RUN = {"PWD", "SLURM_JOBID", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_TASK_PID", "SLURMD_NODENAME"}
OF_THE_RUN |= {"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_TOPOLOGY_ADDR"}

Begin = Callable[[str], Live]


@pytest.fixture
def begin(standing_testgrid: Running) -> Iterator[Begin]:
    begun: list[Live] = []

    def begin_one(way: str) -> Live:
        alpha = yaml.safe_load(grid_file().read_text())["clusters"]["alpha"]
        begun.append(Live(Target(name=way, head="alpha", settings=lambda: {**alpha, "slurm_api": way})))
        return begun[-1]

    yield begin_one
    for each in begun:
        each.close()


def reported(live: Live, batch_id: str) -> dict[str, str]:
    """What Slurm has noted of a job."""
    words = live.batch.output("scontrol", "show", "job", "--oneliner", batch_id).split()
    return {name: value for name, _, value in (word.partition("=") for word in words) if name not in OWN}


def found(live: Live, job: BatchJob) -> dict[str, str]:
    """The environment that a program finds."""
    lines = live.until(lambda: live.batch.run("cat", job.output).stdout.splitlines())
    return {name: value for name, _, value in (line.partition("=") for line in lines) if name not in OF_THE_RUN}


def test_what_the_api_submits_is_what_sbatch_submits(begin: Begin) -> None:
    ways = [begin(OFF), begin(REQUIRED)]
    jobs = [(live, live.job("env", **wishes)) for wishes in WISHES for live in ways]
    sent = []
    for live, job in jobs:
        sent.append((live, job, live.submit(job)))
        assert [ran.argv[0] for ran in live.batch.ran] == (["sbatch"] if live is ways[0] else [])
    for live, _, batch_id in sent:
        live.until_over(batch_id)
    for by_sbatch, by_api in zip(sent[::2], sent[1::2], strict=True):
        assert reported(by_api[0], by_api[2]) == reported(by_sbatch[0], by_sbatch[2])
        assert found(*by_api[:2]) == found(*by_sbatch[:2])


def test_a_refusal_is_in_the_words_of_sbatch(begin: Begin) -> None:
    live = begin(REQUIRED)
    with pytest.raises(Exception, match="no partition of this name"):
        live.submit(live.job("true", queue="no-such-queue"))
    assert [ran.argv[0] for ran in live.batch.ran] == ["sbatch"]
    assert live.submit(live.job("true")), "and the next goes by the API again"
    assert live.batch.ran == []


def test_who_waits_is_seen_alike_by_both(begin: Begin) -> None:
    command, api = begin(OFF), begin(REQUIRED)
    assert api.batch.queue_fingerprint() == command.batch.queue_fingerprint()
    total = command.until(lambda: command.batch.capacity().idle)
    with command.load(total):
        for wishes in ({"name": "a,b|c"}, {"native": ["--array=1-9:2%3"]}, {"native": ["--hold"]}):
            command.submit(command.job("true", processors=total, **wishes))
        seen = command.until(lambda: command.batch.queue_fingerprint() if api.batch.queue_fingerprint() else None)
        assert api.batch.queue_fingerprint() == seen
        assert not any("squeue" in ran.argv for ran in api.batch.ran)
