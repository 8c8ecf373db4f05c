"""Index of sweeps and their Launchers, by sweep and by cluster."""

from collections.abc import Collection, Iterable, Iterator

from koalapy.model.attempt import Attempt
from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.sweep import Runner


class Launchers(Index):
    """An index of the sweeps and Launchers that are not final.

    `sweeps`: ids of those sweeps. `ended`: Launchers that became final since the list was last cleared. `turned`: ids
    of other Launchers whose attempt changed its state or was detached since the list was last cleared.
    """

    def __init__(self) -> None:
        self.sweeps: dict[JobId, None] = {}
        self.ended: list[Job] = []
        self.turned: list[JobId] = []
        self._of: dict[JobId, dict[JobId, Job]] = {}
        self._on: dict[str, dict[JobId, Job]] = {}

    def added(self, job: Job) -> None:
        if job.state.final:
            return
        if job.runner is not None:
            self.sweeps[job.id] = None
        elif job.pilot is not None:
            cluster = job.request.components[0].cluster or ""
            self._of.setdefault(job.pilot.sweep, {})[job.id] = job
            self._on.setdefault(cluster, {})[job.id] = job

    def became_final(self, job: Job) -> None:
        if job.runner is not None:
            self.sweeps.pop(job.id, None)
        elif job.pilot is not None:
            of, on = self._of[job.pilot.sweep], self._on[place(job).cluster]
            del of[job.id], on[job.id]
            self.ended.append(job)
            if not of:
                del self._of[job.pilot.sweep]
            if not on:
                del self._on[place(job).cluster]

    def attempt_changed(self, job: Job, attempt: Attempt, names: Collection[str]) -> None:
        if job.pilot is not None and ("state" in names or "detached_at" in names) and not job.state.final:
            self.turned.append(job.id)

    def of(self, sweep: JobId) -> list[Job]:
        """Return the Launchers of the sweep that are not final, in the order of their ids."""
        return sorted(self._of.get(sweep, {}).values(), key=lambda job: job.id)

    def on(self, cluster: str) -> list[Job]:
        """Return the Launchers on the cluster that are not final, of all sweeps, in the order of their ids."""
        return sorted(self._on.get(cluster, {}).values(), key=lambda job: job.id)

    def __iter__(self) -> Iterator[Job]:
        for of in self._of.values():
            yield from of.values()


def place(launcher: Job) -> Attempt:
    """Return the Launcher's one attempt."""
    attempt = launcher.attempts[0]
    assert attempt is not None
    return attempt


def staying(launchers: Iterable[Job]) -> list[Job]:
    """Return the Launchers that neither have a reason to stop nor are stopping."""
    return [
        each for each in launchers if each.pilot is not None and not each.pilot.stop_reason and each.outcome is None
    ]


def runner_of(sweep: Job) -> Runner:
    assert sweep.runner is not None
    return sweep.runner
