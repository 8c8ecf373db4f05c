"""The manual pages: written from the commands' help, taken by man without a warning, and found where pip puts them."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from programs import need
from typer.main import get_command
from typer.testing import CliRunner

from koalapy.cli import main, man
from koalapy.koalad.__main__ import app as koalad

ROOT = Path(__file__).parents[3]
STORED = ROOT / "man"
needs_man = pytest.mark.usefixtures("man_and_groff")


@pytest.fixture(scope="module")
def man_and_groff() -> None:
    need("man")
    need("groff")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return man.pages(("koala", get_command(main.app)), ("koalad", get_command(koalad)))


def test_the_stored_pages_are_those_of_the_commands(pages: dict[str, str]) -> None:
    stored = {path.name: path.read_text() for path in STORED.iterdir()}
    assert stored == pages, "Run `koala man --to man` and commit what it writes."


def test_each_command_has_a_page_with_its_options(pages: dict[str, str]) -> None:
    assert {"koala.1", "koalad.1", "koala-sim-run.1", *(f"koala-{name}.1" for name in main.COMMANDS)} <= {*pages}
    assert "\\fB\\-o KEY=VALUE\\fR\nChange a key of the job; KEY= unsets it.\n" in pages["koala-submit.1"]
    assert "\\fBkoala sweep\\fR [OPTION...] [\\-\\- PROGRAM ARG...]\n" in pages["koala-sweep.1"]
    assert "\\fB\\-\\-format csv|jsonl\\fR\n" in pages["koala-results.1"]
    assert "koala\\-jobs \\- List jobs, the newest last\n" in pages["koala-jobs.1"]
    assert not [name for name, text in pages.items() if str(ROOT) in text or not text.isascii()]


@needs_man
def test_man_takes_them_without_a_warning() -> None:
    files = [str(path) for path in sorted(STORED.iterdir())]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    checked = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", *files],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")
    if shutil.which("mandoc"):
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *files], capture_output=True, text=True)
        # No date: the pages are those of a version, whenever they were written.
        assert [line for line in (lint.stdout + lint.stderr).splitlines() if "missing date" not in line] == []


@needs_man
def test_man_reports_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "koala.1").write_text('.TH KOALA 1 "" "koalapy" "koalapy"\n.SH NAME\n.nonsense\n')
    checked = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", str(tmp_path / "koala.1")],
        env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, text=True,
    )  # fmt: skip
    assert "nonsense" in checked.stderr


@needs_man
def test_man_finds_and_shows_them_by_the_path_as_pip_installs_them(tmp_path: Path) -> None:
    shared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    (place,) = [to for source, to in shared["shared-data"].items() if ROOT / source == STORED]
    (tmp_path / "bin").mkdir()
    shutil.copytree(STORED, tmp_path / place)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAN")}
    environment = {**kept, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}

    def asked(*arguments: str) -> str:
        answer = subprocess.run(["man", *arguments], env=environment, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        return re.sub(".\b", "", answer.stdout)

    assert asked("-w", "koala-submit").strip() == str(tmp_path / place / "koala-submit.1")
    shown = asked("-E", "UTF-8", "koala", "submit")  # the page koala-submit
    assert "koala-submit - Submit job files\n" in shown
    assert "       -o KEY=VALUE\n              Change a key of the job; KEY= unsets it.\n" in shown


def test_the_command_writes_them_and_reports_where_it_cannot(pages: dict[str, str], tmp_path: Path) -> None:
    there = tmp_path / "new" / "man1"
    done = CliRunner().invoke(main.app, ["man", "--to", str(there)])
    assert done.exit_code == 0
    assert {path.name: path.read_text() for path in there.iterdir()} == pages
    refused = CliRunner().invoke(main.app, ["man", "--to", str(there / "koala.1")])
    assert refused.exit_code == 1
    assert "koala: The manual pages cannot be written to " in refused.output
    assert "Name another directory with --to." in refused.output


def test_a_line_is_shown_as_it_is() -> None:
    assert man._escaped(".TH ~/.x -o 'a' \\n\n …é") == "\\&.TH \\(ti/.x \\-o \\(aqa\\(aq \\en ...\\[u00E9]"
