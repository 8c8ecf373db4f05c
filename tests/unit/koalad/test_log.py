"""koalad's log: its two formats, and the bounds of its file."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

PRINT = """
import structlog, sys
from pathlib import Path
from koalapy.koalad.log import LogFormat, set_up
wanted, file, lines = sys.argv[1:]
set_up(LogFormat(wanted) if wanted else None, Path(file) if file else None, 2_000)
log = structlog.get_logger()
for number in range(int(lines)):
    log.info("job_submitted", job=number, owner="me")
try:
    raise ValueError("no good")
except ValueError:
    log.exception("driver_broke")
"""


def write(wanted: str = "", lines: int = 1) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PRINT, wanted, "", str(lines)], capture_output=True, check=True)
    assert done.stdout == b""
    return done.stderr.decode().splitlines()


@pytest.mark.parametrize("wanted", ["", "json"])
def test_a_file_gets_one_json_object_a_line(wanted: str) -> None:
    first, broke = map(json.loads, write(wanted))
    assert (first["event"], first["job"], first["owner"], first["level"]) == ("job_submitted", 0, "me", "info")
    assert first["timestamp"].endswith("Z")
    assert "ValueError: no good" in broke["exception"]


def test_text_is_for_people() -> None:
    first, *broke = write("text")
    assert "job_submitted" in first
    assert "job=0" in first
    assert "{" not in first
    assert "ValueError: no good" in "\n".join(broke)


def test_a_terminal_gets_text_and_json_on_request() -> None:
    assert "job=" in on_a_terminal("").replace("\x1b[36mjob\x1b[0m=", "job=")
    assert json.loads(on_a_terminal("json").splitlines()[0])["job"] == 0


def on_a_terminal(wanted: str) -> str:
    main, terminal = pty.openpty()
    subprocess.run([sys.executable, "-c", PRINT, wanted, "", "1"], stderr=terminal, check=True)
    os.close(terminal)
    text = os.read(main, 65_536).decode()
    os.close(main)
    return text


def run_into(file: Path, lines: int) -> None:
    with file.open("ab") as log:
        subprocess.run([sys.executable, "-c", PRINT, "json", str(file), str(lines)], stdout=log, stderr=log, check=True)


def test_a_log_file_keeps_its_bounds_and_one_older_file(tmp_path: Path) -> None:
    file = tmp_path / "koalad.log"
    run_into(file, 200)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["koalad.log", "koalad.log.1"]
    assert all(path.stat().st_size < 3_000 for path in tmp_path.iterdir())
    lines = [
        json.loads(line)
        for name in ("koalad.log.1", "koalad.log")
        for line in (tmp_path / name).read_text().splitlines()
    ]
    jobs = [line["job"] for line in lines[:-1]]
    assert jobs == list(range(jobs[0], 200))  # no line is lost at the turn
    assert lines[-1]["event"] == "driver_broke"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_another_process_has_turned_over_is_left_alone(tmp_path: Path) -> None:
    """Standing by on one host, two koalad have one log file."""
    file, old = tmp_path / "koalad.log", tmp_path / "koalad.log.1"
    code = PRINT.replace(
        "for number", "import os; os.rename(file, file + '.1'); Path(file).write_text('new\\n')\nfor number"
    )
    file.write_text("x" * 2_500 + "\n")
    with file.open("ab") as log:
        subprocess.run([sys.executable, "-c", code, "json", str(file), "1"], stdout=log, stderr=log, check=True)
    assert old.read_text() == "x" * 2_500 + "\n"
    assert file.read_text().startswith("new\n")
    assert len(file.read_text().splitlines()) == 3
