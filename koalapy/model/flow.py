"""The progress of a flow: jobs that were submitted together, some of which wait for others."""

from dataclasses import dataclass

from koalapy.model.fast_frozen import fast_frozen, replacer
from koalapy.model.identity import JobId
from koalapy.model.request import OnFailure


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """How many jobs a flow has, and how many of them are done, failed and cancelled.

    The ids of its jobs are the `count` numbers that follow its own.
    """

    count: int
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    on_failure: OnFailure = OnFailure.CONTINUE

    @property
    def is_over(self) -> bool:
        """Return whether all its jobs are final."""
        return self.done + self.failed + self.cancelled == self.count

    def jobs_of(self, flow: JobId) -> range:
        """Return the ids of the jobs of the flow with this id."""
        return range(flow + 1, flow + 1 + self.count)


replace_flow = replacer(Flow)
