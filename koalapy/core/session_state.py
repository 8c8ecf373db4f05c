"""Reports of KCMs and Launchers that are kept in memory only, since every session repeats them."""

from dataclasses import dataclass, field

from koalapy.model.errors import Reason
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import Intervals
from koalapy.model.units import Instant

On = tuple[JobId, str]  # a sweep, and a cluster


@dataclass(slots=True)
class SessionState:
    """`wanted`: what each KCM could use, less what it was fed since it said so. `begun`: sweeps that a KCM has had its
    first feed of in this session. `doing`: of each Launcher, how many parameters run, and when the newest was pulled.

    `failures`: Launchers of a sweep that failed in a row on a cluster. `latest`: whether something of a Launcher's
    newest results had ended well. `suspects`: Launchers that may be on black holes, and their hosts. `recalled`: what
    was out on a cluster when some of it was asked back. `refused`: why a cluster will not have what a sweep asks for.
    `fed`: what was out on a cluster and came back, so that its end may be told late.
    `told`: why a sweep waits, as it was last told. `faults`: what is wrong with a policy's last answer for a sweep, by
    what was asked; `blamed`: what its story tells of that. `fresh`: clusters whose KCM has not been told what is
    out there.
    """

    wanted: dict[On, int] = field(default_factory=dict)
    begun: dict[On, None] = field(default_factory=dict)
    doing: dict[AttemptId, tuple[int, Instant]] = field(default_factory=dict)
    failures: dict[On, int] = field(default_factory=dict)
    latest: dict[AttemptId, bool] = field(default_factory=dict)
    suspects: dict[AttemptId, str] = field(default_factory=dict)
    recalled: dict[On, int] = field(default_factory=dict)
    refused: dict[On, Reason] = field(default_factory=dict)
    fed: dict[On, Intervals] = field(default_factory=dict)
    told: dict[JobId, str] = field(default_factory=dict)
    faults: dict[tuple[JobId, str], str] = field(default_factory=dict)
    blamed: dict[tuple[JobId, str], None] = field(default_factory=dict)
    fresh: dict[str, None] = field(default_factory=dict)

    def new_session(self, cluster: str) -> None:
        """The cluster has another KCM now, which has said nothing yet."""
        self.fresh[cluster] = None
        for of_cluster in (self.wanted, self.begun, self.recalled):
            for key in [key for key in of_cluster if key[1] == cluster]:
                del of_cluster[key]

    def forget_launcher(self, attempt: AttemptId) -> None:
        self.doing.pop(attempt, None)
        self.latest.pop(attempt, None)
        self.suspects.pop(attempt, None)

    def forget_sweep(self, sweep: JobId) -> None:
        of_sweeps = self.wanted, self.begun, self.recalled, self.failures, self.refused, self.faults, self.blamed
        for of_sweep in (*of_sweeps, self.fed):
            for key in [key for key in of_sweep if key[0] == sweep]:
                del of_sweep[key]
        self.told.pop(sweep, None)
