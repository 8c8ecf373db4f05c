"""In which parallel environment Launchers are, where the grid file leaves that open: asked once for each kind of job.

Clusters seldom change what they have configured, and a KCM lasts no longer than its connection. An environment that
refuses a Launcher after all is not tried again by this KCM.
"""

import threading
import time
from typing import Callable, Dict, Optional, Tuple

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError, TransientError
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, guarded

UNANSWERED = 60.0  # seconds for which a batch system that has not answered is left alone

_Kind = Tuple[Optional[str], int]


class ParallelEnvironments:
    """May be used in several threads: the first to ask has the others wait for the answer. Blocks."""

    def __init__(self, batch: BatchSystem, clock: Callable[[], float] = time.monotonic) -> None:
        self._batch, self._clock = batch, clock
        self._ask_at = clock()
        self._lock = threading.Lock()
        self._better: Dict[_Kind, Optional[str]] = {}  # than the job's own

    def best(self, job: BatchJob) -> BatchJob:
        """The job, in the environment that it is best in; as it is, where that is unknown."""
        with self._lock:
            better = self._look(job)
        return job._replace(parallel_environment=better) if better else job

    def refused(self, job: BatchJob) -> None:
        """Submit further jobs of this kind as the grid file has it: the batch system refused this one."""
        with self._lock:
            if _kind(job) in self._better:
                self._better[_kind(job)] = None

    def _look(self, job: BatchJob) -> Optional[str]:
        kind = _kind(job)
        if kind not in self._better and self._clock() >= self._ask_at:
            self._ask(kind, job)
        return self._better.get(kind)

    def _ask(self, kind: _Kind, job: BatchJob) -> None:
        """Only that nobody answers is no answer."""
        chosen = None
        try:
            chosen = guarded(lambda: self._batch.launchers_environment(job))
        except TransientError:
            self._ask_at = self._clock() + UNANSWERED
            return
        except BatchError:
            pass
        self._better[kind] = chosen.environment if chosen else None


def _kind(job: BatchJob) -> _Kind:
    return job.queue, job.processors
