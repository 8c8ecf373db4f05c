"""The tree of a flow: each job below the last of those that it waits for."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import cast

from koalapy.answers.jobs import TreeAnswer, TreeJob
from koalapy.answers.sweeps import JobStateName
from koalapy.model.identity import JobId
from koalapy.model.sent import SentJob
from koalapy.model.work import Work
from koalapy.views.jobs import sent

_MOST_NAMED = 3


def flow_tree(flow: JobId, jobs: Sequence[Work], skip: int, most: int) -> TreeAnswer:
    """Answer with `most` jobs of the tree, those behind the first `skip` ones. `jobs`: all jobs of the flow, by id."""
    names = {job.id: job.request.name for job in jobs}
    below: dict[JobId | None, list[Work]] = {}
    for job in jobs:
        inner = [each for each in job.request.after if each in names]
        below.setdefault(inner[-1] if inner else None, []).append(job)
    walked = list(_walk(below))
    states = Counter(job.state for job in jobs)
    return {
        "schema": "koala.tree/1",
        "id": flow,
        "levels": max((level for level, _ in walked), default=-1) + 1,
        "states": {cast(JobStateName, str(state)): count for state, count in sorted(states.items())},
        "jobs": [_tree_job(job, level, names) for level, job in islice(walked, skip, skip + most)],
        "more": max(0, len(walked) - skip - most),
    }


def _tree_job(work: Work, level: int, names: Mapping[JobId, str]) -> TreeJob:
    others = [names[each] for each in work.request.after if each in names][:-1]
    return {
        "id": work.id,
        "name": work.request.name,
        "state": cast(JobStateName, str(work.state)),
        "level": level,
        "others": len(others),
        "other_names": others[:_MOST_NAMED],
        "site": work.request.site,
        "sent": sent(work.sent) if isinstance(work, SentJob) and work.sent else None,
        "reason": str(work.reason) if work.reason else None,
    }


def _walk(below: Mapping[JobId | None, Sequence[Work]]) -> Iterator[tuple[int, Work]]:
    """Yield each job with its level, those that wait for it after it. A chain may be thousands of jobs long."""
    stack = [(0, job) for job in reversed(below.get(None, ()))]
    while stack:
        level, job = stack.pop()
        yield level, job
        stack += [(level + 1, each) for each in reversed(below.get(job.id, ()))]
