"""The words of the simulated batch system's commands: a dialect like any other, over lines of plain text."""

from collections.abc import Sequence

from koalapy_adapters import errors
from koalapy_adapters.batch import waiting_demand
from koalapy_adapters.batch.protocol import (
    ENDED,
    QUEUED,
    RUNNING,
    BatchJob,
    BatchSettings,
    Capacity,
    Description,
    JobStatus,
)
from koalapy_adapters.errors import BatchError, Result

from koalapy.model.identity import is_tag

NAME = "simulated"
FREES_WHEN_SUSPENDED = True
_WHOSE: dict[str, type[BatchError]] = {
    "transient": errors.TransientError,
    "cluster": errors.ClusterError,
    "request": errors.RequestError,
}


def describe_argv(cluster: BatchSettings) -> list[str]:
    return ["describe"]


def parse_describe(result: Result) -> Description:
    return Description(_lines(result)[0])


def script(job: BatchJob) -> str:
    return f"#!/bin/sh\nexec {' '.join(job.command)}\n"


def submit_argv(job: BatchJob, path: str) -> list[str]:
    return ["submit", path]


def parse_submit(result: Result) -> str:
    return _lines(result)[0]


def status_argv(batch_ids: Sequence[str]) -> list[str]:
    return ["status", *batch_ids]


def parse_status(result: Result) -> dict[str, JobStatus]:
    return {status.batch_id: status for status in map(_status, _lines(result))}


def find_argv(cluster: BatchSettings, tag: str) -> list[str]:
    return ["find", tag]


def parse_find(result: Result, tag: str) -> JobStatus | None:
    """Return the job of this name that has not ended, else the last one; None if there is none."""
    found = sorted(map(_status, _lines(result)), key=lambda status: status.state != ENDED)
    return found[-1] if found else None


def history_argv(cluster: BatchSettings, tag: str, batch_id: str) -> list[str] | None:
    return ["history", tag]


def parse_history(result: Result, tag: str) -> JobStatus | None:
    return parse_find(result, tag)


def cancel_argv(batch_ids: Sequence[str]) -> list[str]:
    return ["cancel", *batch_ids]


def parse_cancel(result: Result) -> None:
    _lines(result)


def suspend_argv(batch_id: str) -> list[str]:
    return ["suspend", batch_id]


def resume_argv(batch_id: str) -> list[str]:
    return ["resume", batch_id]


def parse_suspend(result: Result) -> None:
    """Read the answer to either command. Raises RequestError for a job that does not run, BatchError for no answer."""
    if _lines(result):
        raise errors.RequestError("not_running", "The job does not run.", "See how it has ended.", result)


def capacity_argvs(cluster: BatchSettings) -> list[list[str]]:
    return [["capacity"]]


def parse_capacity(cluster: BatchSettings, results: list[Result]) -> Capacity:
    """First `total idle`, then `free FREE/SIZE…` of each node, then a line a job: `PROCESSORS NODES JOB`."""
    first, second, *rest = _lines(results[0])
    total, idle = map(int, first.split())
    nodes = [tuple(map(int, word.split("/"))) for word in second.split()[1:]]
    free, sizes = [node[0] for node in nodes], [node[1] for node in nodes]
    shapes = [line.split(" ", 2) for line in rest]
    jobs = [(int(processors), _status(line)) for processors, _, line in shapes]
    running = [(processors, job) for processors, job in jobs if job.state == RUNNING]
    waits = [
        waiting_demand.WaitingJob(int(processors), int(count))
        for processors, count, line in shapes
        if _wants(cluster, _status(line))
    ]
    return Capacity(
        total=total,
        idle=idle,
        ours=sum(processors for processors, job in running if is_tag(job.name)),
        others=sum(processors for processors, job in running if not is_tag(job.name)),
        waiting_local=sum(1 for _, job in jobs if _waits(job) and not is_tag(job.name)),
        allocated=[job.name for _, job in running if is_tag(job.name)],
        pending=[job.name for _, job in jobs if job.state == QUEUED and is_tag(job.name)],
        free_nodes=[[size, free.count(size)] for size in sorted(dict.fromkeys(free))] if idle else [],
        statuses={job.batch_id: job for _, job in jobs if is_tag(job.name)},
        wanted_local=waiting_demand.wanted(waits, free, sizes, idle),
        whole_nodes=waiting_demand.whole_nodes([left for left, size in nodes if left == size], idle),
    )


def line(status: JobStatus) -> str:
    """One job, as every command prints it."""
    exit_status = "" if status.exit_status is None else status.exit_status
    fields = (status.batch_id, status.name, status.state, status.stuck, exit_status, status.ending, status.restarts)
    return "|".join(map(str, fields))


def _waits(job: JobStatus) -> bool:
    return job.state == QUEUED and not job.stuck


def _wants(cluster: BatchSettings, job: JobStatus) -> bool:
    """The simulated user has no other jobs there than koalapy's."""
    return _waits(job) and waiting_demand.counts(cluster, cluster.user if is_tag(job.name) else "", job.name)


def _status(text: str) -> JobStatus:
    batch_id, name, state, stuck, exit_status, ending, restarts = text.split("|")
    status = int(exit_status) if exit_status else None
    return JobStatus(batch_id, name, state, "", stuck, status, ending, int(restarts))


def _lines(result: Result) -> list[str]:
    """Return the lines that the command printed. A failed command prints `whose code` to standard error."""
    if result.exit_status is None:
        raise errors.TransientError("no_answer", "The batch system did not answer in time.", "", result)
    if result.exit_status != 0:
        whose, _, code = result.stderr.partition(" ")
        kind = _WHOSE.get(whose, errors.UnreadableError)
        raise kind(code or "unreadable", f"The batch system refused: {code}.", "Look at its own words.", result)
    return result.stdout.splitlines()
