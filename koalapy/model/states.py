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

    final: bool  # nothing follows
    queued: bool  # in the wait queue, where the scheduler may look at it
    active: bool  # in the run list: batch jobs of it may exist


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
for _job_state, _next in JOB_TRANSITIONS.items():  # asked with every event: an attribute costs a fifth of a property
    _job_state.final = not _next
    _job_state.queued = _job_state is _J.WAITING
    _job_state.active = _job_state in _ACTIVE


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

    facts: "ComponentFacts"
    final: bool  # this attempt of the component is over
    live: bool  # a batch job of it may exist


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
for _component_state, _facts in COMPONENT_FACTS.items():
    _component_state.facts = _facts
    _component_state.final, _component_state.live = _facts.over, _facts.live
