"""One job of a workload, in any of the archives' formats."""

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
    """One job of a log. `submitted` counts from the log's beginning. Unknown values are None or an empty text.

    `processors` are those that it took, else those that it requested; 0 for a job that never ran. `site`: the part of
    the system where it was submitted (SWF's partition, GWF's OrigSiteID).
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
        """Return whether the job can be run again: it took processors for a known time."""
        return self.runtime is not None and self.processors > 0


def processors_of(allocated: int | None, requested: int | None, runtime: Duration | None, ended: Ended) -> int:
    """Return the processors of a job, as defined in `TraceJob`.

    A run time of 0 on no or unknown processors means that the job never ran, whatever it requested. So does a run time
    of 0 of a cancelled job: some logs have it instead of -1.
    """
    if runtime == 0 and (not allocated or ended is Ended.CANCELLED):
        return 0
    return allocated or requested or 0
