"""The words of the simulated batch system's commands: a dialect like any other, over lines of plain text."""

from collections.abc import Sequence

from koalapy_adapters import errors
from koalapy_adapters.batch.protocol import ENDED, QUEUED, RUNNING, BatchJob, Capacity, Description, JobStatus, Site
from koalapy_adapters.errors import BatchError, Result

from koalapy.model.identity import is_tag

NAME = "simulated"
_WHOSE: dict[str, type[BatchError]] = {
    "transient": errors.TransientError,
    "site": errors.SiteError,
    "request": errors.RequestError,
}


def describe_argv(site: Site) -> list[str]:
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


def find_argv(site: Site, tag: str) -> list[str]:
    return ["find", tag]


def parse_find(result: Result, tag: str) -> JobStatus | None:
    """Of several the one that lives, else the last."""
    found = sorted(map(_status, _lines(result)), key=lambda status: status.state != ENDED)
    return found[-1] if found else None


def history_argv(site: Site, tag: str, batch_id: str) -> list[str] | None:
    return ["history", tag]


def parse_history(result: Result, tag: str) -> JobStatus | None:
    return parse_find(result, tag)


def cancel_argv(batch_ids: Sequence[str]) -> list[str]:
    return ["cancel", *batch_ids]


def parse_cancel(result: Result) -> None:
    _lines(result)


def capacity_argvs(site: Site) -> list[list[str]]:
    return [["capacity"]]


def parse_capacity(site: Site, results: list[Result]) -> Capacity:
    """The first line is `total idle`, the second the free processors of each node, then a line a job."""
    first, second, *rest = _lines(results[0])
    total, idle = map(int, first.split())
    free = [int(word) for word in second.split()[1:]]
    jobs = [(int(processors), _status(line)) for processors, line in (line.split(" ", 1) for line in rest)]
    running = [(processors, job) for processors, job in jobs if job.state == RUNNING]
    return Capacity(
        total=total,
        idle=idle,
        ours=sum(processors for processors, job in running if is_tag(job.name)),
        others=sum(processors for processors, job in running if not is_tag(job.name)),
        waiting_local=sum(1 for _, job in jobs if job.state == QUEUED and not is_tag(job.name)),
        allocated=[job.name for _, job in running if is_tag(job.name)],
        pending=[job.name for _, job in jobs if job.state == QUEUED and is_tag(job.name)],
        free_nodes=[[size, free.count(size)] for size in sorted(dict.fromkeys(free))] if idle else [],
        statuses={job.batch_id: job for _, job in jobs if is_tag(job.name)},
    )


def line(status: JobStatus) -> str:
    """One job, as every command prints it."""
    exit_status = "" if status.exit_status is None else status.exit_status
    fields = (status.batch_id, status.name, status.state, status.stuck, exit_status, status.ending, status.restarts)
    return "|".join(map(str, fields))


def _status(text: str) -> JobStatus:
    batch_id, name, state, stuck, exit_status, ending, restarts = text.split("|")
    status = int(exit_status) if exit_status else None
    return JobStatus(batch_id, name, state, "", stuck, status, ending, int(restarts))


def _lines(result: Result) -> list[str]:
    """What the command printed. A failure's words are `whose code`."""
    if result.exit_status is None:
        raise errors.TransientError("no_answer", "The batch system did not answer in time.", "", result)
    if result.exit_status != 0:
        whose, _, code = result.stderr.partition(" ")
        kind = _WHOSE.get(whose, errors.UnreadableError)
        raise kind(code or "unreadable", f"The batch system said no: {code}.", "Look at its own words.", result)
    return result.stdout.splitlines()
