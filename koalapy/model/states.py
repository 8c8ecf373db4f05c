"""The states of jobs, sweeps, attempts, pilots and leases, with all that affects these state machines.

Other code asks the tables. States have no order: jobs go backwards when they are requeued.
"""

from enum import StrEnum
from typing import Self


class JobState(StrEnum):
    """The states of work. Each kind has a table of its own: a sweep is never claiming, and a flow never waits."""

    BLOCKED = "blocked"
    WAITING = "waiting"
    HELD = "held"
    CLAIMING = "claiming"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    final: bool  # nothing follows
    queued: bool  # a job is in the wait queue, where the scheduler may look at it; a sweep waits to be admitted
    active: bool  # batch jobs of it may exist; a job is in the run list
    claiming: bool  # whether it is this very state; the same for `running` and `stopping`
    running: bool
    stopping: bool
    waits_for_release: bool  # it was not released in this try


_J = JobState
_ACTIVE = frozenset({_J.CLAIMING, _J.RUNNING, _J.STOPPING})
JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _J.BLOCKED: frozenset({_J.WAITING, _J.HELD, _J.FAILED, _J.CANCELLED}),  # it waits for other jobs
    _J.WAITING: frozenset({_J.HELD, _J.CLAIMING, _J.FAILED, _J.CANCELLED}),
    _J.HELD: frozenset({_J.WAITING, _J.BLOCKED, _J.FAILED, _J.CANCELLED}),
    _J.CLAIMING: frozenset({_J.RUNNING, _J.STOPPING}),
    _J.RUNNING: frozenset({_J.STOPPING, _J.DONE}),
    _J.STOPPING: frozenset({_J.WAITING, _J.HELD, _J.RUNNING, _J.DONE, _J.FAILED, _J.CANCELLED}),  # it ended first
    _J.DONE: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
}
SWEEP_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _J.BLOCKED: frozenset({_J.WAITING, _J.HELD, _J.FAILED, _J.CANCELLED}),
    _J.WAITING: frozenset({_J.HELD, _J.RUNNING, _J.CANCELLED}),  # it claims nothing: its Launchers come and go
    _J.HELD: frozenset({_J.WAITING, _J.BLOCKED, _J.FAILED, _J.CANCELLED}),
    _J.RUNNING: frozenset({_J.STOPPING}),
    _J.STOPPING: frozenset({_J.WAITING, _J.HELD, _J.DONE, _J.FAILED, _J.CANCELLED}),
    _J.DONE: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
}
FLOW_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _J.RUNNING: frozenset({_J.STOPPING, _J.DONE, _J.FAILED, _J.CANCELLED}),  # from its submission on
    _J.STOPPING: frozenset({_J.DONE, _J.FAILED, _J.CANCELLED}),
    _J.DONE: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
}
SENT_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _J.BLOCKED: frozenset({_J.WAITING, _J.HELD, _J.FAILED, _J.CANCELLED}),
    _J.WAITING: frozenset({_J.HELD, _J.CLAIMING, _J.CANCELLED}),
    _J.HELD: frozenset({_J.WAITING, _J.BLOCKED, _J.FAILED, _J.CANCELLED}),
    _J.CLAIMING: frozenset({_J.RUNNING, _J.STOPPING, _J.DONE, _J.FAILED}),  # it was sent
    _J.RUNNING: frozenset({_J.STOPPING, _J.DONE, _J.FAILED}),  # its site has it
    _J.STOPPING: frozenset({_J.DONE, _J.FAILED, _J.CANCELLED}),
    _J.DONE: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
}
for (
    _job_state,
    _next,
) in (
    JOB_TRANSITIONS.items()
):  # read at every event: an attribute costs a fifth of a property, and a third of naming a state
    _job_state.final = not _next
    _job_state.queued = _job_state is _J.WAITING
    _job_state.active = _job_state in _ACTIVE
    _job_state.claiming = _job_state is _J.CLAIMING
    _job_state.running = _job_state is _J.RUNNING
    _job_state.waits_for_release = _job_state in (_J.BLOCKED, _J.WAITING, _J.HELD, _J.CLAIMING)
    _job_state.stopping = _job_state is _J.STOPPING


