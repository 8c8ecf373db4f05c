"""Reports of KCMs and Launchers that are kept in memory only, since every session repeats them."""

from dataclasses import dataclass, field
from typing import Any

from koalapy.model.errors import Reason
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import Intervals
from koalapy.model.units import Instant

On = tuple[JobId, str]  # a sweep, and a cluster


@dataclass(slots=True)
class SessionState:
    """State of the present sessions with KCMs, by sweep and cluster, by sweep, or by Launcher.

    By sweep and cluster: `wanted`: the number of parameters that the KCM can still use, less those fed since its last
    report. `begun`: whether the KCM was sent the sweep's first feed of this session. `failures`: the number of the
    sweep's Launchers that failed there in a row. `recalled`: whether parameters were recalled from there since those
    out on the cluster last changed. `refused`: why the cluster refuses the sweep's Launchers. `fed`: parameters that
    came back from there, of which results may still arrive.

    By Launcher: `doing`: the number of parameters that run, and the instant of the newest pull. `latest`: whether any
    of its newest results is a success. `suspects`: the host of a Launcher that may be on a black hole.

    By sweep: `noted_waits`: why it waits, as last noted in its history. `policy_errors`: by sweep and policy call, the
    error in the policy's last answer. `noted_errors`: those calls whose errors are in the history.

    `fresh`: clusters whose KCM is new, and has not been sent the first feed of any sweep.
    """

    wanted: dict[On, int] = field(default_factory=dict)
    begun: dict[On, None] = field(default_factory=dict)
    doing: dict[AttemptId, tuple[int, Instant]] = field(default_factory=dict)
    failures: dict[On, int] = field(default_factory=dict)
    latest: dict[AttemptId, bool] = field(default_factory=dict)
    suspects: dict[AttemptId, str] = field(default_factory=dict)
    recalled: dict[On, None] = field(default_factory=dict)
    refused: dict[On, Reason] = field(default_factory=dict)
    fed: dict[On, Intervals] = field(default_factory=dict)
    noted_waits: dict[JobId, str] = field(default_factory=dict)
    policy_errors: dict[tuple[JobId, str], str] = field(default_factory=dict)
    noted_errors: dict[tuple[JobId, str], None] = field(default_factory=dict)
    fresh: dict[str, None] = field(default_factory=dict)

    def new_session(self, cluster: str) -> None:
        """Forget the reports of the cluster's former KCM."""
        self.fresh[cluster] = None
        for of_cluster in (self.wanted, self.begun, self.recalled):
            for key in [key for key in of_cluster if key[1] == cluster]:
                del of_cluster[key]

    def forget_cluster(self, cluster: str) -> None:
        """Forget every report of a cluster that is no part of the grid any more."""
        self.fresh.pop(cluster, None)
        for of_cluster in self._by_place():
            for key in [key for key in of_cluster if key[1] == cluster]:
                del of_cluster[key]

    def forget_launcher(self, attempt: AttemptId) -> None:
        self.doing.pop(attempt, None)
        self.latest.pop(attempt, None)
        self.suspects.pop(attempt, None)

    def forget_sweep(self, sweep: JobId) -> None:
        for of_sweep in (*self._by_place(), self.policy_errors, self.noted_errors):
            for key in [key for key in of_sweep if key[0] == sweep]:
                del of_sweep[key]
        self.noted_waits.pop(sweep, None)

    def _by_place(self) -> tuple[dict[On, Any], ...]:
        return self.wanted, self.begun, self.recalled, self.failures, self.refused, self.fed
