"""`.ci/release` makes sdist and wheel of a clean tree whose version and CHANGELOG agree, and publishes nothing."""

import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from tree_copy import ROOT, commit, copy_tree, git
from typer.testing import CliRunner

import koalapy
from koalapy.cli import main

VERSION = koalapy.__version__


def release(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([".ci/release"], cwd=tree, capture_output=True, text=True)


def date_the_heading(tree: Path) -> None:
    page = tree / "CHANGELOG.md"
    page.write_text(re.sub(r"^## .*$", f"## {VERSION}, 2026-01-31", page.read_text(), count=1, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("release") / "koalapy")


@pytest.fixture(autouse=True)
def _as_it_was(tree: Path) -> None:
    first = git(tree, "rev-list", "--max-parents=0", "HEAD").strip()
    git(tree, "reset", "--quiet", "--hard", first)
    git(tree, "clean", "--quiet", "-fd")


def refused(tree: Path) -> str:
    done = release(tree)
    assert done.returncode == 1, done.stdout
    assert not done.stdout
    assert not (tree / "dist").exists()
    return done.stderr


def test_a_tree_with_changes_is_refused(tree: Path) -> None:
    date_the_heading(tree)
    assert "changes that are not committed" in refused(tree)
    commit(tree, "Release it")
    (tree / "notes.txt").touch()
    assert "changes that are not committed" in refused(tree)


@pytest.mark.parametrize("heading", [f"## {VERSION}, not released yet", "## 99.0.0, 2026-01-31", f"## {VERSION}", ""])
def test_a_changelog_without_the_date_of_this_version_is_refused(tree: Path, heading: str) -> None:
    (tree / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n")
    git(tree, "commit", "--quiet", "--all", "--allow-empty", "--message", "Change the heading")
    assert f"'{heading}'" in refused(tree)


def test_a_version_that_was_released_is_refused(tree: Path) -> None:
    git(tree, "tag", f"v{VERSION}")
    assert f"there is a tag v{VERSION} already" in refused(tree)
    git(tree, "tag", "--delete", f"v{VERSION}")


@pytest.mark.parametrize("version", ["", "1.0", "1.2.3-dirty"])
def test_a_version_of_another_form_is_refused(tree: Path, version: str) -> None:
    module = tree / "koalapy" / "__init__.py"
    module.write_text(module.read_text().replace(f'"{VERSION}"', f'"{version}"'))
    commit(tree, "Set the version")
    assert "no version of the form 1.2.3" in refused(tree)


def test_a_manual_of_another_version_is_refused(tree: Path) -> None:
    date_the_heading(tree)
    page = tree / "man" / "koala.1"
    page.write_text(page.read_text().replace(f'"koalapy {VERSION}"', '"koalapy 99.0.0"'))
    commit(tree, "Release it")
    assert "man/koala.1 is of another version" in refused(tree)


def test_sdist_and_wheel_of_a_new_version_are_made_and_checked(tree: Path) -> None:
    for file in ("koalapy/__init__.py", "man/koala.1"):  # the version of the code alone decides
        (tree / file).write_text((tree / file).read_text().replace(VERSION, "99.0.1"))
    (tree / "CHANGELOG.md").write_text("# Changes\n\n## 99.0.1, 2026-01-31\n")
    commit(tree, "Release koalapy 99.0.1")
    done = release(tree)
    assert done.returncode == 0, done.stderr
    for part in ("dist/koalapy-99.0.1.tar.gz", "dist/koalapy-99.0.1-py3-none-any.whl", "git tag -s v99.0.1", "twine"):
        assert part in done.stdout
    assert git(tree, "tag", "--list") == ""
    with tarfile.open(tree / "dist" / "koalapy-99.0.1.tar.gz") as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"tests/run", "tests/unit/house/test_release.py", "setup", "docs/index.md", "CITATION.cff"} <= names
    assert ".ci/run" in names
    with zipfile.ZipFile(tree / "dist" / "koalapy-99.0.1-py3-none-any.whl") as wheel:
        assert "koalapy-99.0.1.dist-info/METADATA" in wheel.namelist()
        assert not [name for name in wheel.namelist() if name.startswith(("tests/", "docs/"))]
    again = release(tree)
    assert "dist holds files of another build" in again.stderr


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"] == {"path": "koalapy/__init__.py"}
    assert CliRunner().invoke(main.app, ["--version"]).output == f"koala {VERSION}\n"
    assert re.search(rf"^## {re.escape(VERSION)}, ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_every_python_that_setup_takes_is_in_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    setup = (ROOT / "setup").read_text()
    taken = set(re.findall(r"\bpython(3\.\d+)\b", setup))
    named = {each.rpartition(" ")[2] for each in project["classifiers"] if " :: Python :: 3." in each}
    assert taken == named
    assert project["requires-python"] == f">={min(taken, key=lambda each: int(each.partition('.')[2]))}"


def test_the_citation_has_the_five_papers_and_no_second_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["authors"] == [{"name": "The koalapy developers"}]
    assert citation["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    assert "version" not in citation
    assert {"message", "title", "type"} <= citation.keys()
    references = citation["references"]
    assert len(references) == 5
    page = " ".join((ROOT / "docs" / "papers.md").read_text().split())
    for each in references:
        assert each["type"] in ("conference-paper", "generic")
        assert each["title"] in page
        for author in each["authors"]:
            assert author.keys() <= {"family-names", "given-names", "name-particle"}
            assert author["family-names"] in page