class AttemptState(StrEnum):
    """The states of an attempt: one batch job on one cluster, from the claim to cleaned up."""

    SUBMITTING = "submitting"
    QUEUED = "queued"
    ALLOCATED = "allocated"  # its batch job has started
    AT_BARRIER = "at_barrier"
    RELEASED = "released"
    RUNNING = "running"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"
    ENDED = "ended"
    CLEANED_UP = "cleaned_up"  # nothing is left, and no late batch job can run the program

    released: bool  # its program may run
    ended: bool  # its program has ended, or will never start
    cleaned_up: bool  # whether it is this very state; the same for `at_barrier`
    at_barrier: bool

    def may_become(self, state: "AttemptState") -> bool:
        """Return whether an attempt in this state may go to the other one."""
        return state in ATTEMPT_TRANSITIONS[self]


_A = AttemptState
ATTEMPT_TRANSITIONS: dict[AttemptState, frozenset[AttemptState]] = {
    _A.SUBMITTING: frozenset({_A.QUEUED, _A.ALLOCATED, _A.AT_BARRIER, _A.ENDED}),
    _A.QUEUED: frozenset({_A.ALLOCATED, _A.AT_BARRIER, _A.ENDED}),
    _A.ALLOCATED: frozenset({_A.AT_BARRIER, _A.ENDED}),
    _A.AT_BARRIER: frozenset({_A.RELEASED, _A.ENDED}),
    _A.RELEASED: frozenset({_A.RUNNING, _A.SUSPENDED, _A.UNKNOWN, _A.ENDED}),
    _A.RUNNING: frozenset({_A.SUSPENDED, _A.UNKNOWN, _A.ENDED}),
    _A.SUSPENDED: frozenset({_A.RUNNING, _A.UNKNOWN, _A.ENDED}),
    _A.UNKNOWN: frozenset({_A.RELEASED, _A.RUNNING, _A.SUSPENDED, _A.ENDED}),
    _A.ENDED: frozenset({_A.CLEANED_UP}),
    _A.CLEANED_UP: frozenset(),
}
RELEASED_SINCE_BACKUP = frozenset({_A.SUBMITTING, _A.QUEUED, _A.ALLOCATED, _A.AT_BARRIER})
"""States in a restored store that may become released: the release was given after the backup."""
_RELEASED = frozenset({_A.RELEASED, _A.RUNNING, _A.SUSPENDED, _A.UNKNOWN})
for _attempt_state in AttemptState:
    _attempt_state.released = _attempt_state in _RELEASED
    _attempt_state.ended = _attempt_state in (_A.ENDED, _A.CLEANED_UP)
    _attempt_state.cleaned_up = _attempt_state is _A.CLEANED_UP
    _attempt_state.at_barrier = _attempt_state is _A.AT_BARRIER


class PilotState(StrEnum):
    """The states of a pilot."""

    BINDING = "binding"  # its job waits, or is in a batch queue
    BOUND = "bound"  # its program runs, so that it is a cluster
    DRAINING = "draining"  # nothing is placed there any more; it ends when nothing is left
    CLOSING = "closing"  # its batch job is being ended, or has ended; then its cluster leaves the grid
    ENDED = "ended"
    FAILED = "failed"  # it ended before its time, or never began

    is_cluster: bool  # it is a cluster of the grid, or joins it
    final: bool

    def may_become(self, state: "PilotState") -> bool:
        """Return whether a pilot in this state may go to the other one."""
        return state in PILOT_TRANSITIONS[self]


_P = PilotState
PILOT_TRANSITIONS: dict[PilotState, frozenset[PilotState]] = {
    _P.BINDING: frozenset({_P.BOUND, _P.CLOSING}),
    _P.BOUND: frozenset({_P.DRAINING, _P.CLOSING}),
    _P.DRAINING: frozenset({_P.BOUND, _P.CLOSING}),
    _P.CLOSING: frozenset({_P.ENDED, _P.FAILED}),
    _P.ENDED: frozenset(),
    _P.FAILED: frozenset(),
}
for _pilot_state, _next_states in PILOT_TRANSITIONS.items():
    _pilot_state.is_cluster = _pilot_state in (_P.BOUND, _P.DRAINING)
    _pilot_state.final = not _next_states


