"""Prints flows: their progress in a few words, and their jobs as a tree."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from koalapy.cli.output import out
from koalapy.cli.times import in_text
from koalapy.client import Grid

Document = Mapping[str, Any]
_MOST_SHOWN = 200  # jobs of a tree on a terminal; --json has all of them
_FAILED = frozenset({"failed", "cancelled"})


def progress_of(flow: Document) -> str:
    """Return the progress of a flow, such as `3/5 done, 1 failed`."""
    more = "".join(f", {flow[name]} {name}" for name in ("failed", "cancelled") if flow[name])
    return f"{flow['done']}/{flow['jobs']} done{more}"


def at_site(job: Document) -> str:
    """Return where a job runs that another site runs, such as ` at lyon (job 12 there, 2/5 done)`; '' for any other."""
    if not job["site"]:
        return ""
    sent = job["sent"]
    if not sent or not sent["job"]:
        return f" at {job['site']}"
    progress = f", {sent['done']}/{sent['jobs']} done" if sent["jobs"] > 1 else ""
    return f" at {job['site']} (job {sent['job']} there{progress})"


def jobs_of(koalad: Grid, job: Document) -> list[Document]:
    """Return the jobs of a flow that are not pruned; an empty list for any other job."""
    return [*koalad.flow(job["id"])] if job["flow"] else []


def show_tree(jobs: Sequence[Document]) -> None:
    """Print the jobs of a flow, each below the last of those that it waits for, with its state.

    The others that it waits for are named beside it.
    """
    names = {job["id"]: job["name"] for job in jobs}
    below: dict[int | None, list[Document]] = {}
    for job in jobs:
        inner = [each for each in job["after"] if each in names]
        below.setdefault(inner[-1] if inner else None, []).append(job)
    shown = 0
    for depth, job in _walk(below):
        shown += 1
        if shown > _MOST_SHOWN:
            break
        others = [names.get(each, str(each)) for each in job["after"] if each in names][:-1]
        line = f"{'  ' * depth}{job['id']} {job['name']}: {job['state']}"
        line += at_site(job)
        if others:
            line += f", after {', '.join(others)} too" if len(others) < 4 else f", after {len(others)} others too"
        if job["state"] in _FAILED and job["reason"]:
            line += f": {in_text(job['reason']).split('. ')[0].rstrip('.')}."
        out.print(line)
    if shown > _MOST_SHOWN:
        out.print(f"… {len(jobs) - _MOST_SHOWN:,} more; `koala jobs --flow {jobs[0]['part_of']} --last 0` lists all.")


def _walk(below: Mapping[int | None, Sequence[Document]]) -> Iterator[tuple[int, Document]]:
    """Yield each job with its depth, those that wait for it after it. A chain may be thousands of jobs long."""
    stack = [(0, job) for job in reversed(below.get(None, ()))]
    while stack:
        depth, job = stack.pop()
        yield depth, job
        stack += [(depth + 1, each) for each in reversed(below.get(job["id"], ()))]
