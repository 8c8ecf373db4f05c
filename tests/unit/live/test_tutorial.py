"""docs/tutorial.md does what it describes: each of its commands is run, in order, from an empty home."""

import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
INSTALLED_BY = ["python3 -m venv .venv", ".venv/bin/pip install '.[demo]'", ". .venv/bin/activate"]
PATIENCE_S = 240
LEFT_OUT = "…"

# What differs from one run to the next, and what stands for it.
VARYING = [
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"\(pid \d+\)", "(pid N)"),
    (r"\b(\d+h)?(\d+m)?\d+s\b|\b\d+m\b( ago)?| ago\b", "SPAN"),
    (r"\b(slots:|amsterdam has|delft has) \d+", r"\1 N"),
    (r"^((amsterdam|delft) local 1 up) \d+ \d+", r"\1 N N"),
]
# Printed of jobs and sweeps while they are waited for: on a fast machine never.
PROGRESS = re.compile(r"job \d+ is (waiting|claiming|running|stopping)\b|job \d+: |(sweep|job) \d+: \d+ of \d+ done")


class Step(NamedTuple):
    """A command, and what the page prints below it; or a file that the reader is to write."""

    command: str
    printed: list[str]
    file: str = ""


def steps() -> list[Step]:
    """The page's, in order."""
    found: list[Step] = []
    blocks = re.finditer(r"^```(\w+)\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)
    for block in blocks:
        kind, body = block.groups()
        if kind == "console":
            assert body.startswith("$ "), body
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, *printed = part.splitlines()
                found.append(Step(command, printed))
        else:
            name = re.findall(r"`([\w.]+)`", TUTORIAL[: block.start()])[-1]
            found.append(Step("", body.splitlines(), name))
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path, since a Unix socket lies in its home; whatever runs there is ended."""
    with tempfile.TemporaryDirectory(prefix="kt", dir="/tmp") as root:
        (Path(root) / "home").mkdir()
        (Path(root) / "work").mkdir()
        yield Path(root)
        subprocess.run([koala(), "down", "--cancel"], env=environment(Path(root)), capture_output=True, timeout=60)


def koala() -> str:
    """That of the Python which runs this test."""
    found = shutil.which("koala", path=str(Path(sys.executable).parent))
    assert found, "koala is not installed beside this Python"
    return found


def environment(place: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "KOALA_", "LC_"))}
    path = f"{Path(koala()).parent}:{os.environ['PATH']}"
    return {**kept, "HOME": str(place / "home"), "PATH": path, "LANG": "C.UTF-8"}


def test_the_install_lines_are_those_of_setup() -> None:
    commands = [step.command for step in steps()]
    assert commands[:3] == INSTALLED_BY
    setup = (ROOT / "setup").read_text()
    assert '"$python" -m venv .venv' in setup
    assert ".venv/bin/pip install" in setup
    assert "set -- '.[demo" in setup  # what it installs if nothing else is named


def test_each_command_prints_what_the_page_shows(place: Path) -> None:
    script, wanted = [f"cd {shlex.quote(str(place / 'work'))}"], list[Any]()
    for step in steps()[len(INSTALLED_BY) :]:
        if step.file:
            (place / "work" / step.file).write_text("\n".join(step.printed) + "\n")
            continue
        # In one shell, so that `$?` is the last command's; each command with a file of its own.
        before = '(exit "$status"); ' if script[1:] else ""
        script.append(f"{before}{step.command} >../{len(wanted)}.out 2>&1; status=$?")
        wanted.append(step)
    run = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        env=environment(place), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert run.stdout + run.stderr == ""
    assert len(wanted) > 15
    for number, step in enumerate(wanted):
        printed = (place / f"{number}.out").read_text().splitlines()
        assert shows(comparable(printed, place), comparable(step.printed, place)), "\n".join([step.command, *printed])


def comparable(lines: list[str], place: Path) -> list[str]:
    """Without what varies, columns one blank apart, and followed lines process by process."""
    found = []
    for line in lines:
        line = line.replace(str(place / "home"), "/home/you")
        for ours, theirs in ((socket.gethostname(), "laptop"), (pwd.getpwuid(os.getuid()).pw_name, "you")):
            line = re.sub(rf"(?<![\w/-]){re.escape(ours)}(?![\w/-])", theirs, line)
        line = " ".join(line.split())
        for pattern, instead in VARYING:
            line = re.sub(pattern, instead, line)
        if not PROGRESS.match(line):
            found.append(re.sub(r"(SPAN ?)+", "SPAN ", line).strip())
    return sorted(found) if found and all(line.startswith("[") for line in found) else found


def shows(printed: list[str], wanted: list[str]) -> bool:
    """Return whether all lines are as wanted, where … stands for any lines, or for the rest of one."""
    pattern = "".join(
        "(.*\n)*" if line == LEFT_OUT else re.escape(line).replace(re.escape(LEFT_OUT), ".*") + "\n" for line in wanted
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def test_lines_that_are_not_as_wanted_are_distinguished() -> None:
    assert shows(["a", "b", "c 1"], ["a", "…", "c …"])
    assert not shows(["a", "b"], ["a"])
    assert not shows(["a"], ["a", "b"])
    assert not shows(["c"], ["a", "…"])
