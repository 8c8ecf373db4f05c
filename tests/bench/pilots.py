"""How many short jobs a second run on a pilot, and how soon one begins, beside the batch system's own command.

A pilot of two nodes with four processors each is opened by a koalad with one cluster: Slurm, then Grid Engine. The jobs
name the pilot; `tests/bench/run allocation` describes what is measured. `open_s` is the time from `koala pilots open`
until jobs can be placed there, on the idle cluster.

With `--psij`, PSI/J runs as many jobs by its local executor on a node of the same machine, eight at a time. It starts
processes there itself: it has no queue, no second node, no staging, and nothing that outlives it.

    tests/bench/run pilots [--jobs N] [--rounds N] [--cluster NAME] [--psij]
"""

import argparse
import json
import random
import sys
import time
from typing import Any

import _psij
from _grid import koalad_of, last_line, wait_until_measured
from _heads import HEADS
from allocation import JOBS_A_SECOND, SUBMITS, row_of, write_stamping

from koalapy import testgrid
from koalapy.testgrid import Running

_OPEN_S = 180.0
_AT_ONCE = 8


def measure(running: Running, name: str, jobs: int, rounds: int, chance: random.Random) -> dict[str, Any]:
    write_stamping(name)
    with koalad_of({"clusters": running.grid(name)["clusters"]}) as (koalad, _):
        wait_until_measured(koalad)
        began = time.monotonic()
        pilot = koalad.open_pilot(name, 8, nodes=2, walltime_s=3000, idle_s=3000)["pilot"]["name"]
        while not any(each["name"] == pilot and each["idle"] == 8 for each in koalad.clusters()):
            if time.monotonic() > began + _OPEN_S:
                raise SystemExit(f"the pilot on {name} did not come")
            time.sleep(0.05)
        opened_s = time.monotonic() - began
        row = row_of(koalad, name, pilot, jobs, rounds, chance)
        koalad.close_pilot(pilot, force=True)
        while koalad.pilots():
            time.sleep(0.2)
    return row | {"open_s": round(opened_s, 2)}


def by_psij(running: Running, jobs: int) -> float:
    """Jobs a second by PSI/J's local executor on the head node of Slurm, which is idle."""
    head = HEADS["alpha"](running.containers)
    with _psij.installed(head):
        _psij.jobs_a_second(head, 16, _AT_ONCE)  # once for the caches
        return _psij.jobs_a_second(head, jobs, _AT_ONCE)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run pilots", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cluster", choices=sorted(SUBMITS), action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--psij", action="store_true", help="measure PSI/J too, which comes from the package index")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    rows = []
    with testgrid.reserved():
        running = testgrid.up()
        testgrid.reset()
        for name in arguments.cluster or sorted(SUBMITS):
            rows.append(measure(running, name, arguments.jobs, arguments.rounds, chance))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        peers = {"psij_jobs_a_second": round(by_psij(running, arguments.jobs), 1)} if arguments.psij else {}
    figure = min(row["jobs_a_second"] for row in rows)
    last_line("pilots", figure, "jobs/s", JOBS_A_SECOND, all(row["holds"] for row in rows), {"rows": rows, **peers})


if __name__ == "__main__":
    main()
