"""`koala run --interactive` and `koala attach`: a real terminal here, and that of a program in a job."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import live
import pexpect
import pytest

from koalapy.model.errors import RequestError

ESCAPE = "\x1d"
PROMPT = "READY>"
# Answers lines, and prints what signals and sizes it gets.
PROGRAM = f"""
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
signal.signal(signal.SIGWINCH, lambda *_: print("window", *os.get_terminal_size(0)[::-1], flush=True))
print("isatty", *map(os.isatty, range(3)), os.environ["KOALA_RANK"], os.environ.get("TERM"), flush=True)
while True:
    sys.stdout.write("{PROMPT} ")
    sys.stdout.flush()
    line = sys.stdin.readline().strip()
    if line.startswith("exit"):
        print("bye", flush=True)
        sys.exit(int(line[4:]))
    print("got", line.upper(), flush=True)
"""


@pytest.fixture
def grid(koala: Any) -> Iterator[Any]:
    koala.known()
    yield koala
    koala.clear()


def terminal(koala: Any, *words: object, rows: int = 30, columns: int = 90) -> Any:
    """`koala` in a terminal of this size."""
    return pexpect.spawn(
        live.COMMAND[0], [*live.COMMAND[1:], *map(str, words)], cwd=koala.work,
        env=koala.environment | {"TERM": "xterm-256color"}, dimensions=(rows, columns), timeout=60,
    )  # fmt: skip


def job_of(child: Any) -> int:
    child.expect(r"job (\d+) accepted")
    return int(child.match[1])


def status_of(child: Any) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus)


def python(*more: object, program: str = PROGRAM) -> list[object]:
    return ["run", "-i", "-n", 1, *more, "--", sys.executable, "-c", program]


def test_keys_sizes_and_signals_reach_the_program_and_its_status_comes_back(grid: Any) -> None:
    child = terminal(grid, *python())
    job = job_of(child)
    child.expect("isatty True True True 0 xterm-256color")
    child.expect("window 30 90")
    child.sendline("some words")
    child.expect("got SOME WORDS")
    child.setwinsize(50, 120)
    child.expect("window 50 120")
    child.send("\x03")
    child.expect("interrupted")
    child.send(ESCAPE + ESCAPE + "x\n")
    child.expect_exact("^]x\r\n")  # as a terminal echoes it
    child.sendline("exit7")
    child.expect("bye")
    assert status_of(child) == 7
    kept = grid("logs", job).out
    assert "got SOME WORDS\r\n" in kept
    assert kept.endswith("bye\r\n")
    found = grid("show", job, "--json").document
    assert found["job"]["priority"] == 0
    assert found["request"]["job"]["interactive"] == "terminal"


def test_a_terminal_is_left_and_found_again_also_by_another_client(grid: Any) -> None:
    child = terminal(grid, *python())
    job = job_of(child)
    child.expect(PROMPT)
    child.sendline("first")
    child.expect("got FIRST")
    grid("attach", job).refused(125, "there is none here to show it")
    second = terminal(grid, "attach", job)
    second.expect(f"A client is attached to job {job} already")
    second.expect("--take")
    assert status_of(second) == 125
    third = terminal(grid, "attach", job, "--take")
    third.expect("got FIRST")  # as it was shown last
    child.expect("another client has taken over")
    assert status_of(child) == 125
    third.send(ESCAPE + "d")
    third.expect(f"detached from job {job}, which runs on")
    assert status_of(third) == 0
    fourth = terminal(grid, "attach", job, "--escape", "^a")
    fourth.expect("got FIRST")
    fourth.expect("window 30 90")  # it draws its screen again, though the size is as before
    fourth.kill(signal.SIGKILL)
    fifth = terminal(grid, "attach", job)
    fifth.expect("got FIRST")
    fifth.sendline("fifth")
    fifth.expect("got FIFTH")
    fifth.kill(signal.SIGHUP)  # its window is closed
    fifth.expect(pexpect.EOF)
    assert grid.job(job)["state"] == "running"
    sixth = terminal(grid, "attach", job)
    sixth.expect("got FIFTH")
    sixth.sendline("exit0")
    sixth.expect("bye")
    assert status_of(sixth) == 0
    assert grid.end(job)["state"] == "done"
    grid("attach", job).refused(125, f"job {job} is done, not running")


def test_a_terminal_outlives_a_killed_koalad(grid: Any) -> None:
    child = terminal(grid, *python("--reconnect", 120))
    job = job_of(child)
    child.expect(PROMPT)
    child.sendline("before")
    child.expect("got BEFORE")
    pid = grid("status", "--json").document["pid"]
    os.kill(pid, signal.SIGKILL)
    child.expect("Waiting for it for 120 s")
    grid.until(lambda: not Path(f"/proc/{pid}").exists())
    assert grid("up").status == 0
    child.expect("got BEFORE")
    child.expect(PROMPT)
    child.sendline("after")
    child.expect("got AFTER")
    child.sendline("exit3")
    assert status_of(child) == 3
    assert grid.end(job)["state"] == "failed"


def test_a_cancelled_shell_ends_by_the_hang_up_of_its_terminal(grid: Any, tmp_path: Path) -> None:
    """It ignores SIGTERM, and would otherwise be killed after the whole grace."""
    mark = tmp_path / "mark"
    child = terminal(grid, "run", "-i", "-n", 1, "--", "/bin/bash", "--norc", "-i")
    job = job_of(child)
    child.sendline(f"trap 'echo hung up >{mark}' EXIT; echo rea''dy")
    child.expect("ready")
    assert grid("cancel", job).status == 0
    child.expect(pexpect.EOF)
    child.close()
    assert grid.end(job)["state"] == "cancelled"
    assert mark.read_text() == "hung up\n"


def test_other_ranks_are_labelled_and_rank_0_has_the_terminal_alone(grid: Any) -> None:
    script = 'if [ -t 0 ]; then read word; echo "read $word"; else echo "rank $KOALA_RANK has none"; fi'
    child = terminal(
        grid, "run", "-i", "-n", 2, "--on", "amsterdam", "-n", 1, "--on", "delft", "--", "/bin/sh", "-c", script
    )
    child.expect(r"\[(0\.1\] rank 1|1\.2\] rank 2) has none\r")
    child.expect(r"\[(0\.1\] rank 1|1\.2\] rank 2) has none\r")
    child.sendline("it")
    child.expect("read it")
    assert status_of(child) == 0


def run(koala: Any, data: bytes, *words: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*live.COMMAND, *map(str, words)], input=data, cwd=koala.work, env=koala.environment, capture_output=True,
        check=False, timeout=120,
    )  # fmt: skip


def test_a_pipe_is_standard_input_up_to_its_end(grid: Any) -> None:
    data = os.urandom(3_000_000)
    done = run(grid, data, "run", "-i", "-n", 1, "--", "/bin/sh", "-c", "test ! -t 0 && cat && exit 5")
    assert done.returncode == 5
    assert done.stdout == data
    assert run(grid, b"", "run", "-i", "-n", 1, "--", "/bin/cat").returncode == 0


@pytest.mark.slow
def test_a_job_that_floods_its_terminal_slows_nothing_down_while_nobody_is_there(grid: Any) -> None:
    program = "import time\nfor number in range(1_400_000): print('line', number)\nprint('flooded', flush=True)\n"
    program += "time.sleep(1000)"
    component = {"processors": 1, "executable": sys.executable, "arguments": ["-c", program]}
    job = grid.submit(component, interactive=True)
    grid.until(lambda: any(each.stat().st_size > 16 << 20 for each in grid.root.rglob("0.out")))
    time.sleep(2)
    assert max(each.stat().st_size for each in grid.root.rglob("0.out")) < (16 << 20) + 100
    with grid.client() as client, client.attach(job) as attached:
        text = b""
        for piece in attached.read():
            text += piece
            if b"flooded" in text:
                break
        assert len(text) < 64 << 20
    assert max(memory_of(process) for process in grid.processes()) < 150_000_000


@pytest.mark.slow
def test_a_client_that_takes_nothing_stops_the_program_and_not_its_memory(grid: Any) -> None:
    component = {"processors": 1, "executable": "/bin/sh", "arguments": ["-c", "yes $(seq 100 | tr '\\n' ' ')"]}
    job = grid.submit(component, interactive=True)
    grid.until(lambda: grid.job(job)["state"] == "running")
    with grid.client() as client, client.attach(job):
        time.sleep(3)
        assert max(memory_of(process) for process in grid.processes()) < 150_000_000
        assert client.terminal(job)["attached"]
    grid.until(lambda: not terminal_of(grid, job)["attached"])


def terminal_of(grid: Any, job: int) -> Any:
    with grid.client() as client:
        return client.terminal(job)


def memory_of(process: int) -> int:
    with suppress(OSError), open(f"/proc/{process}/status") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))
    return 0


def typed_left_and_found_again(koala: Any, *where: object) -> str:
    """Type into a terminal there, leave it, find it again, and end the program. Returns what its first client saw."""
    child = terminal(koala, *python(*where))
    job = job_of(child)
    child.expect("isatty True True True 0 xterm-256color")
    seen = str(child.before)
    child.sendline("first")
    child.expect("got FIRST")
    child.setwinsize(50, 120)
    child.expect("window 50 120")
    child.send("\x03")
    child.expect("interrupted")
    child.send(ESCAPE + "d")
    child.expect(f"detached from job {job}, which runs on")
    assert status_of(child) == 0
    again = terminal(koala, "attach", job)
    again.expect("got FIRST")
    again.sendline("exit5")
    again.expect("bye")
    assert status_of(again) == 5
    return seen


@pytest.mark.slow
def test_a_terminal_over_a_relay_by_files_works_and_the_command_warns_of_it(place: Path) -> None:
    koala = live.Koala(place, {"delft": live.embedded(place)["delft"] | {"relay": "files"}})
    try:
        assert koala("up").status == 0
        seen = typed_left_and_found_again(koala, "--on", "delft")
        assert "delft has `relay: files`, so that a key takes up to seconds." in seen
    finally:
        koala.stop()


@pytest.mark.slow
def test_a_terminal_on_a_pilot_outlives_koalad_and_ends_with_the_pilot(place: Path) -> None:
    koala = live.Koala(place, {"delft": live.embedded(place)["delft"]}, queue_after="1h")
    try:
        assert koala("up").status == 0
        koala.known()
        pilot = koala("pilots", "open", "delft", "-n", 2, "--walltime", "30m", "--json").document["pilot"]["name"]
        koala.until(lambda: pilot in [each["name"] for each in koala("clusters", "--json").document["clusters"]])
        assert "relay: files" not in typed_left_and_found_again(koala, "--on", pilot, "-t", "10m")
        child = terminal(koala, *python("--on", pilot, "-t", "10m", "--reconnect", 120))
        job = job_of(child)
        child.expect(PROMPT)
        koala.kill()
        child.expect("Waiting for it for 120 s")
        assert koala("up").status == 0
        child.expect(PROMPT)
        child.sendline("after")
        child.expect("got AFTER")
        koala("pilots", "close", pilot, "--force")
        assert status_of(child) != 0
        assert koala.end(job)["state"] == "failed"
    finally:
        koala.stop()


def test_what_has_no_terminal_is_refused(grid: Any) -> None:
    job = grid.submit(live.sh("sleep 1000"))
    grid("attach", job).refused(125, f"Job {job} is not interactive")
    grid("attach", 999).refused(125, "There is no job 999")
    grid("run", "-n", 1, "--tty", "--", "/bin/true").refused(125, "need --interactive")
    grid("run", "-i", "-n", 1, "--tty", "--", "/bin/true").refused(125, "no terminal")
    grid("run", "-i", "-n", 1, "--escape", "q", "--", "/bin/true").refused(125, "--escape")
    with grid.client() as client, pytest.raises(RequestError, match="not interactive"):
        client.attach(job)
