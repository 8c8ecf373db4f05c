"""The states of jobs and components: everything that affects these state machines stands in this file.

Nobody compares states elsewhere; they ask the tables. States have no order: jobs go backwards when they are requeued.
"""

from enum import StrEnum
from typing import NamedTuple


class JobState(StrEnum):
    WAITING = "waiting"
    HELD = "held"
    CLAIMING = "claiming"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Nothing follows."""
        return not JOB_TRANSITIONS[self]

    @property
    def queued(self) -> bool:
        """In the wait queue, where the scheduler may look at it."""
        return self is JobState.WAITING

    @property
    def active(self) -> bool:
        """In the run list: batch jobs of it may exist."""
        return self in _ACTIVE


_J = JobState
_ACTIVE = frozenset({_J.CLAIMING, _J.RUNNING, _J.STOPPING})
JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _J.WAITING: frozenset({_J.HELD, _J.CLAIMING, _J.RUNNING, _J.FAILED, _J.CANCELLED}),  # a sweep claims nothing
    _J.HELD: frozenset({_J.WAITING, _J.FAILED, _J.CANCELLED}),
    _J.CLAIMING: frozenset({_J.RUNNING, _J.STOPPING}),
    _J.RUNNING: frozenset({_J.STOPPING, _J.DONE}),
    _J.STOPPING: frozenset({_J.WAITING, _J.HELD, _J.DONE, _J.FAILED, _J.CANCELLED}),
    _J.DONE: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
}


class ComponentState(StrEnum):
    WAITING = "waiting"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    AT_BARRIER = "at_barrier"
    RELEASED = "released"
    RUNNING = "running"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def facts(self) -> "ComponentFacts":
        return COMPONENT_FACTS[self]

    @property
    def final(self) -> bool:
        """This attempt of the component is over."""
        return self.facts.over

    @property
    def live(self) -> bool:
        """A batch job of it may exist."""
        return self.facts.live


class ComponentFacts(NamedTuple):
    live: bool  # a batch job may exist in its cluster
    released: bool  # its program may have started
    over: bool  # the attempt has ended


_C = ComponentState
COMPONENT_FACTS: dict[ComponentState, ComponentFacts] = {
    _C.WAITING: ComponentFacts(live=False, released=False, over=False),
    _C.SUBMITTING: ComponentFacts(live=True, released=False, over=False),
    _C.QUEUED: ComponentFacts(live=True, released=False, over=False),
    _C.AT_BARRIER: ComponentFacts(live=True, released=False, over=False),
    _C.RELEASED: ComponentFacts(live=True, released=True, over=False),
    _C.RUNNING: ComponentFacts(live=True, released=True, over=False),
    _C.SUSPENDED: ComponentFacts(live=True, released=True, over=False),
    _C.UNKNOWN: ComponentFacts(live=True, released=True, over=False),
    _C.DONE: ComponentFacts(live=False, released=True, over=True),
    _C.FAILED: ComponentFacts(live=False, released=True, over=True),
    _C.CANCELLED: ComponentFacts(live=False, released=False, over=True),
}
