"""In which parallel environment Launchers are, where the grid file leaves that open: asked once for each kind of job.

Sites seldom change what they have configured, and a KCM lasts no longer than its connection. An environment that
refuses a Launcher after all is not tried again by this KCM.
"""

import threading
from typing import Dict, Optional, Tuple

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError, TransientError
from koalapy_adapters.kcm.commands import BatchSystem, guarded

_Kind = Tuple[Optional[str], int]


class Environments:
    """May be used in several threads: the first to ask has the others wait for the answer. Blocks."""

    def __init__(self, batch: BatchSystem) -> None:
        self._batch = batch
        self._lock = threading.Lock()
        self._better: Dict[_Kind, Optional[str]] = {}  # than the job's own

    def best(self, job: BatchJob) -> BatchJob:
        """The job, in the environment that it is best in; as it is, where nobody can tell."""
        with self._lock:
            better = self._look(job)
        return job._replace(parallel_environment=better) if better else job

    def refused(self, job: BatchJob) -> None:
        """The batch system would not have this one: those to come are as the grid file says."""
        with self._lock:
            if _kind(job) in self._better:
                self._better[_kind(job)] = None

    def _look(self, job: BatchJob) -> Optional[str]:
        kind = _kind(job)
        if kind not in self._better:
            try:
                chosen = guarded(lambda: self._batch.launchers_environment(job))
            except TransientError:
                return None  # the next one asks again
            except BatchError:
                chosen = None
            self._better[kind] = chosen.environment if chosen else None
        return self._better[kind]


def _kind(job: BatchJob) -> _Kind:
    return job.queue, job.processors
