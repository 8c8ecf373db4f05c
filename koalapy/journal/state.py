"""A copy of an engine: its containers and the objects of the deciding packages are new, frozen values are shared.

All values that the engine holds are frozen, except its rows of jobs and attempts. The cost of a copy therefore grows
with the dictionaries, lists and rows.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.fast_frozen import is_row
from koalapy.model.identity import InstanceId
from koalapy.model.settings import Settings
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies

ROOMS = (
    "engine",
    "core",
    "information",
    "broker",
    "scheduler",
    "attempts",
    "coallocation",
    "scavenging",
    "pilots",
    "model",
)

_Memo = dict[int, Any]
_Copy = Callable[[Any, _Memo], Any]


def copy_of(engine: Engine) -> Engine:
    """Return an engine in the same state, which decides the same from now on. Neither changes the other."""
    if Engine not in _NAMES:
        _copy(_some_engine(), {})
    copied: Engine = _copy(engine, {})
    return copied


def in_rooms(kind: type, rooms: tuple[str, ...] = ROOMS) -> bool:
    """Return whether a class or function is defined in one of these packages (`rooms`) of koalapy."""
    parts = kind.__module__.split(".")
    return parts[0] == "koalapy" and len(parts) > 1 and parts[1] in rooms


def is_frozen(kind: type) -> bool:
    """Return whether values of a class never change: it is a frozen dataclass, and not a row."""
    return is_dataclass(kind) and kind.__dataclass_params__.frozen and not is_row(kind)  # type: ignore[attr-defined]


def attributes(value: Any) -> dict[str, Any]:
    """Return all attributes of an object of the deciding packages, by name."""
    names = field_names(type(value))
    if names is not None:
        return {each: getattr(value, each) for each in names}
    found: dict[str, Any] = vars(value)
    return found


def field_names(kind: Any) -> list[str] | None:
    """Return the names of all attributes of a dataclass or row; None for a class of which an object may have others.

    A Step is one of these: it is a Change and has further attributes.
    """
    if "__dataclass_fields__" in vars(kind) or is_row(kind):
        return [each.name for each in fields(kind)]
    return None


def _copy(value: Any, memo: _Memo) -> Any:
    copy = _copying(type(value))
    if copy is None:
        return value
    known = memo.get(id(value))
    return copy(value, memo) if known is None else known


_COPYING: dict[type, _Copy | None] = {}


def _copying(kind: type) -> _Copy | None:
    """Return the function that copies values of this class; None: they are shared."""
    try:
        return _COPYING[kind]
    except KeyError:
        _COPYING[kind] = found = _find_copying(kind)
        return found


def _find_copying(kind: type) -> _Copy | None:
    if issubclass(kind, dict):
        return _copy_dict
    if issubclass(kind, list):
        return _copy_list
    if issubclass(kind, set):
        return _copy_set
    if issubclass(kind, deque):
        return _copy_deque
    if kind is tuple:
        return _copy_tuple  # a named tuple is shared, since none may hold a value that changes
    if in_rooms(kind) and not issubclass(kind, str | int | tuple) and not is_frozen(kind):
        return _copy_object
    return None


def _copy_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    memo[id(value)] = made = value.copy()
    if any(map(_copying, set(map(type, value.values())))):
        for key, each in value.items():
            made[key] = _copy(each, memo)
    return made


def _copy_list(value: list[Any], memo: _Memo) -> list[Any]:
    memo[id(value)] = made = value.copy()
    if any(map(_copying, set(map(type, value)))):
        made[:] = [_copy(each, memo) for each in value]
    return made


def _copy_set(value: set[Any], memo: _Memo) -> set[Any]:
    memo[id(value)] = made = value.copy()
    return made


def _copy_deque(value: deque[Any], memo: _Memo) -> deque[Any]:
    memo[id(value)] = made = deque([_copy(each, memo) for each in value], value.maxlen)
    return made


def _copy_tuple(value: tuple[Any, ...], memo: _Memo) -> tuple[Any, ...]:
    """Copy a tuple; return the tuple itself if nothing in it can change."""
    if not any(map(_copying, map(type, value))):
        return value
    made = tuple([_copy(each, memo) for each in value])
    memo[id(value)] = made = made if any(new is not old for new, old in zip(made, value, strict=True)) else value
    return made


def _copy_object(value: Any, memo: _Memo) -> Any:
    memo[id(value)] = made = object.__new__(type(value))
    for name in _names(value):
        setattr(made, name, _copy(getattr(value, name), memo))
    return made


# Python 3.11 reads the attributes of an object more slowly after its `__dict__` was read. It is never read for
# an engine at work: the attributes of each class are taken from the first object of it in another engine.
_NAMES: dict[type, tuple[str, ...]] = {}


def _names(value: Any) -> tuple[str, ...]:
    kind = type(value)
    if kind not in _NAMES:
        _NAMES[kind] = tuple(attributes(value))
    return _NAMES[kind]


def _some_engine() -> Engine:
    settings = Settings(clusters=(ClusterSettings(name="any", batch="any"),))
    return Engine(settings, Policies(worst_fit, fpfs), Snapshot(instance=InstanceId("any00")))
