"""Promises about refused submissions, by the history alone: how long a job, and all jobs, leave a cluster alone."""

from collections.abc import Callable

from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change
from koalapy.model.errors import Reason
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId
from koalapy.model.units import MINUTE, SECOND, Duration, Instant

_FIRST, _LONGEST = Duration(5 * SECOND), Duration(10 * MINUTE)
_OF_ALL, _IN_A_ROW = Duration(30 * SECOND), 3
_LIMIT = "submit_limit"


class Refusals:
    """The checker of refused submissions. Every instant is of koalad's clock.

    After a limit on submitted jobs the first pause alone is checked: others begin anew when a batch job has ended.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[JobId, str], Instant] = {}
        self._pause: dict[tuple[JobId, str], Duration] = {}
        self._limited: set[tuple[JobId, str]] = set()
        self._ended: dict[str, int] = {}  # by cluster, batch jobs in whose place a limited job may go
        self.restarted()

    def restarted(self) -> None:
        """Begin anew with a koalad that remembers the pauses of each job, but none of all jobs."""
        self._in_a_row: dict[str, set[JobId]] = {}
        self._all_until: dict[str, Instant] = {}

    def left(self, cluster: str) -> None:
        """The cluster has left the grid; one that comes back under its name is another."""
        for each in [key for key in self._until if key[1] == cluster]:
            self._forget(each)
        for known in (self._in_a_row, self._all_until, self._ended):
            known.pop(cluster, None)

    def committed(self, change: Change) -> None:
        """Check the claims of a change. Raises Violation for one of a cluster during its pause."""
        attempts = {each.id: each for each in change.attempts}
        for line in change.history:
            react = _LINES.get(line.kind)
            if react is not None:
                react(self, line, attempts)

    def _refused(self, line: History, attempts: dict[AttemptId, Attempt]) -> None:
        if line.job >= FIRST_LAUNCHER:
            return
        attempt = attempts[AttemptId(line.job, line.details["component"], line.details["attempt"])]
        reason, key = attempt.reason, (line.job, attempt.cluster)
        assert reason is not None
        if reason.code != _LIMIT and (reason.whose == "cluster" or _may_pass(reason)):
            self._count(line, attempt.cluster)
        if _may_pass(reason) and line.at >= self._until.get(key, line.at):
            self._begin(key, line.at, limited=reason.code == _LIMIT)

    def _begin(self, key: tuple[JobId, str], at: Instant, *, limited: bool) -> None:
        if limited or key in self._limited:
            self._forget(key)
        before = self._pause.get(key)
        self._pause[key] = Duration(min(2 * before, _LONGEST)) if before is not None else _FIRST
        self._until[key] = Instant(at + self._pause[key])
        if limited:
            self._limited.add(key)

    def _count(self, line: History, cluster: str) -> None:
        """Count a job of those that the cluster refuses one after another."""
        jobs = self._in_a_row.setdefault(cluster, set())
        jobs.add(line.job)
        if len(jobs) >= _IN_A_ROW and line.at >= self._all_until.get(cluster, line.at):
            self._all_until[cluster] = Instant(line.at + _OF_ALL)

    def _accepted(self, line: History, attempts: dict[AttemptId, Attempt]) -> None:
        cluster = line.details["cluster"]
        self._in_a_row.pop(cluster, None)
        self._all_until.pop(cluster, None)
        self._pause.pop((line.job, cluster), None)

    def _cleaned_up(self, line: History, attempts: dict[AttemptId, Attempt]) -> None:
        cluster = line.details["cluster"]
        if any(name == cluster for _, name in self._limited):
            self._ended[cluster] = self._ended.get(cluster, 0) + 1

    def _claimed(self, line: History, attempts: dict[AttemptId, Attempt]) -> None:
        for cluster in dict.fromkeys(line.details["clusters"].values()):
            self._check(line, cluster)

    def _check(self, line: History, cluster: str) -> None:
        key = line.job, cluster
        left = self._until.get(key, line.at) - line.at
        if left > 0 and key in self._limited and self._ended.get(cluster):
            self._ended[cluster] -= 1
            self._forget(key)
            left = 0
        promise(left <= 0, Promise.PAUSED, "job", line.job, "goes to", cluster, left, "us before the end of its pause")
        left = self._all_until.get(cluster, line.at) - line.at
        promise(left <= 0, Promise.PAUSED, cluster, "refuses all, but gets job", line.job, left, "us too early")

    def _forget(self, key: tuple[JobId, str]) -> None:
        self._limited.discard(key)
        self._until.pop(key, None)
        self._pause.pop(key, None)


def _may_pass(reason: Reason) -> bool:
    passes = reason.whose == "transient" or reason.code == "unknown_words"
    return passes or (reason.whose == "ours" and reason.command != "")


_LINES: dict[str, Callable[[Refusals, History, dict[AttemptId, Attempt]], None]] = {
    HistoryKind.SUBMISSION_FAILED: Refusals._refused,
    HistoryKind.ATTEMPT_SUBMITTED: Refusals._accepted,
    HistoryKind.ATTEMPT_CLEANED_UP: Refusals._cleaned_up,
    HistoryKind.CANCEL_COMPLETED: Refusals._cleaned_up,
    HistoryKind.JOB_CLAIMED: Refusals._claimed,
}
