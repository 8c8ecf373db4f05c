"""Words of programs, files and logins on a real terminal: no control character of theirs reaches it."""

import contextlib
import json
import os
import pty
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest

EVIL = "\x1b[31mRED\x1b]0;owned\a\x1b[2J\u202edetrevni\x9b5m"
SHOWN = r"\x1b[31mRED\x1b]0;owned\x07\x1b[2J\u202edetrevni\x9b5m"
OWN = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K|\r")  # what rich itself writes
FOREIGN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def grid() -> Iterator[Any]:
    """A cluster that works, and one whose login prints what it should not."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as root:
        place = Path(root)
        clusters = live.embedded(place)
        hostile = place / "login"
        hostile.write_text(f"#!/bin/sh\n{octal(EVIL)} >&2\nexit 3\n")
        hostile.chmod(0o755)
        clusters["leiden"] = {**clusters["leiden"], "connect": f"command:{hostile}"}
        made = live.Koala(place, clusters)
        assert made("up").status == 0
        yield made
        made.stop()


@pytest.fixture(scope="module")
def job(grid: Any) -> int:
    """A job whose `setup` prints it and fails."""
    return ended(grid, grid.submit(live.sh("true", cluster="amsterdam", setup=[f"{octal(EVIL)} >&2; exit 3"])))


def octal(text: str) -> str:
    """A line of sh that prints the text."""
    return "printf '" + "".join(f"\\{byte:03o}" for byte in text.encode()) + "'"


def ended(grid: Any, job: int) -> int:
    grid.end(job)
    return job


def on_a_terminal(grid: Any, *arguments: object) -> str:
    """Return the visible text, without what rich writes to draw it. Fails if anything else could move the terminal."""
    ours, theirs = pty.openpty()
    environment = grid.environment | {"TERM": "xterm-256color", "COLUMNS": "400", "LANG": "C.UTF-8"}
    argv = [*live.COMMAND, *map(str, arguments)]
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=grid.work) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # what Linux returns at the end of a pseudo-terminal
            while more := os.read(ours, 65_536):
                seen += more
        process.wait(live.CALL_S)
    os.close(ours)
    for raw in (b"\x1b[31mRED", b"\x1b]0;", b"\x1b[2J", b"\a"):
        assert raw not in seen, seen
    text = OWN.sub(b"", seen).decode()
    assert not FOREIGN.search(text), repr(text)
    return text


@pytest.mark.parametrize("command", ["show", "explain"])
def test_what_a_setup_line_printed(grid: Any, job: int, command: str) -> None:
    assert SHOWN in on_a_terminal(grid, command, job)


def test_the_list_of_jobs(grid: Any, job: int) -> None:
    assert f"{job} " in on_a_terminal(grid, "jobs")


@pytest.mark.parametrize("command", ["status", "clusters"])
def test_what_a_login_printed(grid: Any, command: str) -> None:
    grid.until(lambda: any("RED" in str(each["reason"]) for each in grid("clusters", "--json").document["clusters"]))
    assert SHOWN in on_a_terminal(grid, command)


def test_an_examination(grid: Any) -> None:
    assert SHOWN in on_a_terminal(grid, "doctor", "leiden")
    assert SHOWN in grid("doctor", "leiden").out


def test_names_of_files_that_a_program_left(grid: Any) -> None:
    """One of them cannot be written here: a directory is in its way."""
    left = live.sh(f'{octal(EVIL)} >"$({octal("f" + EVIL)})"', cluster="amsterdam")
    (grid.work / f"f{EVIL}").mkdir()
    job = ended(grid, grid.submit(left, stage_out=["f*"]))
    commands: list[tuple[str, int]] = [("show", job), ("fetch", job), ("explain", job)]
    for command in commands:
        shown = on_a_terminal(grid, *command)
        assert "f" + SHOWN in shown or command[0] == "explain", shown
    brought = on_a_terminal(grid, "fetch", job, "f*", "--to", grid.work / "brought")
    assert "1 file," in brought
    assert [path.name for path in (grid.work / "brought").iterdir()] == [f"f{EVIL}"]


def test_logs_are_passed_on_as_they_are(grid: Any) -> None:
    """As cat does."""
    job = ended(grid, grid.submit(live.sh(octal(EVIL), cluster="amsterdam")))
    assert grid("logs", job).out == EVIL


@pytest.mark.parametrize("command", ["show", "explain"])
def test_documents_hold_no_control_character(grid: Any, job: int, command: str) -> None:
    answer = grid(command, job, "--json")
    assert not FOREIGN.search(answer.out)
    assert json.dumps(SHOWN) in answer.out  # spelled out at the border already
    assert answer.document["schema"].startswith("koala.")


def test_the_log_has_one_line_for_each_event(grid: Any, job: int) -> None:
    log = (grid.root / "state" / "koala" / "live" / "koalad.log").read_bytes()
    assert b"\x1b" not in log
    assert all(line.startswith(b"{") and line.endswith(b"}") for line in log.splitlines())
