"""The processes below a node agent, stopped and continued: real ones."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from koalapy_adapters import clock
from koalapy_adapters.host import descendants
from koalapy_adapters.wrapper.agent.suspension import POLL_EVERY, Suspension

COUNT = """
import os, sys, time
child = os.fork()  # both count, each in a file of its own
path = sys.argv[1] + ("parent" if child else "child")
for number in range(10**9):
    with open(path, "w") as file:
        file.write(str(number))
    time.sleep(0.01)
"""


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], list[str]]]]:
    """A program of two processes that count, and what they have counted."""
    program = subprocess.Popen([sys.executable, "-c", COUNT, f"{tmp_path}/"])
    files = [tmp_path / "parent", tmp_path / "child"]
    until(lambda: all(each.exists() for each in files))
    yield program, lambda: [each.read_text() for each in files]
    for pid in [program.pid, *descendants.descendants(program.pid)]:
        os.kill(pid, signal.SIGKILL)
    program.wait()


def stopped(program: subprocess.Popen[bytes]) -> list[bool]:
    return [descendants.is_stopped(pid) for pid in [program.pid, *descendants.descendants(program.pid)]]


def test_a_suspended_program_makes_no_progress_and_goes_on(
    counting: tuple[subprocess.Popen[bytes], Callable[[], list[str]]],
) -> None:
    program, count = counting
    suspension = Suspension()
    suspension.begin(clock.now())
    until(lambda: stopped(program) == [True, True])
    before = count()
    time.sleep(0.2)
    assert count() == before
    suspension.end()
    assert suspension.look_at is None
    until(lambda: all(now not in ("", then) for now, then in zip(count(), before, strict=True)))


def test_what_somebody_else_continues_is_stopped_again(
    counting: tuple[subprocess.Popen[bytes], Callable[[], list[str]]],
) -> None:
    program, _ = counting
    suspension = Suspension()
    now = clock.now()
    suspension.begin(now)
    until(lambda: stopped(program) == [True, True])
    program.send_signal(signal.SIGCONT)
    until(lambda: stopped(program) == [False, True])
    suspension.tick(now + POLL_EVERY)
    until(lambda: stopped(program) == [True, True])
    suspension.end()
    until(lambda: stopped(program) == [False, False])


def test_a_process_that_was_stopped_before_stays_so(
    counting: tuple[subprocess.Popen[bytes], Callable[[], list[str]]],
) -> None:
    program, _ = counting
    (child,) = descendants.descendants(program.pid)
    os.kill(child, signal.SIGSTOP)
    until(lambda: stopped(program) == [False, True])
    suspension = Suspension()
    suspension.begin(clock.now())
    until(lambda: stopped(program) == [True, True])
    suspension.end()
    until(lambda: stopped(program) == [False, True])
