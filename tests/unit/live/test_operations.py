"""The commands of operators, on a real koalad: usage and top."""

import csv
import fcntl
import io
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pyte
import pytest

from koalapy.api import openapi


@pytest.fixture(scope="module")
def done(koala: Any) -> int:
    """A job of two components that has ended."""
    koala.known()
    job = koala.submit(live.sh("sleep 1", 2, cluster="delft"), live.sh("true", 1, cluster="leiden"), name="poisson")
    assert koala.end(job)["state"] == "done"
    return int(job)


# ---- usage


def test_usage_by_cluster_has_what_the_job_used(koala: Any, done: int) -> None:
    document = koala("usage", "--by", "cluster", "--json").document
    openapi.check(document)
    rows = {row["cluster"]: row for row in document["rows"]}
    assert set(rows) == {"delft", "leiden"}
    assert rows["delft"]["run"] > 0
    assert rows["delft"]["held"] > 0
    assert document["total"]["total"] == pytest.approx(sum(row["total"] for row in rows.values()))
    assert document["total"]["attempts"] == 2


def test_usage_is_the_same_whatever_it_is_summed_by(koala: Any, done: int) -> None:
    totals = [koala("usage", "--by", by, "--json").document["total"] for by in ("user", "cluster", "job", "day")]
    assert totals == totals[:1] * 4


def test_usage_as_lines_of_values_and_as_a_table(koala: Any, done: int) -> None:
    lines = list(csv.DictReader(io.StringIO(koala("usage", "--by", "job", "--csv").out)))
    assert [(line["job"], line["name"], line["attempts"]) for line in lines] == [(str(done), "poisson", "2")]
    table = koala("usage", "--by", "cluster").out
    assert table.splitlines()[0].split()[:3] == ["CLUSTER", "RUN", "HELD"]
    assert "total" in table
    assert "processor seconds" in table
    assert "ON PILOTS" not in table
    assert "ESTIMATED" in table.splitlines()[-1]


def test_usage_of_a_time_in_which_nothing_ran_is_nothing(koala: Any, done: int) -> None:
    document = koala("usage", "--since", "2001-01-01", "--until", "2001-02-01", "--json").document
    assert (document["rows"], document["total"]["total"]) == ([], 0)
    assert koala("usage", "--since", "1h", "--json").document["total"]["attempts"] == 2
    koala("usage", "--since", "yesterday").refused(2, "'yesterday'")


def test_usage_outlives_koalad(koala: Any, done: int) -> None:
    before = koala("usage", "--by", "job", "--json").document
    koala("down")
    assert koala("up").status == 0
    assert koala("usage", "--by", "job", "--json").document == before


# ---- top

TITLES = ("CLUSTERS", "QUEUE", "RUNNING", "SWEEPS")
TOP = Path(__file__).parents[3] / "docs" / "top.md"


class Terminal:
    """A real terminal of this size with `koala top` on it, and what is to be seen there."""

    def __init__(self, koala: Any, columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._main, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (lines, columns))
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        environment = {name: value for name, value in koala.environment.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [*live.COMMAND, "top"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )

    def read(self, timeout_s: float = live.PATIENCE_S) -> bool:
        """Draw what comes next. False: nothing came."""
        if not select.select([self._main], [], [], timeout_s)[0]:
            return False
        data = os.read(self._main, 65_536)
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def until(self, found: Callable[[list[str]], bool]) -> list[str]:
        deadline = time.monotonic() + live.PATIENCE_S
        while not found(self.lines):
            assert time.monotonic() < deadline, self.lines
            assert self.read(), self.lines
        return self.lines

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def press(self, keys: bytes) -> int:
        """The exit status. Ctrl-C is a key of the terminal's."""
        os.write(self._main, keys)
        deadline = time.monotonic() + live.PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.lines
            self.read(0.05)
        while self.read(0.0):
            pass
        return self.process.returncode

    @property
    def is_as_before(self) -> bool:
        """Its modes, its cursor, and the screen that was there."""
        shown, hidden = self.raw.rfind(b"\x1b[?25h"), self.raw.rfind(b"\x1b[?25l")
        left, entered = self.raw.rfind(b"\x1b[?1049l"), self.raw.rfind(b"\x1b[?1049h")
        return termios.tcgetattr(self._theirs) == self.before and shown > hidden and left > entered >= 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)
        os.close(self._theirs)


