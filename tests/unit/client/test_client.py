"""The Python client: what `koalapy` exports, and what importing it costs."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import koalapy
from koalapy.client import Grid
from koalapy.client.submission import as_posted
from koalapy.model import errors
from koalapy.model.errors import RequestError


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


def loaded_by(code: str) -> set[str]:
    code = f"import sys; {code}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_to_import_koalapy_imports_no_client() -> None:
    assert not {"httpx", "koalapy.client", "koalapy.model"} & loaded_by("import koalapy; dir(koalapy)")


def test_the_client_imports_no_description_of_answers() -> None:
    loaded = loaded_by("import koalapy.client")
    assert "koalapy.client.grid" in loaded
    assert not {"koalapy.answers", "typing_extensions", "pydantic", "fastapi"} & loaded


@pytest.mark.parametrize("name", ["job.rsl", "job.yaml", "job.jsdl"])
def test_a_file_with_a_byte_that_is_not_utf_8_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    """In any language: YAML is not mentioned."""
    path = tmp_path / name
    path.write_bytes(b"first\nse\xe9cond\n")
    with pytest.raises(RequestError) as refused:
        as_posted(path, None, None, None)
    assert refused.value.reason.message == f"{path}:2:3: the text is not UTF-8 from this byte on."
    assert "YAML" not in str(refused.value)
