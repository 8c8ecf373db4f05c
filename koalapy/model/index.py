"""Indices of work, which every change keeps up to date, so that no code has to walk over all of them."""

from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Protocol

from koalapy.model.attempt import Attempt
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.model.work import Work

ENDED_KEYS = 10_000  # remembered: far more than there are requests under way at any moment


class Index:
    """An index of the records. Its answers always equal those of a walk over all work of its `kinds`.

    The work and attempts that it is given are rows: it may keep them, and they change. An index has the methods that
    concern it; the others are not called.
    """

    kinds: ClassVar[tuple[type, ...]] = (Job,)

    def added(self, work: Any) -> None:
        """Note new work, or some of the snapshot, a job with its attempts."""

    def follows(self, work: Any) -> bool:
        """Return whether `changed` concerns this work, which is asked once, before `added`.

        Without this method an index follows all work of its kinds.
        """
        return True

    def changed(self, work: Any, before: JobState, names: Collection[str]) -> None:
        """Note that these fields of the work have changed, and its state before."""

    def queued_changed(self, job: Job, before: JobState, names: Collection[str]) -> None:
        """Note the same of a job that is in the wait queue, or was before."""

    def attempt_changed(self, job: Job, attempt: Attempt, names: Collection[str]) -> None:
        """Note that these fields of a present attempt of the job have changed."""

    def became_final(self, work: Any) -> None:
        """Note that the work has become final; its change was noted before."""

    def dropped(self, job: Job) -> None:
        """Note that a final job is no longer among the records."""


def concerned(indices: Iterable[Index], method: str, kind: type = Job) -> tuple[Index, ...]:
    """Return the indices of this kind of work that have this method of their own."""
    of_kind = (each for each in indices if kind in each.kinds)
    return tuple(each for each in of_kind if getattr(type(each), method) is not getattr(Index, method))


class PilotIndex(Protocol):
    """An index of the pilots that are neither cleaned up nor detached."""

    def added(self, pilot: Attempt) -> None: ...

    def changed(self, pilot: Attempt, names: Collection[str]) -> None:
        """Note that these fields of the pilot have changed. It may be cleaned up or detached now."""
        ...


class AttemptIndex(Protocol):
    """An index of the attempts that are neither cleaned up nor detached. `job`: None for a pilot."""

    def began(self, job: Job | None, attempt: Attempt) -> None: ...

    def let_go(self, attempt: Attempt) -> None: ...


class Keys:
    """The keys that clients gave their work, including those of work that ended lately."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], JobId] = {}
        self._ended: dict[tuple[str, str], None] = {}

    def __contains__(self, owner_and_key: tuple[str, str]) -> bool:
        return owner_and_key in self._known or owner_and_key in self._ended

    def added(self, work: Work) -> None:
        if work.key:
            self._known[work.owner, work.key] = work.id

    def dropped(self, work: Work) -> None:
        if work.key:
            del self._known[work.owner, work.key]
            self._ended[work.owner, work.key] = None
            if len(self._ended) > ENDED_KEYS:
                del self._ended[next(iter(self._ended))]

    def removed(self, work: Work) -> None:
        """Drop the key of pruned work, which may be used again."""
        self._ended.pop((work.owner, work.key), None)


class LiveAttempts:
    """The attempts that are neither cleaned up nor detached, by cluster. `candidates`: those of them that are some."""

    def __init__(self) -> None:
        self._clusters: dict[str, dict[AttemptId, Attempt]] = {}
        self.candidates: dict[str, dict[AttemptId, Attempt]] = {}

    def on(self, cluster: str) -> list[Attempt]:
        """Return the attempts on this cluster, in the order of jobs and their components."""
        return [attempt for _, attempt in sorted(self._clusters.get(cluster, {}).items())]

    def began(self, attempt: Attempt) -> None:
        self._clusters.setdefault(attempt.cluster, {})[attempt.id] = attempt
        if attempt.candidate:
            self.candidates.setdefault(attempt.cluster, {})[attempt.id] = attempt

    def let_go(self, attempt: Attempt) -> bool:
        """Remove the attempt. Return whether it was there."""
        there = self._clusters.get(attempt.cluster)
        if attempt.candidate and attempt.cluster in self.candidates:
            self.candidates[attempt.cluster].pop(attempt.id, None)
        return there is not None and there.pop(attempt.id, None) is not None
