"""Numbers for monitoring: commits since koalad's start, and the jobs and sweeps that are not final."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from koalapy.model.change import Change
from koalapy.model.history import HistoryKind
from koalapy.model.pilot import job_of_pilot
from koalapy.model.records import Records
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant


@dataclass(frozen=True, slots=True)
class Counted:
    """Numbers since koalad's start. Keys of attempts and processor-seconds are (cluster, kind of usage)."""

    commits: int
    jobs: dict[str, int]  # final ones by state
    parameters: dict[str, int]  # of sweeps, by ok and failed
    attempts: dict[tuple[str, str], int]
    processor_s: dict[tuple[str, str], float]
    vacated: int  # jobs, each time that one was vacated
    revoked: int  # leases that this site has taken back
    suspended: int  # jobs, each time that one was suspended for another
    won: dict[str, int]  # races, by the cluster where the component started


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs and sweeps that are not final, by state, and the longest wait of a job, 0 if none waits.

    `held`: by cluster, the processors of components that wait at their barriers.
    """

    jobs: Mapping[JobState, int]
    sweeps: Mapping[JobState, int]
    longest_wait: Duration
    held: Mapping[str, int]


def load_of(records: Records, now: Instant) -> Load:
    """Count the jobs and sweeps that are not final. Of a flow, its jobs count."""
    states: Counter[JobState] = Counter()
    held: Counter[str] = Counter()
    longest = 0
    for work in (*records.jobs.values(), *records.sent_jobs.values()):
        states[work.state] += 1
        if work.state.queued:
            longest = max(longest, now - (work.waiting_since or work.submitted_at))
    for job in records.jobs.values():
        for each in job.attempts if job.state.claiming else ():
            if each is not None and each.state.at_barrier:
                held[each.cluster] += each.processors
    sweeps = Counter(sweep.state for sweep in records.sweeps.values())
    return Load(dict(states), dict(sweeps), Duration(longest), dict(held))


class Counting:
    """Counts commits and the changes in them."""

    def __init__(self) -> None:
        self._commits = 0
        self._jobs: Counter[str] = Counter()
        self._parameters: Counter[str] = Counter()
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._used: Counter[tuple[str, str]] = Counter()
        self._vacated = self._suspended = self._revoked = 0
        self._won: Counter[str] = Counter()

    def committed(self, change: Change) -> None:
        """Add a commit."""
        self._commits += 1
        for work in (*change.jobs, *change.sweeps, *change.sent_jobs):
            if work.state.final:
                self._jobs[work.state.value] += 1
        for line in change.history:
            if line.kind == HistoryKind.JOB_PREEMPTS:
                self._vacated += len(line.details["jobs"])
            if line.kind == HistoryKind.CANDIDATE_WON:
                self._won[line.details["cluster"]] += 1
            self._suspended += line.kind == HistoryKind.JOB_SUSPENDED
            self._revoked += line.kind == HistoryKind.LEASE_REVOKED
        for batch in change.results:
            for result in batch.results:
                self._parameters["ok" if result.exit_status == 0 else "failed"] += 1
        for entry in change.usage:
            self._attempts[entry.cluster, entry.kind.value] += 1
            if job_of_pilot(entry.cluster) is not None:
                continue  # within the time of the pilot's own batch job
            held = (entry.released_at - entry.started_at) * entry.processors
            self._used[entry.cluster, "held"] += held
            self._used[entry.cluster, entry.kind.value] += (entry.ended_at - entry.released_at) * entry.processors

    def counted(self) -> Counted:
        """Return a copy of all numbers."""
        return Counted(
            self._commits,
            dict(self._jobs),
            dict(self._parameters),
            dict(self._attempts),
            {key: used / SECOND for key, used in self._used.items()},
            self._vacated,
            self._revoked,
            self._suspended,
            dict(self._won),
        )
