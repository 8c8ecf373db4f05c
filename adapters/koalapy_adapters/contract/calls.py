"""A call of the KCM's BatchSystem and its answer, as plain JSON values: what travels, and what is recorded.

Runs on the head node too, hence on Python 3.6.
"""

from typing import Any, Callable, Dict, List

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, SubmitDoubt, failure_of, guarded
from koalapy_adapters.kcm.execution.subprocess_runner import Handle

Json = Dict[str, Any]


def answer(batch: BatchSystem, name: str, arguments: List[Any]) -> Json:
    """{"value": …}, {"error": Failure} or, of a submit, {"doubt": Failure}. Anything else that is raised is a bug."""
    try:
        return {"value": plain(guarded(lambda: _CALLS[name](batch, *arguments)))}
    except SubmitDoubt as doubt:
        return {"doubt": failure_of(doubt.error)}
    except BatchError as error:
        return {"error": failure_of(error)}


def plain(value: Any) -> Any:
    """Named tuples as objects, all the way down."""
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
