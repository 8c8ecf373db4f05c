"""The KCM's machine for tests: events to give it, machines in a state, and the messages among its actions."""

from typing import Any

from koalapy_adapters.batch.protocol import Capacity, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.kcm import Event
from koalapy_adapters.messages.koalad import ClusterConfig, Hello, Submit

SECOND = do.SECOND
TAG = "kabcde000000001"
T0 = 1_000 * SECOND
NO_SUCH_QUEUE = failure("no_such_queue", "request", "No such queue.")
UNREACHABLE = failure("batch_system_unreachable", "transient", "No answer.")


def machine(*known: list[str], poll: float = 10.0, floor: float = 1.0, fingerprints: bool = False) -> Machine:
    hello = Hello(1, "0", 7, "abcde", T0, {}, list(known))
    config = ClusterConfig("here", "local", poll=poll, floor=floor, grace=5.0, orphan_timeout=600.0)
    return Machine(T0, hello, config, fingerprints)


def submit(id: int = 1, doubt: bool = False) -> Submit:
    return Submit(id, TAG, {"processors": 2}, {"grace": 2.0}, [], doubt)


def to_koalad(actions: list[Any]) -> list[Any]:
    """Return the messages among these actions that go to koalad, events without their envelopes."""
    messages = [action.message for action in actions if isinstance(action, do.Send)]
    return [from_json(message.body) if isinstance(message, Event) else message for message in messages]


def to_wrapper(actions: list[Any]) -> list[Any]:
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
    """A machine with TAG in the batch system as job 41."""
    kcm = machine()
    kcm.handle(T0, measured(T0))
    kcm.handle(T0, submit())
    kcm.handle(T0, do.Prepared(TAG))
    kcm.handle(T0, do.JobSubmitted(TAG, "41"))
    return kcm


def running_machine() -> Machine:
    """A machine with TAG's wrapper connected and at its barrier."""
    kcm = queued_machine()
    kcm.handle(T0, do.WrapperConnected(TAG, T0 - 50))
    kcm.handle(T0, do.WrapperReported(TAG, report("at_barrier", at_barrier_at=T0 - 60)))
    return kcm


def report(phase: str, **more: Any) -> dict[str, Any]:
    return {"tag": TAG, "batch_id": "41", "phase": phase, "nodes": [["n1", "10.0.0.1", 2]], **more}


def second_start(kcm: Machine) -> list[Any]:
    """Let a second wrapper of the job connect, report its restart and leave. Returns the messages to koalad."""
    kcm.handle(T0, do.WrapperConnected(TAG, T0))
    reported = kcm.handle(T0, do.WrapperReported(TAG, report("ended", ending="restarted", nodes=[])))
    kcm.handle(T0, do.WrapperDisconnected(TAG, True))
    return to_koalad(reported)
