"""Frozen dataclasses with slots that are made fast, and copied fast with changes.

A frozen dataclass sets each of its fields through `object.__setattr__`, at ten times the cost of an assignment. Here a
value is a draft while it is filled: its class is a subclass without the guard. Such values are used where thousands of
events a second are handled. Nothing is checked, so their classes must have no `__post_init__` and no subclasses.

A *row* is such a draft that stays one: its owner changes it in place, and hands out frozen copies of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")
_ROWS: set[type] = set()

_COPY = """
def copy(value):
    draft = new(kind)
{assignments}
    return draft
"""
_REPLACE = """
def replace(value, changes):
    draft = new(kind)
{assignments}
    try:
        for name, content in changes.items():
            setattr(draft, name, content)
    except AttributeError as error:
        raise TypeError(final.__name__ + " has no field " + name) from error
    draft.__class__ = final
    return draft
"""
_INIT = """
def __init__(_self{parameters}):
    _set(_self, "__class__", _draft)
{assignments}
    _self.__class__ = _kind
"""


def fast_frozen(kind: type[T]) -> type[T]:
    """Decorate a frozen dataclass with slots, so that its `__init__` does the same in a third of the time."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_draft": _draft_of(kind), "_kind": kind}
    parameters, assignments = "", []
    keywords = False
    for field in _fields(kind):
        default, value = _default(field, known)
        parameters += ", *" if field.kw_only and not keywords else ""
        keywords |= bool(field.kw_only)
        parameters += f", {field.name}{default}"
        assignments.append(f"    _self.{field.name} = {value}")
    init = _made(_INIT, "__init__", known, parameters=parameters, assignments="\n".join(assignments))
    init.__qualname__, init.__module__ = f"{kind.__qualname__}.__init__", kind.__module__
    kind.__init__ = init  # type: ignore[method-assign]
    return kind


def _default(field: Field[Any], known: dict[str, Any]) -> tuple[str, str]:
    """Return the text of a parameter's default, and of the value that the field is set to."""
    name = field.name
    if field.default_factory is not MISSING:
        known[f"_make_{name}"], known[f"_none_{name}"] = field.default_factory, MISSING
        return f" = _none_{name}", f"_make_{name}() if {name} is _none_{name} else {name}"
    if field.default is MISSING:
        return "", name
    known[f"_default_{name}"] = field.default
    return f" = _default_{name}", name


def replacer(kind: type[T]) -> Callable[[T, Mapping[str, Any]], T]:
    """Return a function (value, changes) -> value, which is `dataclasses.replace` in a tenth of its time.

    That function raises TypeError for a name that is not a field's.
    """
    known: dict[str, Any] = {"new": object.__new__, "kind": _draft_of(kind), "final": kind}
    assignments = "\n".join(f"    draft.{field.name} = value.{field.name}" for field in _fields(kind))
    return _made(_REPLACE, "replace", known, assignments=assignments)  # type: ignore[no-any-return]


def row_class(kind: type[T]) -> type[T]:
    """Return the class of the rows of a class, which its module is to name with `Row` after its own name.

    To a type checker a row is a value: only `setattr` changes it.
    """
    row = _draft_of(kind)
    row.__module__, row.__name__, row.__qualname__ = kind.__module__, f"{kind.__name__}Row", f"{kind.__qualname__}Row"
    _ROWS.add(row)
    return row


def caster(source: type[T], target: type[T]) -> Callable[[T], T]:
    """Return a function that copies a value into a row, or a row into a value; these are the two classes."""
    draft = target if target in _ROWS else source
    known: dict[str, Any] = {"new": object.__new__, "kind": draft, "final": target}
    assignments = "\n".join(f"    draft.{field.name} = value.{field.name}" for field in _fields(target))
    if target not in _ROWS:
        assignments += "\n    draft.__class__ = final"
    return _made(_COPY, "copy", known, assignments=assignments)  # type: ignore[no-any-return]


def become(value: Any, kind: type[Any]) -> None:
    """Make a row of a value that nobody else has: `kind` is the class of the rows of its class."""
    object.__setattr__(value, "__class__", kind)


def is_row(kind: type) -> bool:
    """Return whether values of this class are rows: the class is frozen to a type checker only."""
    return kind in _ROWS


def _made(text: str, name: str, known: dict[str, Any], **parts: str) -> Any:
    """Make a function from source text, as `dataclasses` does. The text contains no input except names of fields."""
    exec(text.format(**parts), known)
    return known[name]


def _draft_of(kind: type[Any]) -> type[Any]:
    unguarded = {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type(f"{kind.__name__}Draft", (kind,), unguarded)


def _fields(kind: type[Any]) -> tuple[Field[Any], ...]:
    return fields(kind)