class Ending(StrEnum):
    """How an attempt ended: its program succeeded, it failed, or it was cancelled."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class LeaseState(StrEnum):
    """The states of a lease, or of the resource request for it, at one side of a link."""

    ASKED = "asked"  # the lender has not answered yet; at the lender: it has asked the next site, or has yet to decide
    BINDING = "binding"  # the lender's pilot does not run yet, or its nodes are examined
    BOUND = "bound"
    CLOSING = "closing"  # it was cancelled or returned, or is being ended by the lender
    ENDED = "ended"  # nothing runs on it for certain; its cluster leaves the borrower's grid
    GONE = "gone"  # final: it has no record any more

    asked: bool  # whether it is this very state; the same for `binding`, `bound`, `closing` and `ended`
    binding: bool
    bound: bool
    closing: bool
    ended: bool
    wanted: bool  # at the borrower: asked for, or had, and not given back
    granted: bool  # at the lender: a pilot or another site serves it, and it is not being ended


_L = LeaseState
LENT_TRANSITIONS: dict[LeaseState, frozenset[LeaseState]] = {
    _L.ASKED: frozenset({_L.BINDING, _L.BOUND, _L.CLOSING, _L.GONE}),  # bound at once if another site serves it
    _L.BINDING: frozenset({_L.BOUND, _L.CLOSING, _L.GONE}),
    _L.BOUND: frozenset({_L.CLOSING, _L.GONE}),
    _L.CLOSING: frozenset({_L.GONE}),
    _L.ENDED: frozenset(),  # what has ended at the lender has no record any more
    _L.GONE: frozenset(),
}
BORROWED_TRANSITIONS: dict[LeaseState, frozenset[LeaseState]] = {
    _L.ASKED: frozenset({_L.BOUND, _L.CLOSING, _L.ENDED, _L.GONE}),  # gone if it is rejected
    _L.BINDING: frozenset(),  # only the lender knows of its pilot
    _L.BOUND: frozenset({_L.CLOSING, _L.ENDED}),
    _L.CLOSING: frozenset({_L.ENDED, _L.GONE}),  # gone if a cancelled request is rejected
    _L.ENDED: frozenset({_L.GONE}),  # once its cluster has left the grid
    _L.GONE: frozenset(),
}
LEASE_TRANSITIONS = {True: LENT_TRANSITIONS, False: BORROWED_TRANSITIONS}
"""By `lent`: what follows each state at the lender, and at the borrower."""
for _lease_state in LeaseState:
    _lease_state.asked = _lease_state is _L.ASKED
    _lease_state.binding = _lease_state is _L.BINDING
    _lease_state.bound = _lease_state is _L.BOUND
    _lease_state.closing = _lease_state is _L.CLOSING
    _lease_state.ended = _lease_state is _L.ENDED
    _lease_state.wanted = _lease_state in (_L.ASKED, _L.BOUND)
    _lease_state.granted = _lease_state in (_L.BINDING, _L.BOUND)


class _Reported(StrEnum):
    """A word of a cluster's report. A word that koalapy does not know counts as none."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls("")


class WrapperPhase(_Reported):
    """The phase of an attempt, as its wrapper reports it. A report may skip phases."""

    NONE = ""
    STARTED = "started"  # its batch job runs
    AT_BARRIER = "at_barrier"
    RELEASED = "released"
    RUNNING = "running"
    ENDED = "ended"


class BatchState(_Reported):
    """The state of a batch job, as the batch system reports it."""

    NONE = ""
    QUEUED = "queued"
    HELD = "held"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDED = "ended"
    MISSING = "missing"  # it is not listed any more


class ReportedEnding(_Reported):
    """How an attempt or its batch job ended, as the wrapper or the batch system reports it; NONE: no such report."""

    NONE = ""
    EXITED = "exited"
    KILLED = "killed"
    LOST = "lost"
    WALLTIME = "walltime"
    MEMORY = "memory"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    LEFT_BARRIER = "left_barrier"
    VOID = "void"
    RESTARTED = "restarted"
    FAILED = "failed"  # it could not start