@pytest.fixture
def busy(koala: Any, done: int) -> Iterator[None]:
    """A job that runs, one that waits, and a sweep, which has a cluster of its own."""
    koala.known()
    koala.submit(live.sh("sleep 600", 3, cluster="delft"), live.sh("sleep 600", 2, cluster="leiden"), name="poisson")
    koala.until(lambda: [each["ours"] for each in known_clusters(koala)] == [0, 3, 2])
    koala.submit(live.sh("true", 3, cluster="delft"), name="next", when_busy="wait")
    sweep = koala("sweep", "--name", "scan", "-p", "x=1:100000", "--", "/bin/sh", "-c", "sleep 0.2", "{x}")
    assert sweep.status == 0, sweep
    yield
    koala.clear()


def known_clusters(koala: Any) -> list[Any]:
    with koala.client() as grid:
        return list(grid.clusters())


def words(seen: list[str]) -> set[str]:
    """Return the words of a full screen that can be seen."""
    return {word for word in ("▓", "/min", "QUEUE (1)") if any(word in line for line in seen)}


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_top_draws_all_on_one_screen_and_leaves_it_as_it_was(koala: Any, busy: None, columns: int, lines: int) -> None:
    """With KOALA_CAPTURE=1 what is drawn becomes the picture in docs/top.md."""
    terminal = Terminal(koala, columns, lines)
    try:
        drawn = terminal.until(lambda seen: "commits/s" in seen[0] and {"▓", "/min", "QUEUE (1)"} <= words(seen))
        assert [line.split()[0] for line in drawn if line.split(" (")[0] in TITLES] == list(TITLES)
        assert len([line for line in drawn if "[" in line and "idle" in line]) == 3
        assert any("next" in line and "delft" in line for line in drawn)
        assert any("poisson" in line and "delft:3 leiden:2" in line for line in drawn)
        if os.environ.get("KOALA_CAPTURE"):
            capture(columns, lines, drawn)
        assert terminal.press(b"q") == 0
        assert terminal.is_as_before
    finally:
        terminal.close()


def test_ctrl_c_leaves_top_cleanly(koala: Any, done: int) -> None:
    terminal = Terminal(koala, 80, 24)
    try:
        terminal.until(lambda seen: any(line.startswith("SWEEPS") for line in seen))
        assert terminal.press(b"\x03") == 0
        assert terminal.is_as_before
        assert b"Traceback" not in terminal.raw
    finally:
        terminal.close()


def test_top_once_and_as_a_document(koala: Any, busy: None) -> None:
    plain = koala("top", "--once")
    assert [line.split(" (")[0] for line in plain.out.splitlines() if line.split(" (")[0] in TITLES] == list(TITLES)
    assert "\x1b" not in plain.out
    document = koala("top", "--json").document
    assert document["schema"] == "koala.top/1"
    assert [job["name"] for job in document["queue"]] == ["next"]
    assert document["queue"][0]["reason"]
    assert {job["name"] for job in document["running"]} == {"poisson"}
    assert [sweep["name"] for sweep in document["sweeps"]] == ["scan"]
    assert document["load"]["memory_bytes"] > 0


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_the_pictures_in_the_documentation_are_of_their_size(columns: int, lines: int) -> None:
    picture = pictures(TOP.read_text())[columns, lines]
    assert len(picture) <= lines
    assert max(map(len, picture)) <= columns
    assert [line.split(" (")[0] for line in picture if line.split(" (")[0] in TITLES] == list(TITLES)


def pictures(text: str) -> dict[tuple[int, int], list[str]]:
    found = re.findall(r"^## (\d+) x (\d+)\n\n```text\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    return {(int(columns), int(lines)): picture.splitlines() for columns, lines, picture in found}


def capture(columns: int, lines: int, drawn: list[str]) -> None:
    picture = "\n".join(drawn).rstrip()
    pattern = re.compile(rf"(^## {columns} x {lines}\n\n```text\n).*?(\n```$)", re.MULTILINE | re.DOTALL)
    TOP.write_text(pattern.sub(lambda match: match[1] + picture + match[2], TOP.read_text()))
