"""Indices of jobs, which every change of a job keeps up to date, so that nothing has to walk over all jobs."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Protocol

from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Component, Job

ENDED_KEYS = 10_000  # remembered: far more than there are requests under way at any moment


class Index(Protocol):
    """An index of the records. Its answers always equal those of a walk over all their jobs."""

    def changed(self, before: Job | None, after: Job | None) -> None:
        """Note the change of one job. `before` is None for a new job, `after` for a final job that is dropped."""
        ...


Move = tuple[AttemptId, Component, bool]


class LifeIndex(Protocol):
    """An index of the attempts that may have a batch job."""

    def apply(self, moves: Sequence[Move], job: Job) -> None:
        """Note that attempts of the job began to live (True), or live no more (False)."""
        ...


class Keys:
    """The keys that clients gave their jobs, including jobs that ended lately.

    It must see new and dropped jobs only.
    """

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
        """Drop the key of a pruned job, which may be used again."""
        self._ended.pop((job.owner, job.key), None)


class LiveAttempts:
    """Attempts that may have a batch job, by cluster."""

    def __init__(self) -> None:
        self._clusters: dict[str, dict[AttemptId, None]] = {}

    def on(self, cluster: str) -> list[AttemptId]:
        """Return the attempts on this cluster, in the order of jobs and their components."""
        return sorted(self._clusters.get(cluster, ()))

    def apply(self, moves: Sequence[Move], job: Job) -> None:
        for attempt, component, lives in moves:
            assert component.cluster is not None
            if lives:
                self._clusters.setdefault(component.cluster, {})[attempt] = None
            else:
                del self._clusters[component.cluster][attempt]


def moves_of(before: Job | None, after: Job | None) -> Sequence[Move]:
    """Return the attempts that began to live, or live no more, with the change; mostly none."""
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
