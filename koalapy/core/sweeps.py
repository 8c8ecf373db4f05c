"""Index of the sweeps that are not final."""

from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.sweep import Runner


class Sweeps(Index):
    """An index of the sweeps that are not final. `ids`: their ids."""

    def __init__(self) -> None:
        self.ids: dict[JobId, None] = {}

    def added(self, job: Job) -> None:
        if job.runner is not None and not job.state.final:
            self.ids[job.id] = None

    def became_final(self, job: Job) -> None:
        self.ids.pop(job.id, None)


def runner_of(sweep: Job) -> Runner:
    assert sweep.runner is not None
    return sweep.runner
