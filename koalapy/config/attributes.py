"""The attributes that a grid file gives a cluster, for requirements and ranks: names, each with a value."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from koalapy.model.cluster import Scalar, Value
from koalapy.model.matching import MEASURED
from koalapy.model.textfile.document import Plain, kind_of
from koalapy.model.textfile.fields import as_mapping, wrong
from koalapy.model.textfile.words import shown

MOST_ATTRIBUTES = 100
_MOST_VALUES = 100  # of a list
_LONGEST_NAME, _LONGEST_TEXT = 64, 1_000
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{_LONGEST_NAME - 1}}}")
_RESERVED = frozenset({"true", "false", "undefined", "error", "is", "isnt", "other", "target", "self", "my"})
_INTEGER, _REAL = re.compile(r"[+-]?[0-9]{1,18}"), re.compile(r"[+-]?([0-9]+\.[0-9]*|\.?[0-9]+)([eE][+-]?[0-9]{1,2})?")


def _attributes(value: object) -> dict[str, Value]:
    """Return names and values. Raises an error of the file."""
    found = as_mapping(value)
    if len(found) > MOST_ATTRIBUTES:
        raise wrong(f"has {len(found)} names, more than {MOST_ATTRIBUTES}", "Remove some.", "too_many")
    known: dict[str, str] = {}
    for key in found:
        name = str(key)
        if not _NAME.fullmatch(name) or name.casefold() in _RESERVED:
            what = "is not the name of an attribute"
            raise wrong(what, "Use letters, digits and _, and do not begin with a digit.", at=(name,))
        if name.casefold() in MEASURED:
            what = "is an attribute that koalapy measures"
            raise wrong(what, "Remove it; `koala clusters --ads` shows its value.", at=(name,))
        if name.casefold() in known:
            what = f"differs from {known[name.casefold()]} only by upper and lower case"
            raise wrong(what, "Remove one of the two.", "duplicate_key", (name,))
        known[name.casefold()] = name
    return {str(name): _value(str(name), each) for name, each in found.items()}


def _value(name: str, value: object) -> Value:
    if not isinstance(value, list | tuple):
        return _scalar(name, value)
    if len(value) > _MOST_VALUES:
        raise wrong(f"has {len(value)} values, more than {_MOST_VALUES}", "Remove some.", "too_many", (name,))
    return tuple(_scalar(name, each) for each in value)


def _scalar(name: str, value: object) -> Scalar:
    if isinstance(value, bool | int | float):
        value = Plain("true" if value is True else "false" if value is False else repr(value))
    if not isinstance(value, str):
        what = f"is {kind_of(value)} where a number, a text or a list of such belongs"
        raise wrong(what, "Write one, such as 1500, Linux or [MPICH-G2, OPENMPI].", at=(name,))
    if isinstance(value, Plain):
        if value in ("true", "false"):
            return value == "true"
        if _INTEGER.fullmatch(value):
            return int(value)
        if _REAL.fullmatch(value):
            return float(value)
    if len(value) > _LONGEST_TEXT or not value.isprintable():
        what = f"is {shown(str(value))}, which is no printable text of at most {_LONGEST_TEXT} characters"
        raise wrong(what, "Write a shorter one, on one line.", at=(name,))
    return str(value)


def _schema() -> dict[str, Any]:
    scalar: dict[str, Any] = {"type": ["string", "number", "boolean"]}
    listed = {"type": "array", "items": scalar, "maxItems": _MOST_VALUES}
    value = {"anyOf": [scalar, listed]}
    return {"type": "object", "patternProperties": {f"^{_NAME.pattern}$": value}, "additionalProperties": False}


Attributes = Annotated[dict[str, Value], BeforeValidator(_attributes), WithJsonSchema(_schema())]
