"""Records as JSON texts, and back: work, attempts, commands, results, observations and details of history.

The JSON has every field in the order of its declaration, so equal records are equal texts. It is ASCII: an argument
whose bytes are no UTF-8 (surrogate escapes) comes back as it was. A record that lacks a field gets the field's default,
so records of older versions load. A field that this version does not know is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from koalapy.model.attempt import Attempt
from koalapy.model.commands import Command
from koalapy.model.job import Counters, Job, without_attempts
from koalapy.model.learned import Learned
from koalapy.model.lease import BorrowedLease, Lease, LentLease
from koalapy.model.neighbour import Neighbour
from koalapy.model.parameters import ResultBatch
from koalapy.model.pilot import Pilot
from koalapy.model.work import KIND_OF, KINDS, Work
from koalapy.store.contract import RecordUnreadable, StoreConflict

T = TypeVar("T")


def dump_work(work: Work) -> tuple[str, str]:
    """Return the name of the kind of work, and its own fields as JSON, those of a job without its attempts."""
    kind = KIND_OF[type(work)].name
    return kind, _WORK[kind].dump(without_attempts(work) if isinstance(work, Job) else work)


def load_work(kind: str, text: str) -> Work:
    """Return the work of its kind's name and a text. Raises RecordUnreadable, as all functions that load do."""
    if kind not in _WORK:
        raise RecordUnreadable("work", f"its kind {kind} is not known")
    work: Work = _WORK[kind].load(text)
    return work


def dump_attempt(attempt: Attempt) -> str:
    return _ATTEMPT.dump(attempt)


def load_attempt(text: str) -> Attempt:
    return _ATTEMPT.load(text)


def dump_command(command: Command) -> tuple[str, str]:
    """Return the name of the command's class, and its fields as JSON."""
    kind = type(command).__name__
    return kind, _COMMANDS[kind].dump(command)


def load_command(kind: str, text: str) -> Command:
    """Return the command of a class's name and its fields. Raises RecordUnreadable if either cannot be understood."""
    if kind not in _COMMANDS:
        raise RecordUnreadable("command", f"{kind} is not known")
    command: Command = _COMMANDS[kind].load(text)
    return command


def load_counters(values: Mapping[str, int]) -> Counters:
    return _COUNTERS.build(values)


def dump_results(batch: ResultBatch) -> str:
    """Return all of the batch as JSON. Its origin stands in its row once more, for queries."""
    return _RESULTS.dump(batch)


def load_results(text: str) -> ResultBatch:
    return _RESULTS.load(text)


def dump_learned(learned: Learned) -> str:
    return _LEARNED.dump(learned)


def load_learned(text: str) -> Learned:
    return _LEARNED.load(text)


def dump_pilot(pilot: Pilot) -> str:
    return _PILOT.dump(pilot)


def load_pilot(text: str) -> Pilot:
    """Raises RecordUnreadable."""
    return _PILOT.load(text)


def dump_neighbour(neighbour: Neighbour) -> str:
    return _NEIGHBOUR.dump(neighbour)


def load_neighbour(text: str) -> Neighbour:
    return _NEIGHBOUR.load(text)


def dump_lease(lease: Lease) -> str:
    return _LENT_LEASE.dump(lease) if isinstance(lease, LentLease) else _BORROWED_LEASE.dump(lease)


def load_lease(lent: bool, text: str) -> Lease:
    return _LENT_LEASE.load(text) if lent else _BORROWED_LEASE.load(text)


def dump_details(details: Mapping[str, Any]) -> str:
    """Return as JSON all that has a form in it, including dataclasses and tuples. Raises StoreConflict for the rest."""
    return _text("history", details)


def load_details(text: str) -> dict[str, Any]:
    """Return the details of a line of history. Raises RecordUnreadable if they are not a mapping in JSON."""
    details = _parsed("history", text)
    if not isinstance(details, dict):
        raise RecordUnreadable("history", "its details are not a mapping")
    return details


class _Form(Generic[T]):
    """The written form of one type, prepared once: to build a schema costs a thousand times what its use does."""

    def __init__(self, kind: type[T]) -> None:
        # A dataclass of the standard library takes its configuration from what holds it: here a tuple of one.
        self._adapter: TypeAdapter[Any] = TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]
        self._name = kind.__name__

    def dump(self, value: T) -> str:
        return _text(self._name, self._adapter.dump_python((value,), mode="json")[0])

    def load(self, text: str) -> T:
        return self.build(_parsed(self._name, text))

    def build(self, plain: object) -> T:
        try:
            record: T = self._adapter.validate_python((plain,))[0]
        except ValidationError as error:
            raise RecordUnreadable(self._name, _complaint(error)) from error
        return record


def _text(name: str, value: object) -> str:
    """Return the value as JSON. Raises StoreConflict. Pydantic's own writer would refuse surrogate escapes."""
    try:
        return _WRITER.encode(value)
    except (ValueError, TypeError) as error:
        raise StoreConflict(
            "record_unwritable", f"A {name} record cannot be written: {error}.", "Report this as a mistake of koalapy."
        ) from error


def _fields(value: object) -> dict[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordUnreadable(name, str(error)) from error


def _complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'][1:])}: {first['msg']}"


_WRITER = json.JSONEncoder(default=_fields, separators=(",", ":"), allow_nan=False)
_WORK: dict[str, _Form[Any]] = {each.name: _Form(each.value) for each in KINDS}
_ATTEMPT = _Form(Attempt)
_COUNTERS = _Form(Counters)
_RESULTS = _Form(ResultBatch)
_LEARNED = _Form(Learned)
_NEIGHBOUR = _Form(Neighbour)
_LENT_LEASE, _BORROWED_LEASE = _Form(LentLease), _Form(BorrowedLease)
_PILOT = _Form(Pilot)
_COMMANDS: dict[str, _Form[Any]] = {kind.__name__: _Form(kind) for kind in get_args(Command)}
