"""Checks of a change before its commit: this koalapy and any database must be able to read what is written."""

from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator, core_schema

from koalapy.model.change import Change
from koalapy.store.contract import RecordInvalid

LARGEST = 1 << 53  # the largest number up to which JSON and every database keep all whole numbers apart
_LEAVES = ("cls", "serialization", "metadata", "default")  # parts of a schema that hold no schema


def refuse_invalid(change: Change) -> None:
    """Check the type of every field of every record, and the bounds of numbers and texts.

    Raises RecordInvalid if a value has another type than its field; nothing is converted. Raises it too for a whole
    number beyond 2^53, or a text with a NUL. A record that passes can be loaded again.
    """
    try:
        _VALIDATOR.validate_python((change,))
    except ValidationError as error:
        raise _invalid(change, error) from error


def _invalid(change: Change, error: ValidationError) -> RecordInvalid:
    """Return the error for a change.

    It quotes the deepest of several complaints: a value that fits no kind of command has one for each kind.
    """
    complaint = max(error.errors(include_url=False, include_context=False), key=lambda each: len(each["loc"]))
    part, *path = complaint["loc"][1:]
    record: Any = getattr(change, str(part))
    if path and isinstance(record, tuple):
        record = record[int(path.pop(0))]
    job = _job_of(record)
    where = f"{type(record).__name__} record" + ("" if job is None else f" of job {job}")
    field = ".".join(str(each) for each in path) or "value"
    return RecordInvalid(
        "record_invalid",
        f"A change was not written: in `{part}`, the {field} of the {where} is wrong ({complaint['msg']}).",
        "Report this as a mistake of koalapy. The store keeps what it had.",
    )


def _job_of(record: Any) -> object:
    """Return the id of the job that the record is about; None if it does not have one."""
    record = getattr(record, "command", record)
    for name in ("id", "job", "sweep"):
        if hasattr(record, name):
            found = getattr(record, name)
            return getattr(found, "job", found)  # an attempt's id has its job's
    return getattr(getattr(record, "attempt", record), "job", None)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a NUL character")
    return text


def _bounded(schema: Any) -> Any:
    """Return the schema with bounds for every number and text in it.

    It is treated as data, as pydantic_core documents it.
    """
    if isinstance(schema, list | tuple):
        return type(schema)(_bounded(each) for each in schema)
    if not isinstance(schema, dict):
        return schema
    bounded = {key: each if key in _LEAVES else _bounded(each) for key, each in schema.items()}
    match bounded.get("type"):
        case "int":
            return core_schema.int_schema(ge=-LARGEST, le=LARGEST, strict=True)
        case "float":
            return core_schema.float_schema(allow_inf_nan=False, strict=True)
        case "str":
            return core_schema.no_info_after_validator_function(_without_nul, core_schema.str_schema(strict=True))
        case "named-tuple" | "call":  # any tuple of its length would do; the latter until pydantic 2.13
            kind, name = bounded.get("cls") or bounded["function"], bounded.pop("ref", None)
            return core_schema.chain_schema([core_schema.is_instance_schema(kind), bounded], ref=name)
    return bounded


# A dataclass of the standard library takes its configuration from what holds it: here a tuple of one.
_CONFIG = ConfigDict(strict=True, revalidate_instances="always")
_ADAPTER: TypeAdapter[Any] = TypeAdapter(tuple[Change], config=_CONFIG)
_VALIDATOR = SchemaValidator(_bounded(_ADAPTER.core_schema))
