"""`koala demo` as a real process: what it shows, what it answers, and that nothing of it is left."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from koalapy.answers.jobs import Job
from koalapy.api import openapi  # noqa: F401  it configures the types of answers

KOALA = [sys.executable, "-m", "koalapy.cli.main"]
PATIENCE_S = 240
DYING_S = 20  # on a busy machine whoever was killed has its files open for a moment still
CLUSTERS = ["amsterdam", "delft", "leiden"]
STATES = {"unordered": "done", "ordered": "done", "retried": "done", "mistaken": "failed"}


class Place:
    """Home, temporary and working directory of a demo, and whatever is found of it afterwards."""

    def __init__(self, root: Path) -> None:
        self.home, self.tmp, self.cwd = root / "home", root / "tmp", root / "cwd"
        for directory in (self.home, self.tmp, self.cwd):
            directory.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "KOALA_"))}
        self.environment = kept | {"HOME": str(self.home), "TMPDIR": str(self.tmp), "TERM": "xterm"}

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*KOALA, "demo", *arguments],
            cwd=self.cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def start(self, stdout: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*KOALA, "demo"], cwd=self.cwd, env=self.environment, stdout=stdout, stderr=stdout, start_new_session=True
        )

    def files(self) -> list[Path]:
        return [path for directory in (self.home, self.tmp, self.cwd) for path in directory.rglob("*")]

    def processes(self) -> list[str]:
        """Return processes whose command line, environment, directory or open files name the temporary directory."""
        name = os.fsencode(self.tmp)
        return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and mentions(entry, name)]

    def assert_clean(self) -> None:
        assert self.files() == []
        deadline = time.monotonic() + DYING_S
        while left := self.processes():
            assert time.monotonic() < deadline, left
            time.sleep(0.01)


def mentions(process: Path, name: bytes) -> bool:
    said = []
    reads: tuple[Callable[[], bytes], ...] = (
        lambda: (process / "cmdline").read_bytes(),
        lambda: (process / "environ").read_bytes(),
        lambda: os.fsencode(os.readlink(process / "cwd")),
        lambda: b"\n".join(os.fsencode(os.readlink(entry)) for entry in (process / "fd").iterdir()),
    )
    for read in reads:
        try:
            said.append(read())
        except OSError:  # it has ended meanwhile
            continue
    return any(name in each for each in said)


@pytest.fixture
def place() -> Iterator[Place]:
    """A short path: a Unix socket lies in it."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as root:
        place = Place(Path(root))
        yield place
        place.assert_clean()


def test_its_document_has_all_four_jobs(place: Place) -> None:
    done = place.run("--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(document) == {"schema", "jobs", "seconds"}
    assert document["schema"] == "koala.demo/1"
    jobs = {job["name"]: job for job in document["jobs"]}
    assert {name: job["state"] for name, job in jobs.items()} == STATES
    for job in document["jobs"]:
        TypeAdapter(Job).validate_python(job)
    check_jobs(jobs)


def check_jobs(jobs: dict[str, Any]) -> None:
    unordered, ordered = jobs["unordered"], jobs["ordered"]
    assert unordered["type"] == "unordered"
    assert sorted(each["cluster"] for each in unordered["components"]) == CLUSTERS
    assert ordered["type"] == "ordered"
    assert [each["cluster"] for each in ordered["components"]] == CLUSTERS[:2]
    for job in (unordered, ordered):
        assert all(each["exit_status"] == 0 for each in job["components"])
        assert max(each["at_barrier_at"] for each in job["components"]) <= min(
            each["started_at"] for each in job["components"]
        )
    assert jobs["retried"]["completion_failures"] == 1
    assert jobs["retried"]["components"][0]["attempt"] == 2
    assert jobs["mistaken"]["reason_code"] == "no_executable"
    assert "./no-such-program does not exist" in jobs["mistaken"]["reason"]


def test_piped_it_writes_plain_lines_and_a_summary(place: Place) -> None:
    done = place.run()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["1", "unordered"]
    for number, (name, state) in enumerate(STATES.items(), 1):
        assert any(line.split()[:3] == [str(number), name, state] for line in lines)
    assert lines[-9].split() == ["ID", "NAME", "TYPE", "STATE", "CLUSTERS", "RETRIES", "REASON"]
    assert re.fullmatch(r"4 jobs, 4 releases of a whole job, [\d.]+ s; nothing is left behind\.", lines[-4])
    assert "`mistaken` fails on purpose" in lines[-3]
    assert "`koala init`" in lines[-2]


class Terminal:
    """A demo under a pseudo-terminal, and all that it has drawn."""

    def __init__(self, place: Place) -> None:
        self._master, slave = pty.openpty()
        self.process = place.start(slave)
        os.close(slave)
        self.shown = b""

    def until(self, seen: Callable[[bytes], bool]) -> None:
        """Read on until then, or to the end."""
        deadline = time.monotonic() + PATIENCE_S
        while not seen(self.shown):
            assert select.select([self._master], [], [], deadline - time.monotonic())[0], self.shown
            try:
                self.shown += os.read(self._master, 65_536)
            except OSError:  # what Linux returns at the end of a pseudo-terminal
                return

    def end(self) -> int:
        self.until(lambda shown: False)
        os.close(self._master)
        return self.process.wait(PATIENCE_S)


def test_on_a_terminal_a_live_table_is_drawn_again_and_again(place: Place) -> None:
    terminal = Terminal(place)
    assert terminal.end() == 0, terminal.shown
    shown = terminal.shown.decode()
    assert "\x1b[?25l" in shown  # the cursor is hidden while it is drawn
    assert "\x1b[1A" in shown or "\x1b[2K" in shown  # lines are drawn over
    drawn = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    assert drawn.count("COMPONENTS") > 1
    assert "delft: running" in drawn
    assert "nothing is left behind" in drawn


# Each moment and each signal once: one handler serves all three. A second SIGINT while they run has a test of its own.
INTERRUPTS = [("unordered", signal.SIGINT), ("claiming", signal.SIGHUP), ("running", signal.SIGTERM)]


@pytest.mark.parametrize(("moment", "number"), INTERRUPTS)
def test_interrupted_it_leaves_nothing_behind(place: Place, moment: str, number: signal.Signals) -> None:
    terminal = Terminal(place)
    terminal.until(lambda shown: moment.encode() in shown)
    terminal.process.send_signal(number)
    assert terminal.end() == 130, terminal.shown
    assert b"koala: interrupted." in terminal.shown
    assert b"Traceback" not in terminal.shown


def test_interrupted_while_koalad_starts_it_leaves_nothing_behind(place: Place) -> None:
    process = place.start(subprocess.PIPE)
    assert process.stdout is not None
    deadline = time.monotonic() + PATIENCE_S
    while not list(place.tmp.glob("koala-demo-*/state/koala/demo/koalad.log")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert b"Traceback" not in said


def test_a_second_interrupt_does_not_cut_the_tidying_short(place: Place) -> None:
    terminal = Terminal(place)
    terminal.until(lambda shown: b"running" in shown)
    while terminal.process.poll() is None:
        terminal.process.send_signal(signal.SIGINT)
        try:
            terminal.process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    terminal.end()
    assert b"Traceback" not in terminal.shown
