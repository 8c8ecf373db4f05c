"""Indices: what a walk over all jobs would find, kept up to date with every change of a job instead."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Protocol

from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Component, Job

ENDED_KEYS = 10_000  # remembered: far more than there are requests under way at any moment


class Index(Protocol):
    """What it answers is at every moment what a walk over the jobs of the records would give."""

    def changed(self, before: Job | None, after: Job | None) -> None:
        """One job is another now. `before` None: it is new; `after` None: it is over and forgotten."""
        ...


Move = tuple[AttemptId, Component, bool]


class LifeIndex(Protocol):
    """The same of attempts that may have a batch job."""

    def apply(self, moves: Sequence[Move], job: Job) -> None:
        """Attempts of the job began to live (True) or live no more (False)."""
        ...


class Keys:
    """The keys that clients gave their jobs, those of jobs that ended lately too; told of jobs that come and go."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], JobId] = {}
        self._ended: dict[tuple[str, str], None] = {}

    def __contains__(self, owner_and_key: tuple[str, str]) -> bool:
        return owner_and_key in self._known or owner_and_key in self._ended

    def changed(self, before: Job | None, after: Job | None) -> None:
        if before is None and after is not None and after.key:
            self._known[after.owner, after.key] = after.id
        elif after is None and before is not None and before.key:
            del self._known[before.owner, before.key]
            self._ended[before.owner, before.key] = None
            if len(self._ended) > ENDED_KEYS:
                del self._ended[next(iter(self._ended))]

    def removed(self, job: Job) -> None:
        """Nothing of a job that is over is kept any more: its key is as good as new."""
        self._ended.pop((job.owner, job.key), None)


class LiveAttempts:
    """Attempts that may have a batch job, by cluster."""

    def __init__(self) -> None:
        self._clusters: dict[str, dict[AttemptId, None]] = {}

    def on(self, cluster: str) -> list[AttemptId]:
        """In the order of jobs and their components."""
        return sorted(self._clusters.get(cluster, ()))

    def apply(self, moves: Sequence[Move], job: Job) -> None:
        for attempt, component, lives in moves:
            assert component.cluster is not None
            if lives:
                self._clusters.setdefault(component.cluster, {})[attempt] = None
            else:
                del self._clusters[component.cluster][attempt]


def moves_of(before: Job | None, after: Job | None) -> Sequence[Move]:
    """What began to live or lives no more with the change; mostly there is nothing."""
    old = before.components if before is not None else ()
    new = after.components if after is not None else ()
    if old is new:
        return ()
    moves: list[Move] = []
    for was, now in zip_longest(old, new):
        if was is now or _same_life(was, now):
            continue
        if before is not None and _lives(was):
            moves.append((before.attempt_of(was), was, False))
        if after is not None and _lives(now):
            moves.append((after.attempt_of(now), now, True))
    return moves


def _lives(component: Component | None) -> bool:
    return component is not None and not component.cleaned_up and component.cluster is not None


def _same_life(was: Component | None, now: Component | None) -> bool:
    if was is None or now is None:
        return False
    return was.cleaned_up is now.cleaned_up and was.cluster == now.cluster and was.attempt == now.attempt
