"""A sweep of which every part is killed in turn: each parameter is done, and has one result."""

import csv
import io
import os
import signal
from pathlib import Path
from typing import Any

from koalapy.client.daemon import wait_for_end

SLOTS, COUNT = 10, 60


def parts(koala: Any, name: str) -> list[int]:
    """Processes of the pushed file that are this part of it, without those that they forked."""
    found = {pid: parent for pid in koala.processes() if (parent := parent_of(pid, name))}
    return [pid for pid, parent in found.items() if parent not in found]


def parent_of(pid: int, name: str) -> int:
    """0 if it is not this part, or has ended meanwhile."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return 0
    return int(parent) if name.encode() in words else 0


def kill(koala: Any, part: str) -> None:
    """One of several; -9, so that nothing is sent to anybody."""
    victim = int(koala("status", "--json").document["pid"]) if part == "koalad" else parts(koala, part)[0]
    os.kill(victim, signal.SIGKILL)
    if part == "koalad":
        assert wait_for_end(victim, 60)
        assert koala("up").status == 0


def test_whatever_is_killed_each_parameter_is_done_and_none_that_is_done_again(fresh: Any) -> None:
    """Each waits for the next gate to be opened, and every kill comes while as many wait as there are slots."""
    assert fresh("up").status == 0
    fresh.known()
    gates, over, ran, waits = (fresh.work / name for name in ("gates", "over", "ran", "waits"))
    gates.mkdir()
    script = f"n=$(ls {gates} | wc -l); echo >>{waits}$n; "
    script += f"while [ ! -e {gates}/$n ] && [ ! -e {over} ]; do sleep 0.1; done; echo $0 >>{ran}"
    answer = fresh("sweep", "--json", "-p", f"x=1:{COUNT}", "--", "sh", "-c", script, "{x}")
    sweep = answer.document["id"]

    def all_wait(gate: int) -> bool:
        file = Path(f"{waits}{gate}")
        [runner] = fresh("runners", "--json").document["runners"]
        return file.exists() and len(file.read_text()) >= SLOTS and runner["running"] == SLOTS

    for gate, victim in enumerate(("launcher", "wrapper", "kcm", "koalad")):
        fresh.until(lambda gate=gate: all_wait(gate))
        kill(fresh, victim)
        lost = min(2, gate + 1)  # what of it ran is begun anew, so that nothing of it may end any more
        fresh.until(lambda lost=lost: fresh("show", sweep).out.count("was lost") == lost)
        (gates / str(gate)).touch()
    over.touch()
    answer = fresh("wait", sweep)
    assert answer.status == 0, answer
    results = csv.DictReader(io.StringIO(fresh("results", sweep).out))
    assert sorted(int(each["parameter"]) for each in results) == list(range(1, COUNT + 1))
    assert sorted(map(int, ran.read_text().split())) == list(range(1, COUNT + 1))
