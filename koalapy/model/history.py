"""The history of a job: its lines, and their kinds."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import JobId
from koalapy.model.units import Instant


class HistoryKind(StrEnum):
    """The kinds of lines. The first word of a kind names its subject.

    `work` is a job, flow or sweep, `job` a job of components, and `attempt` may be a pilot too.
    """

    LINE_UNREADABLE = "line_unreadable"
    WORK_SUBMITTED = "work_submitted"
    MAY_BEGIN = "may_begin"
    WORK_HELD = "work_held"
    WORK_UNHELD = "work_unheld"
    CANCEL_REQUESTED = "cancel_requested"
    JOB_LOWERED = "job_lowered"
    JOB_CLAIMED = "job_claimed"
    CHOICES_MADE = "choices_made"
    CHOICE_REFUSED = "choice_refused"
    CHOICES_ENDED = "choices_ended"
    JOB_PREEMPTS = "job_preempts"
    JOB_SUSPENDED = "job_suspended"
    JOB_RESUMED = "job_resumed"
    JOB_RELEASED = "job_released"
    JOB_ENDED_FIRST = "job_ended_first"
    WORK_STOPPING = "work_stopping"
    WORK_REQUEUED = "work_requeued"
    STORE_RESTORED = "store_restored"
    JOB_FOUND_RELEASED = "job_found_released"
    WORK_DONE = "work_done"
    WORK_FAILED = "work_failed"
    WORK_CANCELLED = "work_cancelled"
    OUTPUT_COLLECTED = "output_collected"
    OUTPUT_PRUNED = "output_pruned"
    OUTPUT_KEPT = "output_kept"
    NOTIFICATION_SENT = "notification_sent"
    NOTIFICATION_NOT_TAKEN = "notification_not_taken"
    NOTIFICATION_GIVEN_UP = "notification_given_up"
    NOTIFICATION_UNKNOWN = "notification_unknown"
    SWEEP_WAITS = "sweep_waits"
    POLICY_FAILED = "policy_failed"
    SWEEP_ADMITTED = "sweep_admitted"
    SWEEP_GROWN = "sweep_grown"
    SWEEP_SHRUNK = "sweep_shrunk"
    SWEEP_PREEMPTED = "sweep_preempted"
    SWEEP_SUSPENDED = "sweep_suspended"
    SWEEP_RESUMED = "sweep_resumed"
    LAUNCHER_LOST = "launcher_lost"
    LAUNCHER_WITHDRAWN = "launcher_withdrawn"
    BLACK_HOLE_EXCLUDED = "black_hole_excluded"
    BLACK_HOLE_TRUSTED = "black_hole_trusted"
    LAUNCHER_CLAIMED = "launcher_claimed"
    LAUNCHER_RELEASED = "launcher_released"
    LAUNCHER_STOPPING = "launcher_stopping"
    LEASE_REQUESTED = "lease_requested"
    LEASE_REFUSED = "lease_refused"
    LEASE_BOUND = "lease_bound"
    LEASE_ENDED = "lease_ended"
    LEASE_REVOKED = "lease_revoked"
    LEASE_OUT_OF_HOURS = "lease_out_of_hours"
    LEASE_NEEDED = "lease_needed"
    JOB_REVOKED = "job_revoked"
    JOB_SENT = "job_sent"
    JOB_TAKEN = "job_taken"
    CHANGE_SENT = "change_sent"
    ATTEMPT_SUBMITTED = "attempt_submitted"
    SUBMISSION_FAILED = "submission_failed"
    FILES_STAGED = "files_staged"
    ATTEMPT_FOUND = "attempt_found"
    ATTEMPT_RECALLED = "attempt_recalled"
    ATTEMPT_ALLOCATED = "attempt_allocated"
    ATTEMPT_QUEUED = "attempt_queued"
    ATTEMPT_AT_BARRIER = "attempt_at_barrier"
    ATTEMPT_RELEASED = "attempt_released"
    ATTEMPT_RUNNING = "attempt_running"
    ATTEMPT_SUSPENDED = "attempt_suspended"
    ATTEMPT_UNKNOWN = "attempt_unknown"
    ATTEMPT_ENDED = "attempt_ended"
    ATTEMPT_CLEANED_UP = "attempt_cleaned_up"
    COMPONENT_OMITTED = "component_omitted"
    CANDIDATE_QUEUED = "candidate_queued"
    CANDIDATE_WON = "candidate_won"
    CANDIDATE_LOST = "candidate_lost"
    COMPONENT_FILLED = "component_filled"
    COMPONENT_GIVEN_BACK = "component_given_back"
    COMPONENT_QUEUED_AGAIN = "component_queued_again"
    CLUSTER_EXCLUDED = "cluster_excluded"
    CANCEL_PENDING = "cancel_pending"
    CANCEL_COMPLETED = "cancel_completed"
    CANCEL_GIVEN_UP = "cancel_given_up"


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One line of the history of a job, flow, sweep or pilot, as `koala show` prints it.

    `kind`: a HistoryKind, or a word that this koalapy does not know, of a store of another one. `job`: the id, or the
    number of a pilot.
    """

    job: JobId
    at: Instant
    kind: str
    details: dict[str, Any] = field(default_factory=dict)
