"""A sweep's parameters: their schema in a job file, and as `-p NAME=VALUES`, and the templates that they fill.

A parameter is a range, a list or a file, and several are combined. In the template of a program, `{x}` is a parameter's
value, `{#}` its number, and `{{` and `}}` are braces. koalapy_adapters.launcher.space inserts the values on the nodes.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from posixpath import normpath
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from koalapy.languages.paths import as_staged_in
from koalapy.languages.ranges import Loop, as_loop, looks_like_range
from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import kind_of
from koalapy.model.textfile.fields import Line, Section, Text, as_list, as_mapping, as_text, wrong
from koalapy.model.textfile.words import shown

NUMBER = "#"
_FORM = "Write -p NAME=VALUES, such as -p x=1:100, -p y=a,b,c or -p z=@FILE."
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class TemplateError(ValueError):
    """A brace that is neither doubled nor part of a name. Its message continues a sentence about the text."""


def names_in(text: str) -> list[str]:
    """Return the names in the text, in order, with repetitions. Raises TemplateError for a lone brace."""
    found = []
    for piece in _PIECE.finditer(text):
        if piece[0] in ("{", "}"):
            raise TemplateError(f"has a lone {piece[0]}")
        if piece[1] is not None:
            found.append(piece[1])
    return found


def literal(text: str) -> str:
    """Return the template whose value is this text."""
    return text.replace("{", "{{").replace("}", "}}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the template with these names replaced by their values; the other names remain."""
    return _PIECE.sub(lambda piece: literal(values[piece[1]]) if piece[1] in values else piece[0], text)


MOST_NAMES = 1_000  # of the parameters of one sweep

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_OTHER_RANGE = re.compile(r"([0-9]{1,15})(?:-|\.\.)([0-9]{1,15})", re.ASCII)
_LIKE_RANGE = re.compile(r"[\w.+-]*(:[\w.+-]*){1,2}")  # excludes http://host/ and C:\data
_KINDS = ("range", "values", "file")


class Combine(StrEnum):
    """Every value with every other, or the first with the first and so on."""

    CROSS = "cross"
    ZIP = "zip"


TableFile = Annotated[
    str,
    BeforeValidator(as_staged_in),
    AfterValidator(normpath),  # the same file always has the same path
    WithJsonSchema({"type": "string", "minLength": 1}),
]
Together = tuple[tuple[str, ...], ...]  # groups of names that vary together


class Parameter(Section):
    """Where the values of one name come from: one of `range`, `values` and `file`."""

    range: Text | None = Field(default=None, description="FIRST:LAST or FIRST:LAST:STEP, both ends included")
    without: Annotated[tuple[Text, ...], Field(strict=False), BeforeValidator(as_list)] = Field(
        default=(), alias="except", description="numbers that are left out of the range"
    )
    values: Annotated[tuple[Text, ...], Field(strict=False), BeforeValidator(as_list)] | None = Field(
        default=None, description="texts"
    )
    file: TableFile | None = Field(
        default=None, description="a file whose lines are the values, or below whose heading they are"
    )
    column: Line | None = Field(default=None, description="the file is comma-separated values: the column's heading")
    _loop: Loop | None = PrivateAttr(default=None)

    @property
    def loop(self) -> Loop | None:
        """The parsed `range`; None without one."""
        return self._loop

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [key for key in _KINDS if getattr(self, key) is not None]
        if len(given) != 1:
            what = f"has {' and '.join(given)}" if given else "has no values"
            raise wrong(what, "Write one of range, values and file.")
        for key, of in (("without", "range"), ("column", "file")):
            if getattr(self, key) and of not in given:
                raise wrong(f"has {_written(key)} without a {of}", f"Write the {of}, or remove it.")
        if self.values is not None and not self.values:
            raise wrong("has no values", "Write at least one.")
        if self.range is not None:
            self._loop = as_loop(self.range, self.without)
        return self


def as_parameter(value: object) -> object:
    """Return the mapping of a parameter. A short text is a range, `@FILE` or a list with commas.

    The texts of a list are values as they are.

    Raises an error of the file for a text that is none of these.
    """
    if isinstance(value, dict | Parameter):
        return value
    if isinstance(value, list | tuple):
        return {"values": value}
    if value is None:
        raise wrong(f"is {kind_of(value)} where values belong", "Write a range such as 1:100, a list, or @FILE.")
    return _in_short(as_text(value))


