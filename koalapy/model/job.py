"""A job as koalapy keeps it: the request, its position in the wait queue, and its run list of components."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from koalapy.model.cluster import Node
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen, replacer
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import (
    ATTEMPT_TRANSITIONS,
    JOB_TRANSITIONS,
    RELEASED_SINCE_BACKUP,
    AttemptState,
    ComponentState,
    JobState,
)
from koalapy.model.sweep import Pilot, Runner, replace_runner
from koalapy.model.units import Instant


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One element of a run list: the state of a component's last attempt (DCS, section 3.5).

    `attempt` counts from 1; 0 before the first. All instants are of koalad's clock. `cancelling`: its cluster was asked
    to end it. `began_at`: when its batch job began, as its wrapper reports. `cleaned_up`: nothing of this attempt is
    left in its cluster's batch system, or a pending cancel records that something may be. `stuck`: why its batch system
    does not end it. `silent_since`: since when its wrapper has given no sign, though it is not known to have ended.
    """

    index: int
    request: ComponentRequest
    state: ComponentState = ComponentState.WAITING
    cluster: str | None = None
    attempt: int = 0
    batch_id: str = ""
    nodes: tuple[Node, ...] = ()
    exit_status: int | None = None
    queued_at: Instant | None = None
    allocated_at: Instant | None = None
    began_at: Instant | None = None
    at_barrier_at: Instant | None = None
    released_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    pending_reason: str = ""
    unknown_since: Instant | None = None
    reason: Reason | None = None
    cancelling: bool = False
    cleaned_up: bool = True
    stuck: Reason | None = None
    silent_since: Instant | None = None

    def replace(self, **changes: Any) -> "Component":
        """Return the component with these fields changed.

        Raises ValueError for a transition of its attempt that the table does not have.
        """
        after = _replace_component(self, changes)
        if not _DECIDE_STATE.isdisjoint(changes):
            before, now = self.attempt_state, after.attempt_state
            if before is not now and before is not None and (now is None or now not in ATTEMPT_TRANSITIONS[before]):
                raise ValueError(f"attempt {self.attempt} of component {self.index} cannot go from {before} to {now}")
        return after

    def clean_up(self, now: Instant) -> "Component":
        """Return the component with its attempt cleaned up; one that has not ended ends as cancelled."""
        if self.state.final:
            return self.replace(cleaned_up=True)
        ended = self.replace(state=ComponentState.CANCELLED, ended_at=self.ended_at or now)
        return ended.replace(cleaned_up=True)

    def found_released(self, released_at: Instant) -> "Component":
        """Return the component as released, for a store that was restored from a backup and does not know it.

        Raises ValueError for an attempt that cannot have been released since.
        """
        if self.attempt_state not in RELEASED_SINCE_BACKUP:
            raise ValueError(f"attempt {self.attempt} of component {self.index} is {self.attempt_state}")
        return _replace_component(self, {"state": ComponentState.RELEASED, "released_at": released_at})

    @property
    def attempt_state(self) -> AttemptState | None:
        """State of the present attempt; None if there is none."""
        if self.cluster is None:
            return None
        state = self.state.attempt
        if state is AttemptState.ENDED:
            return AttemptState.CLEANED_UP if self.cleaned_up else state
        if self.allocated_at is not None and (state is AttemptState.SUBMITTING or state is AttemptState.QUEUED):
            return AttemptState.ALLOCATED
        return state

    @property
    def is_released(self) -> bool:
        """Whether its program may run: the attempt was released, and has not ended."""
        state = self.state.attempt
        return state is not None and state.released

    @property
    def processors(self) -> int:
        return self.request.processors

    @property
    def is_silent(self) -> bool:
        """Whether its wrapper has given no sign for a while, and it is not known to have ended."""
        return self.silent_since is not None and not self.cleaned_up and not self.state.final

    @property
    def missing(self) -> bool:
        """Whether this try does without it: an optional component that did not fit or did not come."""
        return self.state is ComponentState.CANCELLED and self.request.optional


class Outcome(StrEnum):
    """The outcome of a stopping job, once nothing of it is left (DCS, sections 3.2 and 3.5)."""

    SUBMISSION_FAILURE = "submission_failure"  # counted, to the tail
    COMPLETION_FAILURE = "completion_failure"  # counted, submission count back to zero, to the tail
    GIVE_BACK = "give_back"  # uncounted: the guard broke a cycle, or only one cluster is at fault
    HOLD = "hold"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ends(self) -> bool:
        """Whether this outcome alone makes the job final; a bound can do so for any other."""
        return self in (Outcome.DONE, Outcome.FAILED, Outcome.CANCELLED)


