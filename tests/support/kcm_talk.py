"""How tests speak with the KCM's machine: events to hand it, and what its actions come to."""

from typing import Any

from koalapy_adapters.batch.protocol import Capacity, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import (
    ClusterConfig,
    Event,
    Hello,
    Submit,
    from_json,
)

SECOND = do.SECOND
TAG = "kabcde000000001"
T0 = 1_000 * SECOND
NO = failure("no_such_queue", "request", "No such queue.")
LATER = failure("batch_system_unreachable", "transient", "No answer.")


def machine(*known: list[str], poll: float = 10.0, floor: float = 1.0, fingerprints: bool = False) -> Machine:
    hello = Hello(1, "0", 7, "abcde", T0, {}, list(known))
    config = ClusterConfig("here", "local", poll=poll, floor=floor, grace=5.0, orphan_timeout=600.0)
    return Machine(T0, hello, config, fingerprints)


def submit(id: int = 1, doubt: bool = False) -> Submit:
    return Submit(id, TAG, {"processors": 2}, {"grace": 2.0}, [], doubt)


def said(actions: list[Any]) -> list[Any]:
    """What goes to koalad, events unwrapped."""
    messages = [action.message for action in actions if isinstance(action, do.Send)]
    return [from_json(message.body) if isinstance(message, Event) else message for message in messages]


def told(actions: list[Any]) -> list[Any]:
    return [action.message for action in actions if isinstance(action, do.SendToWrapper)]


def operations(actions: list[Any]) -> list[type]:
    return [type(action) for action in actions if not isinstance(action, (do.Send, do.SendToWrapper))]


def capacity(*statuses: JobStatus) -> Capacity:
    return Capacity(4, 2, 2, 0, 0, [], [], [[2, 1]], {status.batch_id: status for status in statuses})


def measured(at: int, *statuses: JobStatus, cost: int = 0) -> do.CapacityMeasured:
    return do.CapacityMeasured(at, capacity(*statuses), None, cost)


def listed(state: str, batch_id: str = "41") -> JobStatus:
    return JobStatus(batch_id, TAG, state)


def queued_machine() -> Machine:
    """TAG is in the batch system as job 41."""
    kcm = machine()
    kcm.handle(T0, measured(T0))
    kcm.handle(T0, submit())
    kcm.handle(T0, do.Prepared(TAG))
    kcm.handle(T0, do.JobSubmitted(TAG, "41"))
    return kcm


def running_machine() -> Machine:
    """TAG's wrapper is connected and at its barrier."""
    kcm = queued_machine()
    kcm.handle(T0, do.WrapperConnected(TAG, T0 - 50))
    kcm.handle(T0, do.WrapperReported(TAG, report("at_barrier", at_barrier_at=T0 - 60)))
    return kcm


def report(phase: str, **more: Any) -> dict[str, Any]:
    return {"tag": TAG, "batch_id": "41", "phase": phase, "nodes": [["n1", "10.0.0.1", 2]], **more}


def second_start(kcm: Machine) -> list[Any]:
    """The batch system has started the job again: that wrapper comes, says so, and leaves. What is told of it."""
    kcm.handle(T0, do.WrapperConnected(TAG, T0))
    told = said(kcm.handle(T0, do.WrapperReported(TAG, report("ended", ending="restarted", nodes=[]))))
    kcm.handle(T0, do.WrapperDisconnected(TAG, True))
    return told
