"""Output that is followed while what carries it is killed and paused: every line once, whole, in order of its rank."""

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import live
import pytest
import yaml

from koalapy.client.following import Reconnecting

Document = dict[str, Any]
LINES = 240
SCRIPT = f"""
i=0
while [ $i -lt {LINES} ]; do
    printf 'rank %s ' $KOALA_RANK; i=$((i+1)); printf 'line %s of many\\n' $i
    [ $i -lt 60 ] || until [ -e GATE ]; do sleep 0.05; done
    sleep 0.02
done
printf 'rank %s has no end' $KOALA_RANK
"""


def kcms(koala: Any, cluster: str) -> list[int]:
    """The processes of its KCM; helpers of it are no KCM."""
    name = os.fsencode(koala.root / cluster / "bin")
    found = []
    for process in koala.processes():
        words = []
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        if words[-2:-1] == [b"kcm"] and any(word.startswith(name) for word in words):
            found.append(process)
    return found


def lines_of(said: bytes) -> dict[str, list[str]]:
    """By label; each must be of the rank in its label."""
    found: dict[str, list[str]] = {}
    for line in said.decode().splitlines():
        label, _, rest = line.partition("] ")
        assert rest.startswith(f"rank {label.split('.')[1]} "), line
        found.setdefault(label, []).append(rest)
    return found


def test_every_line_comes_once_over_killed_and_paused_kcms(fresh: Any, shell: Callable[..., Document]) -> None:
    """By `koala run`'s way, by `koala logs -f` and by `Grid.output`, which all begin before the first line."""
    assert fresh("up").status == 0
    fresh.known()
    gate = fresh.work / "gate"
    script = SCRIPT.replace("GATE", str(gate))
    places = ["-n", 2, "--on", "amsterdam", "-n", 2, "--on", "delft"]
    run = fresh.start("run", *places, "--", "sh", "-c", script)
    said: dict[str, bytes] = {}

    def read(name: str, process: Any) -> None:
        said[name] = process.communicate()[0]

    fresh.until(lambda: [job for job in fresh.ids() if fresh.job(job)["components"][1]["started_at"]])
    [job] = fresh.ids()
    with fresh.client() as grid:
        follow = threading.Thread(target=lambda: said.update(grid=b"".join(grid.output(job, follow=True))))
        readers = [
            follow,
            threading.Thread(target=read, args=("run", run)),
            threading.Thread(target=read, args=("logs", fresh.start("logs", "-f", job))),
        ]
        for reader in readers:
            reader.start()
        fresh.until(lambda: fresh("logs", job).out.count("line 60") == 4)
        [killed], [paused] = kcms(fresh, "amsterdam"), kcms(fresh, "delft")
        os.kill(paused, signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)
        gate.touch()
        fresh.until(lambda: {*kcms(fresh, "amsterdam")} - {killed} and {*kcms(fresh, "delft")} - {paused})
        with contextlib.suppress(ProcessLookupError):
            os.kill(paused, signal.SIGCONT)
        for reader in readers:
            reader.join()
    assert fresh.job(job)["state"] == "done"
    wanted = {
        f"[{rank // 2}.{rank}": [f"rank {rank} line {line} of many" for line in range(1, LINES + 1)]
        + [f"rank {rank} has no end"]
        for rank in range(4)
    }
    for name in ("run", "logs", "grid"):
        assert lines_of(said[name]) == wanted, name
    assert fresh("logs", job, "-c", 1).out.count("line") == 2 * LINES


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_every_line_comes_once_over_restarts_of_koalad(fresh: Any, number: signal.Signals) -> None:
    """Twice: while the ranks write, and while the last of them end. Each of the three reports that it waits."""
    assert fresh("up").status == 0
    fresh.known()
    gates = [fresh.work / "gate", fresh.work / "second"]
    run = fresh.start("run", "-n", 2, "--on", "delft", "--", "sh", "-c", SCRIPT.replace("GATE", str(gates[0])) + f"""
until [ -e {gates[1]} ]; do sleep 0.05; done
echo; echo rank $KOALA_RANK is over
""")  # fmt: skip
    said: dict[str, bytes] = {}
    reported: dict[str, bytes] = {}
    fresh.until(lambda: [job for job in fresh.ids() if fresh.job(job)["components"][0]["started_at"]])
    [job] = fresh.ids()
    lines: list[str] = []

    def read(name: str, process: Any) -> None:
        said[name], reported[name] = process.communicate()

    with fresh.client() as grid:
        output = grid.output(job, follow=True, prefix=True, reconnect=Reconnecting(120.0, lines.append))
        readers = [
            threading.Thread(target=lambda: said.update(grid=b"".join(output))),
            threading.Thread(target=read, args=("run", run)),
            threading.Thread(target=read, args=("logs", fresh.start("logs", "-f", job, "--prefix"))),
        ]
        for reader in readers:
            reader.start()
        fresh.until(lambda: fresh("logs", job).out.count("line 60") == 2)
        for gate, wanted in zip(gates, (f"line {LINES}", "is over"), strict=True):
            pid = fresh("status", "--json").document["pid"]
            os.kill(pid, number)
            fresh.until(lambda pid=pid: not Path(f"/proc/{pid}").exists())
            gate.touch()
            seen = fresh.root / "delft"
            fresh.until(lambda wanted=wanted, seen=seen: written(seen, wanted) == 2)
            assert fresh("up").status == 0
        for reader in readers:
            reader.join()
    assert fresh.job(job)["state"] == "done"
    assert run.returncode == 0
    wanted_lines = {
        rank: [f"rank {rank} line {line} of many" for line in range(1, LINES + 1)]
        + [f"rank {rank} has no end", f"rank {rank} is over"]
        for rank in range(2)
    }
    assert lines_of(said["grid"]) == lines_of(said["logs"]) == {f"[0.{rank}": wanted_lines[rank] for rank in range(2)}
    alone = said["run"].decode().splitlines()
    assert {rank: [line for line in alone if line.startswith(f"rank {rank} ")] for rank in range(2)} == wanted_lines
    assert len(alone) == 2 * (LINES + 2)
    waits = [each.endswith("Waiting for it for 120 s.") for each in lines]
    assert waits in ([True, False], [True, False] * 2), lines  # it may have slept over the time between two restarts
    for name in ("run", "logs"):
        assert reported[name].count(b"Waiting for it for 60 s.") in (1, 2), reported[name]


