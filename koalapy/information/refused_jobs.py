"""Clusters whose batch systems refuse one job after another: nothing is placed there for a while."""

from dataclasses import dataclass, replace

from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.units import MINUTE, SECOND, Duration, Instant, format_instant

MOST_REFUSED = 3  # jobs in a row
_FIRST_PAUSE, _LONGEST_PAUSE = Duration(30 * SECOND), Duration(10 * MINUTE)
_NO_PAUSE, _NEVER = Duration(0), Instant(0)
REFUSES = "refuses_jobs"  # code of the cluster's trouble


@dataclass(frozen=True, slots=True)
class RefusedJobs:
    """The jobs that a cluster has refused since it last accepted a submission, of which it keeps `MOST_REFUSED`.

    The last of these begins a pause, and each refusal after a pause one twice as long, up to ten minutes. `until`: its
    end. `reason`: that of the last refusal. No store keeps this: after koalad's start other jobs are refused first.
    """

    jobs: frozenset[JobId] = frozenset()
    reason: Reason | None = None
    pause: Duration = _NO_PAUSE
    until: Instant = _NEVER

    def after(self, now: Instant, job: JobId, reason: Reason) -> "RefusedJobs":
        """Return them after one more refusal."""
        jobs = self.jobs if len(self.jobs) == MOST_REFUSED else self.jobs | {job}
        if len(jobs) < MOST_REFUSED or now < self.until:
            return replace(self, jobs=jobs, reason=reason)
        pause = Duration(min(2 * self.pause or _FIRST_PAUSE, _LONGEST_PAUSE))
        return RefusedJobs(jobs, reason, pause, Instant(now + pause))

    def trouble(self, now: Instant) -> Reason | None:
        """Return why the cluster cannot be used; None if it can."""
        if now >= self.until or self.reason is None:
            return None
        message = f"it refuses one job after another, the last one so: {self.reason.message}"
        advice = f"Nothing is placed there until {format_instant(self.until)}. {self.reason.advice}".strip()
        return Reason(REFUSES, "cluster", message, advice)


NONE_REFUSED = RefusedJobs()
