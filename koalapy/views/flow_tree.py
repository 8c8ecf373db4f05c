"""The tree of a flow: each job below the last of those that it waits for."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from koalapy.model.identity import JobId
from koalapy.model.states import JobState
from koalapy.model.sweep import Work

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Branch:
    """A job in the tree. `level`: from 0. `others`: how many further jobs of the flow it waits for.

    `named`: the names of the first few of these.
    """

    work: Work
    level: int
    others: int
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlowTree:
    """A part of a tree. `more`: jobs behind the part. `levels` and `states` are of the whole tree."""

    levels: int
    states: Mapping[JobState, int]
    branches: tuple[Branch, ...]
    more: int


def flow_tree(jobs: Sequence[Work], skip: int, most: int) -> FlowTree:
    """Return `most` jobs of the tree, those behind the first `skip` ones. `jobs`: all jobs of the flow, by id."""
    names = {job.id: job.request.name for job in jobs}
    below: dict[JobId | None, list[Work]] = {}
    for job in jobs:
        inner = [each for each in job.request.after if each in names]
        below.setdefault(inner[-1] if inner else None, []).append(job)
    walked = list(_walk(below))
    branches = [_branch(job, level, names) for level, job in islice(walked, skip, skip + most)]
    return FlowTree(
        levels=max((level for level, _ in walked), default=-1) + 1,
        states=Counter(job.state for job in jobs),
        branches=tuple(branches),
        more=max(0, len(walked) - skip - most),
    )


def _branch(job: Work, level: int, names: Mapping[JobId, str]) -> Branch:
    others = [names[each] for each in job.request.after if each in names][:-1]
    return Branch(job, level, len(others), tuple(others[:_MOST_NAMED]))


def _walk(below: Mapping[JobId | None, Sequence[Work]]) -> Iterator[tuple[int, Work]]:
    """Yield each job with its level, those that wait for it after it. A chain may be thousands of jobs long."""
    stack = [(0, job) for job in reversed(below.get(None, ()))]
    while stack:
        level, job = stack.pop()
        yield level, job
        stack += [(level + 1, each) for each in reversed(below.get(job.id, ()))]