class OutputHome(StrEnum):
    """Whether the output of a job's processes was brought home (see Request.keep_output)."""

    NONE = "none"  # it is not to be, or not yet
    COMING = "coming"  # the job is over, and its clusters still have what is only there
    HOME = "home"
    LOST = "lost"  # not all of it could be brought, for good


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job. `position` orders the wait queue within a priority; a job sent to the tail gets a new one.

    `held`: processor-microseconds that were allocated, but waited at a barrier. `excluded`: (cluster, instant) until
    which the cluster is excluded for this job. `collecting`: its components have ended, and staged-out files are on
    their way. `patient`: it went into batch queues and has no claim time-out. `forced`: its user does not want to wait
    for clusters out of reach. `runner`: set for a sweep, which has no components of its own. `pilot`: set for a
    Launcher of a sweep.
    """

    id: JobId
    owner: str
    request: Request
    state: JobState
    position: int
    submitted_at: Instant
    components: tuple[Component, ...]
    started_at: Instant | None = None
    finished_at: Instant | None = None
    claimed_at: Instant | None = None
    waiting_since: Instant | None = None
    submission_failures: int = 0
    completion_failures: int = 0
    overtaken: int = 0
    held: int = 0
    reason: Reason | None = None
    outcome: Outcome | None = None
    excluded: tuple[tuple[str, Instant], ...] = ()
    collecting: bool = False
    patient: bool = False
    forced: bool = False
    key: str = ""
    runner: Runner | None = None
    pilot: Pilot | None = None
    output_home: OutputHome = OutputHome.NONE

    def transition(self, state: JobState, **changes: Any) -> "Job":
        """Return the job in another state. In a final state, no parameter of it is out any more.

        Raises ValueError for a transition that the table does not have.
        """
        if state not in JOB_TRANSITIONS[self.state]:
            raise ValueError(f"job {self.id} cannot go from {self.state} to {state}")
        if state.final and self.runner is not None:
            changes = {"runner": replace_runner(self.runner, {"out": ()}), **changes}
        return _replace_job(self, {"state": state, **changes})

    def replace(self, **changes: Any) -> "Job":
        """Return the job with these fields changed, except its state: see `transition`."""
        return _replace_job(self, changes)

    def change_component(self, index: int, **changes: Any) -> "Job":
        """Return the job with these fields of a component changed. Raises ValueError as Component.replace does."""
        return self.with_component(self.components[index].replace(**changes))

    def with_component(self, component: Component) -> "Job":
        """Return the job with this component in place of the one of the same index."""
        components = list(self.components)
        components[component.index] = component
        return _replace_job(self, {"components": tuple(components)})

    def with_runner(self, runner: Runner) -> "Job":
        return _replace_job(self, {"runner": runner})

    def attempt_of(self, component: Component) -> AttemptId:
        return AttemptId(self.id, component.index, component.attempt)

    @property
    def present(self) -> tuple[Component, ...]:
        """The components of this try: all but the optional ones that are missing."""
        for each in self.components:
            if each.missing:
                return tuple([component for component in self.components if not component.missing])
        return self.components

    @property
    def live(self) -> tuple[Component, ...]:
        return tuple([component for component in self.components if not component.cleaned_up])


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """A pending cancel: a batch job that could not be ended yet, and will be when its cluster allows it.

    `past`: its job is beyond this try, so nobody will ask for the attempt's output. `stuck`: set if the cluster is in
    reach; it says why the batch system does not end the batch job.
    """

    attempt: AttemptId
    cluster: str
    batch_id: str
    since: Instant
    past: bool = False
    stuck: Reason | None = None


OUTPUT_PRUNED = "output_pruned"  # the kind of the line that says that a job has no directories any more


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One line of a job's history, as `koala show` prints it."""

    job: JobId
    at: Instant
    kind: str
    details: dict[str, Any] = field(default_factory=dict)


@fast_frozen
@dataclass(frozen=True, slots=True)
class Counters:
    """The engine's counters: the next job's id, the next position in the wait queue, the next Launcher's id.

    Launchers have ids far above those of the jobs that users submit, whose numbers thereby have no gaps. Jobs of ids
    below `doubtful_below` are in a store that was restored from a backup, and may have gone on since.
    """

    next_job: int = 1
    next_position: int = 1
    doubtful_below: int = 0
    next_launcher: int = FIRST_LAUNCHER


_DECIDE_STATE = frozenset({"state", "cleaned_up", "allocated_at"})
_replace_job, _replace_component = replacer(Job), replacer(Component)
replace_counters = replacer(Counters)
