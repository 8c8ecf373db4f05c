"""The header of all work that a user submits: whose it is, what it asks for, and how it is."""

from dataclasses import dataclass
from enum import StrEnum

from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant


class Outcome(StrEnum):
    """The outcome of a stopping job, once nothing of it is left (DCS, sections 3.2 and 3.5)."""

    SUBMISSION_FAILURE = "submission_failure"  # counted, to the tail
    COMPLETION_FAILURE = "completion_failure"  # counted, submission count back to zero, to the tail
    NEXT_CHOICE = "next_choice"  # uncounted: the job could not start on its choice, and has another
    GIVE_BACK = "give_back"  # uncounted: a deadlock was broken, or only one cluster is at fault
    VACATED = "vacated"  # uncounted: a job of higher priority needs its processors
    HOLD = "hold"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    ends: bool  # this outcome alone makes the job final; a bound can do so for any other


for _outcome in Outcome:
    _outcome.ends = _outcome in (Outcome.DONE, Outcome.FAILED, Outcome.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The fields of every kind of work. Name, priority and labels are those of its `request`.

    `position`: orders what waits within a priority; what is sent to the tail gets a new one. `outcome`: set while it
    stops. `key`: under which its owner's client submitted it, '' without one. `part_of`: the flow that it belongs to.
    `forced`: its user does not want to wait for clusters or sites out of reach.
    """

    id: JobId
    owner: str
    request: Request
    state: JobState
    position: int
    submitted_at: Instant
    started_at: Instant | None = None
    finished_at: Instant | None = None
    waiting_since: Instant | None = None
    reason: Reason | None = None
    outcome: Outcome | None = None
    key: str = ""
    part_of: JobId | None = None
    forced: bool = False
