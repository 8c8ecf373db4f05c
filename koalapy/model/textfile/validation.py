"""Holds a document against its schema; what does not fit becomes one error that names file, line and key."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document, Path, dotted, kind_of
from koalapy.model.textfile.fields import Section
from koalapy.model.textfile.words import use_known

MOST_SHOWN = 5

S = TypeVar("S", bound=Section)


class Problem(NamedTuple):
    """One mistake: `what` goes on after the key's name, `advice` is a sentence."""

    path: Path
    code: str
    what: str
    advice: str


def validate(schema: type[S], document: Document, context: Mapping[str, Any]) -> S:
    """The document as its schema has it. Raises RequestError. `context` is what its validators ask for."""
    try:
        return schema.model_validate(document.data, context=dict(context))
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise refusal(document, [_problem(schema, detail) for detail in details]) from None


def refusal(document: Document, problems: Sequence[Problem]) -> RequestError:
    """One error for one or more problems, in the order of their lines; of many, the first five are shown."""
    ordered = sorted(problems, key=lambda problem: document.line(problem.path))
    first = ordered[0]
    if len(ordered) == 1:
        return RequestError(first.code, _sentence(document, first), first.advice)
    lines = [f"{document.source} has {len(ordered)} mistakes:"]
    lines += [f"{_sentence(document, problem)} {problem.advice}" for problem in ordered[:MOST_SHOWN]]
    lines += [f"and {len(ordered) - MOST_SHOWN} more."] if len(ordered) > MOST_SHOWN else []
    return RequestError(first.code, "\n  ".join(lines), "Correct these, and try again.")


def known_keys(schema: type[Section], path: Path) -> list[str]:
    """The keys of the section at this path, by the schema's own JSON Schema."""
    whole = schema.model_json_schema()
    node: Mapping[str, Any] = whole
    for step in path:
        node = _part(_resolved(whole, node), step)
    return list(_resolved(whole, node).get("properties", {}))


def _sentence(document: Document, problem: Problem) -> str:
    name = dotted(problem.path)
    return f"{document.where(problem.path)}: {f'{name} ' if name else 'the file '}{problem.what}."


def _problem(schema: type[Section], detail: ErrorDetails) -> Problem:
    path: Path = tuple(step for step in detail["loc"] if step != "[key]")
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "koala":
            return Problem((*path, *context["at"]), context["code"], context["what"], context["advice"])
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


def _unknown_key(schema: type[Section], path: Path) -> Problem:
    advice = use_known(str(path[-1]), known_keys(schema, path[:-1]))
    return Problem(path, "unknown_key", "is not a known key", advice)


def _part(node: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
    if isinstance(step, int):
        return dict(node.get("items", {}))
    others = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
    found: Mapping[str, Any] = node.get("properties", {}).get(step) or next((other for other in others if other), {})
    return dict(found)


def _resolved(whole: Mapping[str, Any], node: Any) -> Mapping[str, Any]:
    for choice in node.get("anyOf", ()) if isinstance(node, dict) else ():
        if "$ref" in choice or "properties" in choice:
            node = choice
    if isinstance(node, dict) and "$ref" in node:
        return dict(whole["$defs"][node["$ref"].rsplit("/", 1)[-1]])
    return node if isinstance(node, dict) else {}
