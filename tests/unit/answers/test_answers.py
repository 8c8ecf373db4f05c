"""Answers of the HTTP API: each is described once, for koalad, its clients and OpenAPI alike."""

import asyncio
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, get_args, get_type_hints

import httpx
import pytest
from pydantic import ValidationError
from typing_extensions import is_typeddict

from koalapy import answers
from koalapy.answers import errors, jobs, koalad, sweeps
from koalapy.api import openapi
from koalapy.model.errors import Whose
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.usage import By

_OF_ATTEMPTS = {*map(str, AttemptState), *map(str, Ending)} - {"ended", "cleaned_up"}
COMPONENT_STATES = _OF_ATTEMPTS | {"waiting", "not_started"}
AT = "2026-01-31T12:00:00.000000Z"
RUN = {"name": "prune", "task": "prune", "began_at": AT, "ended_at": None, "ok": True, "message": "Done."}


def run_answer(**changes: Any) -> dict[str, Any]:
    return {"schema": "koala.maintenance-run/1", "dry_run": False, "run": {**RUN, **changes}}


def without(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return {**answer, "run": {key: value for key, value in answer["run"].items() if key != name}}


def test_an_answer_as_described_passes_the_check() -> None:
    openapi.check(run_answer())
    openapi.check(run_answer(ended_at=AT))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (without(run_answer(), "ok"), "Field required"),
        (run_answer(further=1), "Extra inputs are not permitted"),
        (run_answer(began_at="2026-01-31 12:00"), "match pattern"),
        (run_answer(ended_at="2026-01-31 12:00"), "match pattern"),
        (run_answer(name=1), "valid string"),
    ],
    ids=["missing", "further", "instant", "optional instant", "type"],
)
def test_an_answer_that_differs_from_its_description_fails_the_check(answer: Any, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        openapi.check(answer)


def test_an_event_may_have_further_fields_and_no_other_part_of_an_answer() -> None:
    open_to_more = [each for each in openapi.TYPES if each.__pydantic_config__["extra"] == "allow"]
    assert open_to_more == [jobs.JobEvent]


def test_every_type_is_known_and_every_answer_is_found_by_its_schema() -> None:
    types = {
        name: each
        for module in pkgutil.iter_modules(answers.__path__)
        for name, each in vars(import_module(f"{answers.__name__}.{module.name}")).items()
        if is_typeddict(each)
    }
    assert types.keys() == {each.__name__ for each in openapi.TYPES}
    with_schema = [each for each in types.values() if "schema" in get_type_hints(each)]
    assert sorted(openapi.ANSWERS.values(), key=id) == sorted(with_schema, key=id)
    assert all(name.startswith("koala.") for name in openapi.ANSWERS)


def endpoint_of(model: Any) -> Callable[[], Any]:
    def endpoint() -> Any:
        return {}

    endpoint.__annotations__["return"] = model
    return endpoint


def test_the_return_type_of_an_endpoint_describes_its_answer_which_is_sent_unchecked() -> None:
    app = openapi.AnswerApp()
    app.get("/run")(endpoint_of(koalad.MaintenanceRunAnswer))
    described = app.openapi()["paths"]["/run"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert described == {"$ref": "#/components/schemas/MaintenanceRunAnswer"}

    async def sent() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://koalad") as client:
            return await client.get("/run")

    assert asyncio.run(sent()).json() == {}


def test_openapi_has_the_descriptions_of_fields_inherited_ones_too() -> None:
    app = openapi.AnswerApp()
    for name, model in openapi.ANSWERS.items():
        app.get(f"/{name}")(endpoint_of(model))
    described = app.openapi()["components"]["schemas"]
    assert described["Component"]["properties"]["hosts"]["description"] == "Node names, each once."
    assert described["Runner"]["properties"]["done"]["description"] == "Parameters with a result, whatever it is."
    assert (
        described["UsageRow"]["properties"]["run"]["description"]
        == described["Used"]["properties"]["run"]["description"]
    )
    assert described["Lack"]["properties"]["whose"]["description"]
    assert described["Job"]["properties"]["submitted_at"]["pattern"].startswith("^")
    assert described["Job"]["description"]


@pytest.mark.parametrize(
    ("described", "states"),
    [
        (sweeps.JobStateName, {str(each) for each in JobState}),
        (jobs.ComponentStateName, COMPONENT_STATES),
        (errors.Whose, set(get_args(Whose))),
        (get_type_hints(koalad.UsageAnswer)["by"], {str(each) for each in By}),
    ],
    ids=["job", "component", "whose", "by"],
)
def test_the_names_of_states_are_those_of_the_model(described: Any, states: set[str]) -> None:
    assert set(get_args(described)) == states


def test_the_description_imports_nothing_that_builds_answers() -> None:
    code = "import sys, koalapy.answers.jobs, koalapy.answers.leases; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {each for each in loaded if each.startswith("koalapy.") and not each.startswith("koalapy.answers")}
    assert not ours
    assert not {"pydantic", "fastapi"} & set(loaded)
