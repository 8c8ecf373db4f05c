"""`koala sweep --dry-run`: the commands that it shows, and the errors that it reports, all without a koalad."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from koalapy.cli.main import app


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dry_run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sweep", "--dry-run", *arguments])


def test_the_first_commands_and_the_last_are_shown() -> None:
    answer = dry_run("-p", "x=1:1000000", "-p", "y=a,b,c", "--", "solve", "{x}", "--mode={y}")
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout.splitlines() == [
        "3,000,000 parameters",
        "      1  solve 1 --mode=a",
        "      2  solve 1 --mode=b",
        "      3  solve 1 --mode=c",
        "3000000  solve 1000000 --mode=c",
    ]


def test_zip_combines_values_pairwise() -> None:
    answer = dry_run("-p", "x=1:3", "-p", "y=a,b,c", "--zip", "--json", "--", "solve", "{x}{y}")
    assert answer.exit_code == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert (document["schema"], document["parameters"]) == ("koala.dry-run/1", 3)
    assert [each["command"] for each in document["commands"]] == [["solve", "1a"], ["solve", "2b"], ["solve", "3c"]]


@pytest.mark.parametrize("option", [["--cross"], []])
def test_values_are_crossed_by_default_and_with_cross(option: list[str]) -> None:
    answer = dry_run("-p", "x=1:2", "-p", "y=a,b", *option, "--", "solve", "{x}{y}")
    assert [line.split()[-1] for line in answer.stdout.splitlines()[1:]] == ["1a", "1b", "2a", "2b"]


def test_the_columns_of_a_file_are_parameters(here: Path) -> None:
    (here / "points.csv").write_text("x,label\n0.5,first point\n0.7,second\n")
    answer = dry_run("--csv", "points.csv", "--", "solve", "{x}", "{label}")
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout.splitlines()[1:] == ["1  solve 0.5 'first point'", "2  solve 0.7 second"]


def test_a_program_of_this_directory_is_staged_in(here: Path) -> None:
    (here / "solve.sh").touch()
    assert dry_run("-p", "x=1:2", "--", "./solve.sh", "{x}").stdout.splitlines()[1] == "1  ./solve.sh 1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "x=1:3", "--", "solve"], "x is used nowhere"),
        (["-p", "x=1:3", "--", "solve", "{y}"], "{y}, which is not a parameter"),
        (["-p", "x=1:3:0", "--", "solve", "{x}"], "step of zero"),
        (["-p", "x=3:1", "--", "solve", "{x}"], "never reach"),
        (["-p", "x", "--", "solve", "{x}"], "names no parameter"),
        (["-p", "x=1:3", "-p", "x=1:4", "--", "solve", "{x}"], "given twice"),
        (["-p", "x=1:3", "-p", "y=a,b", "--zip", "--", "solve", "{x}{y}"], "2"),
        (["-p", "x=1:3", "--", "./missing", "{x}"], "no file ./missing"),
        (["--csv", "missing.csv", "--", "solve"], "missing.csv"),
        (["--", "solve"], "no parameters"),
        (["-p", "x=1:3", "--cross", "--zip", "--", "solve", "{x}"], "--cross and --zip exclude each other"),
        (["-p", "x=1:3", "--", "solve", "{x"], "brace"),
        (["-p", "x=1:3", "--", "/", "{x}"], "'/', a directory"),
    ],
)
def test_a_mistake_gives_a_short_error_with_advice(arguments: list[str], words: str) -> None:
    answer = dry_run(*arguments)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("koala: ")
    assert words in answer.stderr
    assert 1 <= len(answer.stderr.splitlines()) <= 2
