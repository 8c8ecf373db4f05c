"""Output that is followed while what carries it is killed and paused: every line once, whole, in order of its rank."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """By label; each must be of the rank that its label says."""
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
