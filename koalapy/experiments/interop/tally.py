"""The measures of a run (SC'07, section 5.1)."""

from collections import Counter
from enum import StrEnum

from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.system import System
from koalapy.model.units import DAY, MINUTE, SECOND, Instant

YEAR = 365 * DAY
_BOUND = 10 * SECOND  # of the bounded slowdown: shorter jobs count as this long
KEEP_ALIVE = 5 * MINUTE  # Condor's ALIVE_INTERVAL


class Kind(StrEnum):
    """The kinds of messages in the paper; `keep_alive` are those of resource use, all others of management.

    `report_free` and `dmm` are messages of site managers: reports of free processors, and delegation.
    """

    NOTIFY = "notify_broker"
    NEGOTIATE = "negotiate"
    DATA = "job_data_exchange"
    MATCH = "match_claim_release"
    DMM = "dmm"
    REPORT = "report_free"
    KEEP_ALIVE = "keep_alive"


COLUMNS = (
    "jobs", "finished", "goodput", "wait_s", "slowdown", "utilisation", "delegations", *Kind, "started", "response_s",
    "bounded_slowdown", "goodput_local", "goodput_intra_site", "goodput_intra_grid", "goodput_inter_grid",
)  # fmt: skip


class Tally:
    """The measures of one run, which is given every start. `until`: the instant of measurement; None: the last end.

    Means are over the jobs that have started. Goodput counts the work of jobs that have finished.
    """

    def __init__(self, system: System, jobs: int, until: Instant | None) -> None:
        self._system, self._jobs, self._until = system, jobs, until
        self._last = Instant(0)
        self.started = self.finished = 0
        self._waited = self._responded = 0
        self._slowed = self._slowed_bounded = 0.0
        self._busy = 0
        self._work: Counter[str] = Counter()  # of finished jobs, by the distance of their clusters
        self._delegations = 0
        self.messages: Counter[Kind] = Counter()

    def start(self, job: GridJob, now: Instant, cluster: str, busy_since: Instant, links: int) -> None:
        """Count a job that starts now. `busy_since`: when its processors were taken; `links`: its chain's length."""
        waited, end = now - job.arrived, now + job.runtime
        self.started += 1
        self._waited += waited
        self._responded += waited + job.runtime
        runtime = max(job.runtime, SECOND)  # logs count whole seconds, and some jobs took none
        self._slowed += (waited + runtime) / runtime
        self._slowed_bounded += max(1.0, (waited + runtime) / max(runtime, _BOUND))
        self._delegations += links
        self._last = max(self._last, Instant(end))
        seen = end if self._until is None else min(end, self._until)
        self._busy += max(0, seen - busy_since) * job.processors
        if self._until is None or end <= self._until:
            self.finished += 1
            self._work[self._distance(job.home, cluster)] += job.processors * job.runtime
        self.messages[Kind.KEEP_ALIVE] += 2 * max(0, (seen - now) // KEEP_ALIVE)

    def row(self) -> dict[str, float]:
        """Return the measures, by the table's columns."""
        span = self._last if self._until is None else self._until
        started = max(self.started, 1)
        work = {where: self._work[where] / YEAR for where in ("local", "intra_site", "intra_grid", "inter_grid")}
        return {
            "jobs": self._jobs,
            "finished": self.finished,
            "goodput": sum(work.values()),
            "wait_s": self._waited / started / SECOND,
            "slowdown": self._slowed / started,
            "utilisation": self._busy / (self._system.total * max(span, 1)),
            "delegations": self._delegations / started,
            **{kind.value: self.messages[kind] for kind in Kind},
            "started": self.started,
            "response_s": self._responded / started / SECOND,
            "bounded_slowdown": self._slowed_bounded / started,
            **{f"goodput_{where}": value for where, value in work.items()},
        }

    def _distance(self, home: str, cluster: str) -> str:
        if home == cluster:
            return "local"
        if self._system.grids[home] != self._system.grids[cluster]:
            return "inter_grid"
        parents = self._system.parents
        same_site = parents[home] == parents[cluster] and parents[home] != self._system.grids[home]
        return "intra_site" if same_site else "intra_grid"
