"""The options that docs/commands.md promises of all commands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from koalapy.cli.main import app

PAGE = " ".join((Path(__file__).parents[3] / "docs" / "commands.md").read_text().split())


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Each command that does something, by its words, with its options."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*words, name))
        if not command.invoke_without_command:
            return
    yield " ".join(words), {option for each in command.params for option in each.opts}


@pytest.mark.parametrize(
    ("option", "sentence"),
    [("--grid", r"are about no single grid do not: (.*?)\. "), ("--json", r"All but (.*?) take `--json`")],
)
def test_every_command_has_the_option_but_those_that_the_page_names(option: str, sentence: str) -> None:
    named = re.findall(r"`([a-z ]+)`", re.findall(sentence, PAGE)[0])
    lacking = [name for name, options in commands(get_command(app)) if name and option not in options]
    assert {each for each in lacking if not any(f"{each} ".startswith(f"{one} ") for one in named)} == set()
    assert {one for one in named if not any(f"{each} ".startswith(f"{one} ") for each in lacking)} == set()
