"""Prints flows: their progress in a few words, and their jobs as a tree."""

from collections.abc import Mapping
from typing import Any

from koalapy.cli.output import out
from koalapy.cli.times import in_text

Document = Mapping[str, Any]
_DEEPEST = 20  # levels that are indented; behind these the number of a level is written
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


def show_tree(tree: Document, skip: int) -> None:
    """Print a part of the tree of a flow, each job below the last of those that it waits for, with its state.

    The others that it waits for are named beside it. `skip`: how many jobs precede the part.
    """
    for job in tree["jobs"]:
        deeper = f"[{job['level']}] " if job["level"] > _DEEPEST else ""
        line = f"{'  ' * min(job['level'], _DEEPEST)}{deeper}{job['id']} {job['name']}: {job['state']}{at_site(job)}"
        if job["others"]:
            all_named = job["others"] == len(job["other_names"])
            others = ", ".join(job["other_names"]) if all_named else f"{job['others']:,} others"
            line += f", after {others} too"
        if job["state"] in _FAILED and job["reason"]:
            line += f": {in_text(job['reason']).split('. ')[0].rstrip('.')}."
        out.print(line)
    if tree["more"]:
        id, place = tree["id"], skip + len(tree["jobs"])
        out.print(f"and {tree['more']:,} more; `koala show {id} --skip {place}` goes on, and --json has all.")
