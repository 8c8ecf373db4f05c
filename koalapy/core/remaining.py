"""The jobs, pending cancels and files on a cluster: while there are any, it does not leave the grid unasked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from koalapy.core.core import Core
from koalapy.model.counts import counted_as
from koalapy.model.identity import JobId
from koalapy.model.states import PilotState
from koalapy.model.textfile.words import listed

_JOBS = 5  # listed in a sentence


@dataclass(frozen=True, slots=True)
class Remaining:
    """The jobs, pending cancels and files of koalapy on a cluster, and the jobs that wait for it.

    `living`: jobs and sweeps with attempts there. `pending_cancels`: their number. `collecting`: jobs whose output is
    on its way. `naming`: jobs and sweeps that can run nowhere else.
    """

    living: tuple[JobId, ...] = ()
    pending_cancels: int = 0
    collecting: tuple[JobId, ...] = ()
    naming: tuple[JobId, ...] = ()

    @property
    def is_there(self) -> bool:
        """Return whether something is there already, and not only to come."""
        return bool(self.living or self.pending_cancels or self.collecting)

    def __bool__(self) -> bool:
        return self.is_there or bool(self.naming)

    def __str__(self) -> str:
        parts = [
            f"{_jobs(self.living)} there" if self.living else "",
            counted_as(self.pending_cancels, "pending cancel") if self.pending_cancels else "",
            f"output of {_jobs(self.collecting)} on its way" if self.collecting else "",
            f"{_jobs(self.naming)} that can run nowhere else" if self.naming else "",
        ]
        return ", ".join(part for part in parts if part) or "nothing"


def present_on(core: Core, cluster: str) -> Remaining:
    """Return what koalapy still has on a cluster, without the jobs that wait for it."""
    records = core.records
    living = {JobId(attempt.owner.id): None for attempt in records.live(cluster)}
    return Remaining(
        living=tuple(sorted(living)),
        pending_cancels=sum(each.cluster == cluster for each in records.pending_cancels.values()),
        collecting=tuple([job for job, on in core.pruning.collecting.items() if not on or cluster in on]),
    )


def remaining_on(core: Core, cluster: str) -> Remaining:
    """Return what koalapy still has on a cluster, or waits for there."""
    found = present_on(core, cluster)
    naming = [
        work.id
        for work in core.records.all_work()
        if work.id not in found.living and any(each.cluster == cluster for each in work.request.components)
    ]
    return replace(found, naming=tuple(naming))


def is_filled(core: Core, job: JobId) -> bool:
    """Return whether sweeps may use processors of the job, which is held at its barrier."""
    pilot = core.pilots.records.get(job)
    if pilot is None or pilot.fills is None:
        return False
    return pilot.state is not PilotState.CLOSING or present_on(core, pilot.name).is_there


def _jobs(jobs: Sequence[JobId]) -> str:
    return f"{'job' if len(jobs) == 1 else 'jobs'} {listed(map(str, jobs), 'and', _JOBS)}"
