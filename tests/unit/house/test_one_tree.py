"""The two packages that the tests import are of one place: this tree, or one installation."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import koalapy_adapters
import pytest

import koalapy

ROOT = Path(__file__).parents[3]
SITE = Path("/x/.venv/lib/python3.11/site-packages")
TREE = Path("/x")
POINT = 'fcfs = "koalapy.policies.queueing:fcfs"'  # as it is installed


def are_together(grid_side: Path, cluster_side: Path, tree: Path) -> bool:
    """Return whether the two packages with these directories are both of this tree, or both of one installation."""
    if grid_side == tree / "koalapy":
        return cluster_side == tree / "adapters" / "koalapy_adapters"
    return grid_side.parent == cluster_side.parent


def test_both_packages_are_of_one_place() -> None:
    grid_side, cluster_side = (Path(each.__file__ or "").parent for each in (koalapy, koalapy_adapters))
    assert are_together(grid_side, cluster_side, ROOT), (
        f"koalapy is of {grid_side}, koalapy_adapters of {cluster_side}. `./setup --dev` installs this tree."
    )


def test_the_version_that_is_installed_is_that_of_the_code() -> None:
    assert version("koalapy") == koalapy.__version__, "`./setup --dev` installs this tree anew"


@pytest.mark.parametrize(
    ("grid_side", "cluster_side", "together"),
    [
        (TREE / "koalapy", TREE / "adapters/koalapy_adapters", True),
        (SITE / "koalapy", SITE / "koalapy_adapters", True),
        (TREE / "koalapy", SITE / "koalapy_adapters", False),
        (SITE / "koalapy", TREE / "adapters/koalapy_adapters", False),
        (TREE / "koalapy", Path("/y/adapters/koalapy_adapters"), False),
    ],
    ids=["tree", "wheel", "koalapy of the tree", "adapters of the tree", "two trees"],
)
def test_half_a_tree_is_found(grid_side: Path, cluster_side: Path, together: bool) -> None:
    assert are_together(grid_side, cluster_side, TREE) is together


def place_tree(where: Path) -> None:
    """A tree with `tests/run` and one test, whose packages are empty, and whose `setup` only notes its arguments."""
    for package in ("koalapy", "adapters/koalapy_adapters"):
        (where / package).mkdir(parents=True)
        (where / package / "__init__.py").touch()
    (where / "tests").mkdir()
    (where / "tests" / "test_one.py").write_text("def test_one(): pass\n")
    shutil.copy(ROOT / "tests" / "run", where / "tests")
    for name, text in (("setup", 'echo "$@" >asked\nexit 3\n'), (".venv/bin/python", f'exec {sys.executable} "$@"\n')):
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(f"#!/bin/sh\n{text}")
        (where / name).chmod(0o755)


def test_tests_of_one_file_run_against_the_tree_or_ask_for_it_to_be_installed(tmp_path: Path) -> None:
    place_tree(tmp_path)
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    of_old = 'fcfs = "koalapy.policies.of_old:fcfs"'
    for path, point, asked in (
        ("adapters", POINT, True),
        (".", POINT, True),
        (".:adapters", POINT, False),
        (".:adapters", of_old, True),
    ):
        (tmp_path / "pyproject.toml").write_text(f'[project.entry-points."koalapy.queueing"]\n{point}\n')
        (tmp_path / "asked").unlink(missing_ok=True)
        there = ":".join(str(tmp_path / each) for each in path.split(":"))
        done = subprocess.run(
            ["tests/run", "tests/test_one.py", "-p", "no:cacheprovider", "-p", "no:koalapy-contract"],
            cwd=tmp_path, env={**plain, "PYTHONPATH": there}, capture_output=True, text=True,
        )  # fmt: skip
        assert (tmp_path / "asked").exists() is asked, (path, point, done.stdout, done.stderr)
        assert ("1 passed" in done.stdout, done.returncode) == ((False, 3) if asked else (True, 0)), done
        assert not asked or (tmp_path / "asked").read_text() == "--dev\n"
