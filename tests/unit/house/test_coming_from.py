"""docs/coming-from.md names commands, options, keys, variables and states that exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from koalapy.cli.main import app
from koalapy.languages.jobfile import ComponentFile, JobFile
from koalapy.model.states import JobState

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "coming-from.md").read_text()
SPANS = re.findall(r"`([^`\n]+)`", PAGE)
KEYS = {*JobFile.model_fields, *ComponentFile.model_fields}


def of_koala() -> Iterator[str]:
    """Return the words between backticks in the last column of each table of six columns."""
    for line in PAGE.splitlines():
        cells = line.split("|")[1:-1]
        if len(cells) == 6:
            yield from re.findall(r"`([^`]+)`", cells[-1])


def commands() -> list[str]:
    """Each line of a shell that calls koala."""
    calls = [part.strip() for span in SPANS for part in re.split(r"&&|;", span)]
    return sorted({call for call in calls if call.startswith("koala ")})


def wrong_in(call: str) -> str | None:
    """The first word of a call that koala does not know; None if it knows all."""
    command: Any = get_command(app)
    words = shlex.split(call)[1:]
    while hasattr(command, "get_command"):
        name = words.pop(0)
        command = command.get_command(None, name)
        if command is None:
            return name
    options = {name: each for each in command.params if each.param_type_name == "option" for name in each.opts}
    while words and (word := words.pop(0)) != "--":
        if not word.startswith("-"):
            continue
        if word not in options:
            return word
        if not options[word].is_flag:
            words.pop(0)
    return None


@pytest.mark.parametrize("call", commands())
def test_a_command_and_its_options_exist(call: str) -> None:
    assert wrong_in(call) is None


def test_a_command_or_option_that_does_not_exist_is_found() -> None:
    assert len(commands()) > 30
    assert wrong_in("koala sbatch job.yaml") == "sbatch"
    assert wrong_in("koala run -n 4 --array 3 -- PROG") == "--array"
    assert wrong_in("koala config test") == "test"
    assert wrong_in("koala run -n 4 -- PROG --array") is None


def test_a_key_exists() -> None:
    named = {span.split(":")[0] for span in SPANS if re.match(r"[a-z_]+:( |$)", span)}
    assert len(named) > 25
    assert named <= KEYS


def test_a_variable_and_a_state_exist() -> None:
    named = [*of_koala()]
    variables = {span for span in named if span.startswith("KOALA_")}
    assert len(variables) == 6
    job_file = (DOCS / "job-file.md").read_text()
    assert all(f"`{each}`" in job_file for each in variables)
    assert {span for span in named if span.isalpha() and span.islower()} == {str(state) for state in JobState}
