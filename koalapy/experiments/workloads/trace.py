"""One job of a workload, as the formats of the archives tell it."""

from dataclasses import dataclass
from enum import StrEnum

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.units import Duration


class Ended(StrEnum):
    """How a job of a log ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """`submitted` counts from the log's beginning. None, or an empty text, where the log does not say.

    `processors` are those that it took, else those that it wanted; 0 of a job that never ran. `site`: the part of the
    system where it was submitted (SWF's partition, GWF's OrigSiteID).
    """

    number: int
    submitted: Duration
    processors: int
    runtime: Duration | None = None
    waited: Duration | None = None
    requested: Duration | None = None
    memory_per_processor: int | None = None  # bytes
    user: str = ""
    group: str = ""
    queue: str = ""
    site: str = ""
    ended: Ended = Ended.UNKNOWN

    @property
    def ran(self) -> bool:
        """Whether it can be run again: it took processors for a known while."""
        return self.runtime is not None and self.processors > 0


def processors_of(allocated: int | None, requested: int | None, runtime: Duration | None, ended: Ended) -> int:
    """Processors of a line of a log, as `TraceJob` has them.

    A run time of 0 on no or unknown processors means that the job never ran, whatever it requested. So does a run time
    of 0 of a cancelled job: some logs write it instead of -1.
    """
    if runtime == 0 and (not allocated or ended is Ended.CANCELLED):
        return 0
    return allocated or requested or 0
