"""Validate a document by its schema. What does not fit becomes one error that names file, place and key."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import WithDefaultSchema

from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document, Path, dotted, kind_of
from koalapy.model.textfile.fields import Section
from koalapy.model.textfile.words import nearest, use_known

MOST_SHOWN = 20
_WITH_KEYS = {"properties", "patternProperties", "additionalProperties", "$ref"}

S = TypeVar("S", bound=Section)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Problem(NamedTuple):
    """One mistake. `what` continues after the key's name; `advice` is a sentence."""

    path: Path
    code: str
    what: str
    advice: str


def validate(schema: type[S], document: Document, context: Mapping[str, Any]) -> S:
    """Return the document as its schema has it. `context`: what the validators need.

    Raises RequestError if the document does not fit.
    """
    try:
        return schema.model_validate(document.data, context=dict(context))
    except ValidationError as error:
        details = sorted(error.errors(include_url=False), key=lambda detail: document.place(_path(detail)))
        shown = [_problem(schema, detail) for detail in details[:MOST_SHOWN]]
        raise _refusal(document, shown, len(details)) from None


def known_keys(schema: type[Section], path: Path) -> list[str]:
    """Return the keys of the section at this path, by the schema's own JSON Schema."""
    whole = _json_schema(schema)
    node: Mapping[str, Any] = whole
    for step in path:
        node = _part(_resolved(whole, node), step)
    return list(_resolved(whole, node).get("properties", {}))


@lru_cache
def _json_schema(schema: type[Section]) -> Mapping[str, Any]:
    """Return the JSON Schema of the section.

    It takes longer to make than all else of a refusal, and is always the same.
    """
    return schema.model_json_schema()


def refusal(document: Document, path: Path, code: str, what: str, advice: str) -> RequestError:
    """Return the error for what the schema alone cannot show.

    `what` continues after the name of the value at `path`.
    """
    return RequestError(code, _sentence(document, Problem(path, code, what, advice)), advice)


def _refusal(document: Document, problems: Sequence[Problem], count: int) -> RequestError:
    """Return one error for `count` problems. It lists the first few, in the order of their places."""
    first = problems[0]
    if count == 1:
        return RequestError(first.code, _sentence(document, first), first.advice)
    lines = [f"{document.source} has {count} mistakes:"]
    lines += [f"{_sentence(document, problem)} {problem.advice}" for problem in problems]
    lines += [f"and {count - len(problems)} more."] if count > len(problems) else []
    return RequestError(first.code, "\n  ".join(lines), "Correct these, and try again.")


def _sentence(document: Document, problem: Problem) -> str:
    name = dotted((*document.base, *problem.path))
    return f"{document.where(problem.path)}: {f'{name} ' if name else 'the file '}{problem.what}."


def _problem(schema: type[Section], detail: ErrorDetails) -> Problem:
    path = _path(detail)
    match detail["type"]:
        case "koala":
            context = detail["ctx"]
            return Problem(path, context["code"], context["what"], context["advice"])
        case "extra_forbidden" | "invalid_key":
            return _unknown_key(schema, path)
        case "missing":
            return Problem(path, "missing_key", "is missing", f"Add `{path[-1]}: …` there.")
        case "model_type" | "dict_type" | "model_attributes_type":
            what = f"is {kind_of(detail['input'])} where keys and values belong"
            return Problem(path, "wrong_value", what, "Write `key: value` lines below it, or {key: value}.")
        case _:
            what = f"is {kind_of(detail['input'])}, which does not fit: {detail['msg']}"
            return Problem(path, "wrong_value", what, "See the file's reference for what belongs there.")


def _path(detail: ErrorDetails) -> Path:
    """Return the path of a mistake. pydantic marks a key that is itself wrong by a step of its own."""
    below: Path = tuple(detail.get("ctx", {}).get("at", ()))
    return (*(step for step in detail["loc"] if step != "[key]"), *below)


def _unknown_key(schema: type[Section], path: Path) -> Problem:
    known = known_keys(schema, path[:-1])
    advice = use_known(str(path[-1]), known)
    if path[-1] in known_keys(schema, ()) and nearest(str(path[-1]), known) is None:
        advice = f"{path[-1]} belongs to the whole file: write it at the left, outside of {dotted(path[:-1])}."
    return Problem(path, "unknown_key", "is not a known key", advice)


def _part(node: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
    if isinstance(step, int):
        return dict(node.get("items", {}))
    others = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
    found: Mapping[str, Any] = node.get("properties", {}).get(step) or next((other for other in others if other), {})
    return dict(found)


def _resolved(whole: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the node that this one refers to. Among several forms of a value, the one with keys counts."""
    node = next((form for form in node.get("anyOf", ()) if form.keys() & _WITH_KEYS), node)
    reference = str(node.get("$ref", "")).rpartition("/")[2]
    return dict(whole["$defs"][reference]) if reference else node


def json_schema_of(section: type[Section]) -> dict[str, Any]:
    """Return the schema. Rules that only koalapy can check, such as those between keys, are not in it."""
    return {"$schema": _DIALECT, **section.model_json_schema(schema_generator=_WithWrittenDefaults)}


class _WithWrittenDefaults(GenerateJsonSchema):
    """A generator that writes defaults as a file would have them: `1h`, not so many microseconds."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        inner: Any = schema["schema"]
        while "serialization" not in inner and "schema" in inner:
            inner = inner["schema"]
        write = inner.get("serialization", {})
        if found.get("default") is not None and write.get("type") == "function-plain":
            found["default"] = write["function"](schema["default"])
        return found