def written(directory: Path, text: str) -> int:
    """How many files of output have this text."""
    return sum(text in path.read_text() for path in directory.rglob("output/*.out"))


def test_who_follows_gives_up_when_koalad_stays_away(small: Any, shell: Callable[..., Document]) -> None:
    assert small("up").status == 0
    run = small.start("run", "-n", 1, "--reconnect", 1, "--", "sh", "-c", "echo one; sleep 1000")
    assert run.stdout.readline() == b"one\n"
    [job] = small.ids()
    logs, none = small.start("logs", "-f", job, "--reconnect", 1), small.start("logs", "-f", job, "--reconnect", 0)
    for process in (logs, none):
        assert process.stdout.readline() == b"one\n"
    os.kill(small("status", "--json").document["pid"], signal.SIGKILL)
    for process, status, waits in ((run, 125, 1), (logs, 3, 1), (none, 3, 0)):
        rest, errors = process.communicate(timeout=live.CALL_S)
        assert (process.returncode, rest) == (status, b""), errors
        assert errors.count(b" Waiting for it for 1 s.\n") == waits, errors  # a call may have been cut off first
        assert errors.count(b"koala: koalad of grid live ") == 1, errors
        assert b"Traceback" not in errors
    assert small("up").status == 0


def test_output_that_came_home_is_read_without_its_cluster(fresh: Any, shell: Callable[..., Document]) -> None:
    """One cluster leaves the grid file, the other's shared directory is purged; and what failed has its errors too."""
    grid = yaml.safe_load(fresh.grid_file.read_text())
    fresh.write_grid(grid | {"keep_output": "home", "disk": {"output": "1M", "warn": "2M"}})
    assert fresh("up").status == 0
    fresh.known()
    long = "head -c 3000000 /dev/zero | tr '\\0' x"
    here = fresh.end(
        fresh.submit(shell("echo out $KOALA_RANK; echo err >&2", 2, cluster="delft"), shell(long, cluster="leiden"))
    )
    failed = fresh.end(fresh.submit(shell("echo of it >&2; exit 3", cluster="delft")))
    there = fresh.end(fresh.submit(shell("echo only there", cluster="delft"), keep_output="cluster"))
    assert [job["state"] for job in (here, failed, there)] == ["done", "failed", "done"]
    fresh.until(lambda: all(fresh.job(job["id"])["kept_output"] == "kept" for job in (here, failed)))
    assert fresh.job(there["id"])["kept_output"] == "none"
    story = fresh("show", here["id"]).out
    assert "Its standard output and error were fetched" in story
    assert "1951424 bytes in the middle, which exceeded the limit" in story
    whole = fresh("logs", here["id"], "-c", 1).out
    assert whole == "x" * 3_000_000, "its cluster is there"
    assert fresh("clusters", "--disk").status == 0
    assert "MiB on leiden, more than `disk.warn` (2.0 MiB)" in fresh("status").out
    assert fresh("down").status == 0
    del grid["clusters"]["delft"]
    fresh.write_grid(grid)
    shutil.rmtree(fresh.root / "leiden")
    assert fresh("up").status == 0
    assert fresh("logs", here["id"], "-c", 0).out == "out 0\nout 1\n"
    assert fresh("logs", here["id"], "-c", 0, "--errors").out == "err\nerr\n"
    assert fresh("logs", here["id"], "-c", 0, "-f").out == "out 0\nout 1\n"
    assert fresh("logs", failed["id"], "--errors").out == "of it\n"
    note = "\n[koala: 1951424 bytes were left out here]\n"
    assert fresh("logs", here["id"], "-c", 1).out == "x" * 524_288 + note + "x" * 524_288
    fresh("logs", there["id"]).refused(2, "delft", "not in the grid file")
