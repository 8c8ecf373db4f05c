"""The description of answers in OpenAPI, taken from their types in koalapy.answers."""

import functools
import threading
from collections.abc import Callable
from typing import Any, get_args

from fastapi.routing import APIRoute
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import get_original_bases, get_type_hints, is_typeddict

from koalapy import answers

_WITH_FURTHER_FIELDS = (answers.JobEvent,)


class AnswerRoute(APIRoute):
    """An endpoint whose return type describes its answers. An answer is not checked when it is sent."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        answer = get_type_hints(endpoint).get("return")
        if is_typeddict(answer):
            options |= {"response_model": None, "responses": {200: {"model": answer}, **(options["responses"] or {})}}
        super().__init__(path, endpoint, **options)


def check(document: Any) -> None:
    """Check an answer against the type of its schema. Raises ValidationError."""
    with _BUILDING:
        adapter = _adapter(document["schema"])
    adapter.validate_python(document)


@functools.cache
def _adapter(schema: str) -> TypeAdapter[Any]:
    return TypeAdapter(ANSWERS[schema])


_BUILDING = threading.Lock()  # Python 3.11 cannot parse sources for docstrings in several threads at once


def _inherit_descriptions(schema: dict[str, Any], model: Any) -> None:
    """Copy the descriptions of fields from the types that a type extends."""
    for base in get_original_bases(model):
        if base in _TYPES:
            for name, field in TypeAdapter(base).json_schema()["properties"].items():
                if "description" in field:
                    schema["properties"][name].setdefault("description", field["description"])


def _configure(model: Any) -> None:
    model.__pydantic_config__ = ConfigDict(
        extra="allow" if model in _WITH_FURTHER_FIELDS else "forbid",
        use_attribute_docstrings=True,
        json_schema_extra=lambda schema: _inherit_descriptions(schema, model),
    )


_TYPES = [each for each in map(vars(answers).__getitem__, answers.__all__) if is_typeddict(each)]
for _model in _TYPES:
    _configure(_model)
ANSWERS: dict[str, Any] = {
    get_args(hints["schema"])[0]: each for each in _TYPES if "schema" in (hints := get_type_hints(each))
}
