"""The kinds of work: jobs, sweeps, flows and sent jobs, each a record of its own under the same header."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from koalapy.model.fast_frozen import caster, fast_frozen, row_class
from koalapy.model.header import Header
from koalapy.model.identity import JobId
from koalapy.model.job import Job, JobRow, job_row, job_value
from koalapy.model.sent import SentJob, SentJobRow, sent_job_row, sent_job_value
from koalapy.model.states import FLOW_TRANSITIONS, JOB_TRANSITIONS, SENT_TRANSITIONS, SWEEP_TRANSITIONS, JobState
from koalapy.model.sweep import Sweep, SweepRow, sweep_row, sweep_value


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Flow(Header):
    """Jobs and sweeps that were submitted together. It runs from its submission on, and waits for nothing itself.

    `count`: how many jobs and sweeps it has; `done`, `failed`, `cancelled`: how many of them are. Their ids are the
    `count` numbers that follow its own.
    """

    count: int
    done: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def jobs(self) -> Sequence[JobId]:
        """The ids of its jobs and sweeps, in their order."""
        return cast(Sequence[JobId], range(self.id + 1, self.id + 1 + self.count))


FlowRow = row_class(Flow)
flow_row, flow_value = caster(Flow, FlowRow), caster(FlowRow, Flow)

Whole = Sweep | Flow | SentJob
"""The kinds whose record is all in one: only a job has attempts beside it."""
Work = Job | Whole
"""What a user submits. The ids of all kinds are of one sequence."""


class Kind(NamedTuple):
    """One kind of work. `row`: the class of its rows; `to_row` and `to_value` copy a value into a row, and back."""

    name: str
    value: type[Any]
    row: type[Any]
    to_row: Callable[[Any], Any]
    to_value: Callable[[Any], Any]
    transitions: Mapping[JobState, frozenset[JobState]]


KINDS = (
    Kind("job", Job, JobRow, job_row, job_value, JOB_TRANSITIONS),
    Kind("sweep", Sweep, SweepRow, sweep_row, sweep_value, SWEEP_TRANSITIONS),
    Kind("flow", Flow, FlowRow, flow_row, flow_value, FLOW_TRANSITIONS),
    Kind("sent-job", SentJob, SentJobRow, sent_job_row, sent_job_value, SENT_TRANSITIONS),
)
KIND_OF: Mapping[type, Kind] = {kind: each for each in KINDS for kind in (each.value, each.row)}
"""The kind of each class of values or rows."""