def _in_short(text: str) -> dict[str, Any]:
    if text.startswith("@"):
        return {"file": text[1:]}
    if "," in text:
        return {"values": _parts(text)}
    if looks_like_range(text):
        as_loop(text)  # checked here, so that its error names only the parameter
        return {"range": text}
    if text.startswith(":") and looks_like_range(text[1:] + ":"):
        as_loop(text)  # raises an error that names the missing part
    meant = _other_range(text)
    if meant or _LIKE_RANGE.fullmatch(text):
        form = meant or "numbers, such as 1:100,"
        advice = f"Write {form} for a range; for that very text write a list in a job file, [{text}]."
        raise wrong(f"is {shown(text)}, which would be one value", advice)
    if not text:
        raise wrong("is empty", "Write a range such as 1:100, values such as a,b,c, or @FILE.")
    return {"values": (text,)}


def _other_range(text: str) -> str | None:
    """Return the range that a text of another notation means, such as 1-100 or 1..100; None for others, as 2024-12."""
    found = _OTHER_RANGE.fullmatch(text)
    return f"{found[1]}:{found[2]}" if found and int(found[1]) < int(found[2]) else None


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise wrong(f"is {shown(text)}, with nothing between two commas", 'Write ["a", ""] for an empty text.')
    if any(map(looks_like_range, parts)):
        raise wrong(f"is {shown(text)}, a list with a range in it", "Write one range, or texts in brackets: [a, b].")
    return parts


def _name(value: object) -> str:
    text = as_text(value)
    if not _NAME.fullmatch(text):
        advice = "Use letters, digits and _, and begin with no digit; 64 characters at most."
        raise wrong("is not a valid parameter name", advice)
    return text


def _not_none(parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    if not parameters:
        raise wrong("is empty", "Write names and their values, such as x: 1:100.")
    if len(parameters) > MOST_NAMES:
        raise wrong(
            f"has {len(parameters)} names, more than {MOST_NAMES}", "Put them into a file of columns.", "too_many"
        )
    return parameters


def _combine(value: object) -> Combine | Together:
    """Return cross, zip, or lists of the names that vary together. Raises an error of the file."""
    if not isinstance(value, list | tuple):
        return _word(as_text(value))
    groups = tuple(tuple(map(_name, as_list(group))) for group in value)
    names = [name for group in groups for name in group]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise wrong(f"names {twice[0]} twice", "Write each name once.")
    return groups


def _word(text: str) -> Combine:
    if text not in list(Combine):
        raise wrong(f"is {shown(text)}", "Write cross, zip, or lists of the names that vary together: [[x, y]].")
    return Combine(text)


def _written(key: str) -> str:
    return "except" if key == "without" else key


Name = Annotated[str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
_SHORT: list[Any] = [
    {"type": ["string", "number"], "description": "1:100, 1:100:5, a,b,c or @FILE"},
    {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1},
]
Given = Annotated[
    Parameter,
    BeforeValidator(as_parameter),
    WithJsonSchema({"anyOf": [*_SHORT, Parameter.model_json_schema()]}),
]
Parameters = Annotated[
    dict[Name, Given],
    Field(json_schema_extra={"additionalProperties": False}),
    BeforeValidator(as_mapping),
    AfterValidator(_not_none),
]
Combination = Annotated[
    Combine | Together,
    PlainValidator(_combine),
    WithJsonSchema(
        {"anyOf": [{"enum": [*Combine]}, {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}]}
    ),
]
Tables = Annotated[
    tuple[TableFile, ...],
    Field(strict=False),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else as_list(value)),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


def sweep_request(
    program: Sequence[str],
    parameters: Sequence[str] = (),
    *,
    csv: Sequence[str] = (),
    combine: str | None = None,
    processors: int = 1,
    component: Mapping[str, Any] | None = None,
    **job: Any,
) -> dict[str, Any]:
    """Return the job as POST /v1/jobs and `from_mapping` accept it. Raises RequestError for an invalid parameter.

    `program`: executable and arguments, with `{x}` for parameters. `parameters`: texts as after `-p`. `combine`: cross
    or zip. `processors`: those of each process. `component` and `job`: further keys, as in a job file.
    """
    if not program:
        raise RequestError("no_program", "The sweep has no program.", "Write it behind --, such as -- ./solve {x}.")
    document = {
        "components": [
            {
                "processors": processors,
                "threads_per_process": processors,
                "executable": program[0],
                "arguments": list(program[1:]),
                **(component or {}),
            }
        ],
        "parameters": _by_name(parameters) or None,
        "csv": list(csv) or None,
        "combine": combine,
        **job,
    }
    if not parameters and not csv:
        raise RequestError("no_parameters", "The sweep has no parameters.", _FORM)
    return {key: value for key, value in document.items() if value is not None}


def _by_name(parameters: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in parameters:
        name, equals, values = text.partition("=")
        if not equals or not name:
            raise RequestError("no_parameter", f"-p {shown(text)} names no parameter.", _FORM)
        if name in found:
            raise RequestError("duplicate_name", f"-p {name} is given twice.", "Name each parameter once.")
        found[name] = values
    return found
