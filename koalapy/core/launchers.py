"""Index of sweeps and their Launchers, by sweep and by cluster."""

from collections.abc import Iterable, Iterator

from koalapy.model.identity import JobId
from koalapy.model.job import Component, Job
from koalapy.model.sweep import Runner


class Launchers:
    """An index over the jobs. `sweeps`: those not over.

    Since they were last cleared, `ended`: Launchers that are over; `turned`: others whose state became another.
    """

    def __init__(self) -> None:
        self.sweeps: dict[JobId, None] = {}
        self.ended: list[Job] = []
        self.turned: list[JobId] = []
        self._of: dict[JobId, dict[JobId, Job]] = {}
        self._on: dict[str, dict[JobId, Job]] = {}

    def changed(self, before: Job | None, after: Job | None) -> None:
        job = before if after is None else after
        if job is None or (job.runner is None and job.pilot is None):
            return
        if job.runner is not None:
            self._sweep(job, over=after is None or after.state.final)
        elif after is not None and job.pilot is not None:
            self._launcher(after, job.pilot.sweep, before)

    def _sweep(self, job: Job, over: bool) -> None:
        if over:
            self.sweeps.pop(job.id, None)
        else:
            self.sweeps[job.id] = None

    def _launcher(self, job: Job, sweep: JobId, before: Job | None) -> None:
        on = self._on.setdefault(place(job).cluster or "", {})
        if not job.state.final:
            self._of.setdefault(sweep, {})[job.id] = on[job.id] = job
            if before is not None and place(before).state is not place(job).state:
                self.turned.append(job.id)
        elif before is None or not before.state.final:
            of = self._of.get(sweep, {})
            of.pop(job.id, None)
            on.pop(job.id, None)
            self.ended.append(job)
            if not of:
                self._of.pop(sweep, None)

    def of(self, sweep: JobId) -> list[Job]:
        """Return the Launchers of the sweep that are not over, by their ids."""
        return sorted(self._of.get(sweep, {}).values(), key=lambda job: job.id)

    def on(self, cluster: str) -> list[Job]:
        """Return the Launchers of all sweeps on the cluster, by their ids."""
        return sorted(self._on.get(cluster, {}).values(), key=lambda job: job.id)

    def __iter__(self) -> Iterator[Job]:
        for of in self._of.values():
            yield from of.values()


def place(launcher: Job) -> Component:
    """Its one component: where it is, and since when."""
    return launcher.components[0]


def staying(launchers: Iterable[Job]) -> list[Job]:
    """Return the Launchers that were not asked to stop, and do not stop by themselves."""
    return [
        each for each in launchers if each.pilot is not None and not each.pilot.stop_reason and each.outcome is None
    ]


def runner_of(sweep: Job) -> Runner:
    assert sweep.runner is not None
    return sweep.runner
