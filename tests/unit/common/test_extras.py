"""koalapy installed without its extras runs, and reports in one sentence which extra a command lacks."""

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import koalapy_adapters
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import koalapy
from koalapy.common.extras import LIBRARIES, OLDEST

Koala = Callable[..., "subprocess.CompletedProcess[str]"]
OF_EXTRAS = sorted({library for libraries in LIBRARIES.values() for library in libraries} - {"cryptography"})

DISTRIBUTIONS = {"OpenSSL": "pyopenssl", "classad2": "htcondor"}  # where a library's is of another name


def required(name: str, extras: frozenset[str], found: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """All distributions that this one needs with these extras, itself included, each with the extras asked of it."""
    if name in found and found[name] >= extras:
        return found
    found[name] = found.get(name, frozenset()) | extras
    for text in distribution(name).requires or ():
        each = Requirement(text)
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            required(canonicalize_name(each.name), frozenset(each.extras), found)
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with koalapy and what it requires, and nothing else: an installation without extras."""
    directory = tmp_path_factory.mktemp("base")
    installed = Path(sysconfig.get_path("purelib"))
    names = {path.parts[0] for each in required("koalapy", frozenset(), {}) for path in distribution(each).files or ()}
    ours = {package.__name__: Path(str(package.__file__)).parent for package in (koalapy, koalapy_adapters)}
    for name in names - {"..", "__pycache__"} - ours.keys():
        if not name.endswith(".pth") and (installed / name).exists():
            (directory / name).symlink_to(installed / name)
    for name, place in ours.items():
        (directory / name).symlink_to(place)
    return directory


@pytest.fixture
def python(base: Path, tmp_path: Path) -> Koala:
    def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        path = f"import sys; sys.path.append({str(base)!r}); "
        command = [sys.executable, "-I", "-S", "-c", path + code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)

    return run


@pytest.fixture
def koala(python: Koala) -> Koala:
    return lambda *arguments: python("from koalapy.cli.entry import main; main()", *arguments)


@pytest.mark.parametrize("library", OF_EXTRAS)
def test_no_library_of_an_extra_comes_with_koalapy_itself(python: Koala, library: str) -> None:
    assert "ModuleNotFoundError" in python(f"import {library}").stderr


@pytest.mark.parametrize("extra", LIBRARIES)
def test_an_extra_brings_the_libraries_that_it_is_asked_for(extra: str) -> None:
    distributions = {DISTRIBUTIONS.get(library, library) for library in LIBRARIES[extra]}
    assert distributions <= required("koalapy", frozenset({extra}), {}).keys()


def test_the_oldest_release_that_will_do_is_the_one_that_pip_would_install() -> None:
    wanted = {Requirement(text).name: Requirement(text).specifier for text in distribution("koalapy").requires or ()}
    for name, oldest in OLDEST.values():
        assert str(wanted[name]) == f">={'.'.join(map(str, oldest))}"


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["sim", "--help"], ["config", "schema"], ["sim", "chaos", "--events", "200"], ["testgrid", "--help"]],
    ids=" ".join,
)
def test_a_command_that_needs_no_extra_runs_without_them(koala: Koala, arguments: list[str]) -> None:
    done = koala(*arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["sim", "run", "cs-makespan"], "experiments"),
        (["sim", "replay", "trace.swf"], "experiments"),
        (["sim", "imbalance", "log.gwf"], "experiments"),
        (["sim", "batches", "log.gwf"], "experiments"),
        (["testgrid", "up"], "testgrid"),
        (["testgrid", "status"], "testgrid"),
        (["demo"], "demo"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_names_the_extra_that_it_lacks(
    koala: Koala, arguments: list[str], extra: str, tmp_path: Path
) -> None:
    for name in ("trace.swf", "log.gwf"):
        (tmp_path / name).write_text("; no job\n")
    done = koala(*arguments)
    assert done.returncode not in (0, None)
    assert f"pip install 'koalapy[{extra}]'" in done.stderr
    assert f"needs koalapy's extra `{extra}`" in done.stderr
    assert "Traceback" not in done.stderr


def test_chaos_is_listed_without_the_experiments_extra(koala: Koala) -> None:
    done = koala("sim", "list")
    assert done.returncode == 0, done.stderr
    assert "node lost" in done.stdout
    assert "pip install 'koalapy[experiments]'" in done.stderr


def test_a_docker_connection_names_its_extra(python: Koala) -> None:
    code = """
from koalapy.config.schema import Cluster
from koalapy.model.errors import RequestError
from koalapy.runtime.cluster_link.connect import connection_of
try:
    connection_of(Cluster(batch="slurm", connect="docker://me@head"))
except RequestError as error:
    print(error.reason)
"""
    said: Any = python(code)
    assert "pip install 'koalapy[docker]'" in said.stdout, said.stderr
