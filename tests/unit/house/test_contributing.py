"""CONTRIBUTING.md is true: its commands and paths exist, its verbs are the checked ones, and its change fails."""

import os
import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest
from tree_copy import ROOT, copy_tree

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
INSTALLED = ("ruff", "mypy", "lint-imports")  # by ./setup --dev
OF_THE_SYSTEM = ("sed", "git", "ln")
FIRST_CHANGE = PAGE.partition("\n## Change one line, and see it fail\n")[2].partition("\n## ")[0]


def commands(text: str) -> list[str]:
    return [shlex.join(shlex.split(line, comments=True)) for line in re.findall(r"^    \$ (.*)$", text, re.MULTILINE)]


def missing(words: list[str]) -> list[str]:
    """The words of a command that look like paths of this tree, and are none."""
    paths = [
        each.partition("::")[0] for each in words if re.fullmatch(r"(\./)?\.?[\w.-]+(/[\w.-]+)+(::.*)?|\./\w+", each)
    ]
    return [
        each for each in paths if not (ROOT / each).exists() and not each.startswith((".venv/bin/", ".git/", "../"))
    ]


def test_the_commands_of_the_page_exist() -> None:
    found = commands(PAGE)
    assert len(found) >= 8
    for command in found:
        words = shlex.split(command)
        assert (ROOT / words[0]).is_file() or words[0] in OF_THE_SYSTEM, command
        assert not missing(words), command


def test_the_paths_and_programs_of_the_text_exist() -> None:
    quoted = [each.split() for each in re.findall(r"`([^`\n]+)`", PAGE)]
    assert sum(any("/" in word for word in words) for words in quoted) > 12
    assert not [words for words in quoted if missing(words)]
    programs = {word.removeprefix(".venv/bin/") for words in quoted for word in words if word.startswith(".venv/bin/")}
    assert programs == set(INSTALLED)


def test_a_path_that_does_not_exist_is_found() -> None:
    assert missing(["tests/run", "tests/unit/test_none.py"]) == ["tests/unit/test_none.py"]
    assert missing(["./none", ".ci/none", ".venv/bin/ruff", "-k", "a/b c"]) == ["./none", ".ci/none"]


def test_the_options_of_the_runs_are_known() -> None:
    known = subprocess.run([ROOT / "tests" / "run", "--help"], capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r"`?tests/run(?: \S+)*? (--[\w-]+)", PAGE)) - {"--help"}
    assert named == {"--quick", "--no-grid"}
    assert not [option for option in named if option not in known]
    assert "--dev" in (ROOT / "setup").read_text()


def test_the_verbs_are_those_of_the_check() -> None:
    block = PAGE.partition("one of these verbs:\n\n")[2].partition("\n\n")[0]
    assert block.split() == runpy.run_path(str(ROOT / ".ci" / "commit-message"))["VERBS"].split()


def test_the_hook_of_the_page_is_the_check(tmp_path: Path) -> None:
    (link,) = [each for each in commands(PAGE) if each.startswith("ln ")]
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "commit-message").touch()
    subprocess.run(link, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / ".git" / "hooks" / "commit-msg").resolve() == tmp_path / ".ci" / "commit-message"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return copy_tree(tmp_path / "koalapy")


def test_the_first_change_fails_as_shown_and_passes_once_it_is_undone(clone: Path) -> None:
    setup, change, run, undo, again = commands(FIRST_CHANGE)
    assert setup == "./setup --dev"  # stood in for by the Python of this test, which finds the clone first
    environment = {**os.environ, "PYTHONPATH": f"{clone}:{clone / 'adapters'}"}

    def follow(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, shell=True, cwd=clone, env=environment, capture_output=True, text=True)

    def changed() -> str:
        return follow("git status --porcelain").stdout

    assert follow(change).returncode == 0
    assert changed() == " M adapters/koalapy_adapters/batch/slurm.py\n"
    failed = follow(run)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    (line,) = re.findall(r"^    (FAILED .*)$", FIRST_CHANGE, re.MULTILINE)
    assert line in failed.stdout
    assert "#SBATCH --requeue" in failed.stdout
    assert follow(undo).returncode == 0
    assert not changed()
    passed = follow(again)
    assert passed.returncode == 0, passed.stdout + passed.stderr
