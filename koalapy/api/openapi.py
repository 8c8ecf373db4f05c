"""The description of answers in OpenAPI, taken from their types in koalapy.answers."""

import functools
import threading
from collections.abc import Callable
from typing import Any, get_args

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import get_original_bases, get_type_hints, is_typeddict

from koalapy.answers import clusters, errors, jobs, koalad, leases, pilots, sites, sweeps

_MODULES = (clusters, errors, jobs, koalad, leases, pilots, sites, sweeps)
_WITH_FURTHER_FIELDS = (jobs.JobEvent,)


class AnswerApp(FastAPI):
    """An app whose endpoints' return types describe their answers, which are not checked when they are sent.

    The descriptions are made when somebody asks for them: they would take as long as all else at koalad's start.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.router.route_class = _AnswerRoute

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        with _BUILDING:
            if self.openapi_schema is None:
                for route in self.routes:
                    if isinstance(route, _AnswerRoute):
                        route.describe()
            return super().openapi()


class _AnswerRoute(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        answer, responses = get_type_hints(endpoint).get("return"), options.pop("responses") or {}
        if is_typeddict(answer):
            options["response_model"] = None
            responses = {200: {"model": answer}, **responses}
        self._responses, self._options = responses, options
        super().__init__(path, endpoint, **options)

    def describe(self) -> None:
        """Make the description of the answers."""
        super().__init__(self.path, self.endpoint, responses=self._responses, **self._options)


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
        if base in TYPES:
            for name, field in TypeAdapter(base).json_schema()["properties"].items():
                if "description" in field:
                    schema["properties"][name].setdefault("description", field["description"])


def _configure(model: Any) -> None:
    model.__pydantic_config__ = ConfigDict(
        extra="allow" if model in _WITH_FURTHER_FIELDS else "forbid",
        use_attribute_docstrings=True,
        json_schema_extra=lambda schema: _inherit_descriptions(schema, model),
    )


TYPES = list({id(each): each for module in _MODULES for each in vars(module).values() if is_typeddict(each)}.values())
for _model in TYPES:
    _configure(_model)
ANSWERS: dict[str, Any] = {
    get_args(hints["schema"])[0]: each for each in TYPES if "schema" in (hints := get_type_hints(each))
}
