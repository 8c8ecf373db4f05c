"""The settings of a link: its cluster, its time-outs, and its wait before it connects again.

The wait depends on the reason of the loss, its duration, and a person's help.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from koalapy.model.errors import Reason
from koalapy.model.identity import InstanceId
from koalapy.model.settings import GRACE
from koalapy.model.units import SECOND, Duration, Instant

_DISK = 10_000_000  # bytes a second that a shared directory is worth at least
_ANSWERS = ("asks", "answer_refused")  # nothing but a person mends these
_REFUSAL = "authentication"
_NONSENSE = ("garbled", "link_failed", "quarantined", "impossible_number")  # a cluster whose reports must not be used
_MOST_REFUSALS = 3  # in a row: an administrator may lock the account
_LONGER = 5  # times, the wait after each further refusal
_SHARE = 8  # of the time since the first failure, to wait before the next try
_LEAST = 0.75  # of the longest wait, so that the links of many koalads do not try at one time


@dataclass(frozen=True, slots=True)
class Timing:
    """Time-outs and waits of a link, in seconds.

    A session whose other side is silent for `silence` is given up; `welcome` is the limit for its start. `retry_first`
    and `retry_max` bound the wait before the next try to connect. The wait does not exceed `retry_soon` while the
    cluster has been out of reach for seconds only. A fault of the cluster (a wrong key, no Python) has `retry_cluster`
    instead. A session that lasted `settled` is followed by a quick try. Files are asked for again later if none of
    their bytes has come for `stalled` seconds, though the session lives.
    """

    ping: float = 5.0
    silence: float = 15.0
    welcome: float = 60.0
    retry_first: float = 0.3
    retry_soon: float = 1.5
    retry_max: float = 30.0
    retry_cluster: float = 120.0
    settled: float = 10.0
    stalled: float = 60.0

    def stalled_after(self, size: int) -> float:
        """Return the seconds to wait for a byte if the other side has to read or write `size` bytes first."""
        return self.stalled + size / _DISK


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The settings of a link's cluster. `config`: the fields of the message ClusterConfig."""

    name: str
    instance: InstanceId
    config: dict[str, Any]
    grace: Duration = GRACE
    timing: Timing = field(default_factory=Timing)


class Reconnect:
    """The back-off of one link, for the whole life of the link.

    A head node that is out of reach is tried again after an eighth of the time since the first failure: at least
    `retry_soon`, at most `retry_max`. A host that is down for seconds is back within seconds, and one that is down for
    hours is not burdened. A fault that the cluster's administrators have to repair waits for `retry_cluster`. A login
    that is refused is tried three times in all, and one that asks for an answer not at all. Then only a person can
    start the next try (`allow`). A cluster that sends nonsense waits twice as long each time, up to `retry_cluster`,
    however long its sane sessions were.
    """

    def __init__(self, timing: Timing, uniform: Callable[[float, float], float]) -> None:
        """Start without failures. `uniform`: returns a random number between two."""
        self._timing, self._uniform = timing, uniform
        self._refusals = 0
        self._nonsense = 0  # sessions that ended for it, less those that did not
        self._failures = 0  # tries without a session that lasted
        self._failing_since: Instant | None = None

    def tried(self, now: Instant) -> None:
        """Begin another try; the first one after a session that lasted begins to count anew."""
        self._failing_since = now if self._failing_since is None else self._failing_since

    def allow(self) -> None:
        """Let refused logins be tried again: one was accepted, or a person asks for another try."""
        self._refusals = 0

    def reset(self) -> None:
        """Forget the failures: a session has lasted."""
        self._failures, self._failing_since = 0, None

    def failed(self, reason: Reason) -> Reason:
        """Count a failure. Returns its reason, with more advice if koalad does nothing more by itself."""
        self._failures += 1
        self._nonsense = max(0, self._nonsense + (1 if is_nonsense(reason) else -1))
        if reason.code != _REFUSAL:
            return reason
        self._refusals += 1
        if self._refusals < _MOST_REFUSALS:
            return reason
        stopped = f"After {self._refusals} refusals koalad does not try again, since a cluster may lock the account:"
        return replace(reason, advice=f"{reason.advice} {stopped} `koala login` or `koala up` does.")

    def delay(self, now: Instant, reason: Reason) -> Duration | None:
        """Return how long to wait after this failure, which was counted; None: until a person asks for the next try.

        The wait is 0 after `reset`.
        """
        longest_s = self._longest_s(now, reason)
        return None if longest_s is None else Duration(round(longest_s * self._uniform(_LEAST, 1.0) * SECOND))

    def _longest_s(self, now: Instant, reason: Reason) -> float | None:
        timing = self._timing
        if reason.code in _ANSWERS or self._refusals >= _MOST_REFUSALS:
            return None
        if is_nonsense(reason):
            return min(_doubled(timing.retry_first, self._nonsense), timing.retry_cluster)
        if not self._failures:
            return 0.0
        return min(_doubled(timing.retry_first, self._failures - 1), self._limit_s(now, reason))

    def _limit_s(self, now: Instant, reason: Reason) -> float:
        timing = self._timing
        if reason.code == _REFUSAL:
            return timing.retry_cluster * float(_LONGER ** (self._refusals - 1))
        if reason.whose == "cluster":
            return timing.retry_cluster
        failing_s = 0.0 if self._failing_since is None else (now - self._failing_since) / SECOND
        return min(timing.retry_max, max(timing.retry_soon, failing_s / _SHARE))


def _doubled(first_s: float, times: int) -> float:
    return first_s * 2.0 ** min(times, 30)


def is_nonsense(reason: Reason) -> bool:
    """Return whether a session ended because of what the cluster sent."""
    return reason.code in _NONSENSE
