"""A call of the KCM's BatchSystem and its answer, as plain JSON values, which are sent and recorded.

This runs on the head node too, hence on Python 3.6.
"""

from typing import Any, Callable, Dict, List

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, SubmitDoubt, failure_of, guarded
from koalapy_adapters.kcm.execution.subprocess_runner import Handle

Json = Dict[str, Any]


def answer(batch: BatchSystem, name: str, arguments: List[Any]) -> Json:
    """Call a method of BatchSystem. Returns {"value": …}, {"error": Failure} or, for a submit, {"doubt": Failure}.

    Another exception than BatchError and SubmitDoubt is a bug and leaves this function.
    """
    try:
        return {"value": plain(guarded(lambda: _CALLS[name](batch, *arguments)))}
    except SubmitDoubt as doubt:
        return {"doubt": failure_of(doubt.error)}
    except BatchError as error:
        return {"error": failure_of(error)}


def plain(value: Any) -> Any:
    """Convert named tuples to objects and sequences to lists, recursively."""
    if hasattr(value, "_asdict"):
        return {name: plain(field) for name, field in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain(field) for name, field in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def _submit(batch: BatchSystem, job: Json, path: str) -> str:
    return batch.submit(BatchJob(**job), path, Handle())


_CALLS: Dict[str, Callable[..., Any]] = {
    "describe": BatchSystem.describe,
    "submit": _submit,
    "look": BatchSystem.look,
    "check": BatchSystem.check,
    "cancel": BatchSystem.cancel,
    "hold": BatchSystem.hold,
    "release": BatchSystem.release,
    "capacity": BatchSystem.capacity,
    "queue_fingerprint": BatchSystem.queue_fingerprint,
}
