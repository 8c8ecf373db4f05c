"""What `koalapy` exports, and whether the types of the client's answers are those of the API."""

import inspect
import subprocess
import sys
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from pydantic import BaseModel

import koalapy
from koalapy.api import schemas
from koalapy.api.schemas import sweeps, unreadable
from koalapy.api.schemas.clusters import Cluster
from koalapy.api.schemas.logins import Login
from koalapy.client import Grid, answers
from koalapy.model import errors


def described(hint: Any) -> Any:
    """A type as nested tuples, equal for a model and the typed dictionary that stands for it."""
    if inspect.isclass(hint) and issubclass(hint, BaseModel):
        return {field.alias or name: described(field.annotation) for name, field in hint.model_fields.items()}
    if is_typeddict(hint):
        return {name: described(each) for name, each in get_type_hints(hint).items()}
    if get_origin(hint) in (UnionType, Union):
        return frozenset(str(described(each)) for each in get_args(hint))
    if get_args(hint):
        return get_origin(hint), tuple(described(each) for each in get_args(hint))
    return NoneType if hint is None else hint


@pytest.mark.parametrize(
    ("answer", "model"),
    [
        (answers.Disk, schemas.DiskAnswer),
        (answers.Journal, schemas.JournalAnswer),
        (answers.Submitted, schemas.SubmitAnswer),
        (answers.Checked, schemas.CheckAnswer),
        (answers.Job, schemas.Job),
        (answers.JobStory, schemas.JobAnswer),
        (answers.Changed, schemas.ChangedAnswer),
        (answers.Fetched, schemas.FetchAnswer),
        (answers.Explanation, schemas.ExplainAnswer),
        (answers.Runners, schemas.RunnersAnswer),
        (answers.Result, sweeps.Result),
        (answers.Cluster, Cluster),
        (answers.Login, Login),
        (answers.Status, schemas.StatusAnswer),
        (answers.Unknown, schemas.UnknownAnswer),
        (answers.Cleaned, schemas.CleanAnswer),
        (answers.Unreadable, unreadable.UnreadableAnswer),
        (answers.Usage, schemas.UsageAnswer),
        (answers.Maintenance, schemas.MaintenanceAnswer),
        (answers.Maintained, schemas.MaintenanceRunAnswer),
    ],
    ids=lambda each: each.__name__,
)
def test_an_answer_is_typed_as_the_api_describes_it(answer: Any, model: Any) -> None:
    assert described(answer) == described(model)


def test_no_method_of_grid_answers_with_a_bare_dictionary() -> None:
    for name, method in inspect.getmembers(Grid, inspect.isfunction):
        if not name.startswith("_"):
            assert "dict" not in str(inspect.signature(method).return_annotation), name


def test_koalapy_exports_the_client_and_all_kinds_of_errors() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert [getattr(koalapy, kind.__name__) for kind in kinds] == kinds
    assert koalapy.Grid is Grid
    assert issubclass(koalapy.NotReachable, koalapy.TransientError)
    assert sorted(dir(koalapy)) == sorted(koalapy.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = koalapy.nonsense


def test_to_import_koalapy_imports_no_client() -> None:
    code = "import sys, koalapy; dir(koalapy); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"httpx", "koalapy.client", "koalapy.model"} & set(loaded)
