"""How many short jobs a second run in an allocation, and how soon one begins, beside the batch system's own command.

An allocation of two nodes with four processors each is a cluster of one koalad, on real Slurm and on real Grid Engine.
The throughput is that of one-processor jobs of /bin/true, from the first call until all of them are final. Each has
its own exit status and history. The start is the time from the call until the program's first instruction, of one job
at a time: by koalapy in the allocation, and by sbatch or qsub on the same cluster, which is idle otherwise. The ways
alternate in random order. Processor time is that of the machine, with all that runs on it.

    tests/bench/run allocation [--jobs N] [--rounds N] [--cluster NAME]
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _grid import koalad_of, last_line, wait_until_measured

from koalapy import Grid, testgrid
from koalapy.testgrid import layout

JOBS_A_SECOND, START_RATIO = 50.0, 0.5
TRUE = {"processors": 1, "executable": "/bin/true", "walltime": "1m"}
STAMP = "/home/koala/bench-stamp"
_WAIT_S = 60.0


def run(cluster: str, command: str) -> str:
    """Return the output of a command in a login shell on the head node. Raises CalledProcessError."""
    container = layout.container_name(cluster)
    line = ["docker", "exec", "-u", "koala", container, "bash", "-lc", command]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def slurm() -> Iterator[str]:
    """The connection to an allocation of Slurm: by the job's number, from the head node."""
    script = "cd && printf '#!/bin/sh\\nexec sleep 3000\\n' > held.sh && "
    job = run("alpha", script + "sbatch --parsable -N 2 --ntasks-per-node=4 -t 60 -o /dev/null held.sh")
    try:
        yield f"command:docker exec -i -u koala -e SLURM_JOB_ID={job} {layout.container_name('alpha')} sh -c"
    finally:
        run("alpha", f"scancel {job}")


@contextmanager
def grid_engine() -> Iterator[str]:
    """The connection to an allocation of Grid Engine, which lasts as long as the connection."""
    container = layout.container_name("gamma")
    line = f'exec docker exec -i -u koala {container} bash -lc "exec qrsh -now y -noshell -pe mpi 8 ${{0#exec }}"'
    yield f"command:sh -c '{line}'"


ALLOCATIONS = {"alpha": slurm, "gamma": grid_engine}
SUBMITS = {"alpha": "sbatch -n 1 -o /dev/null stamp.sh", "gamma": "qsub -o /dev/null -e /dev/null stamp.sh"}


def measure(name: str, jobs: int, rounds: int, chance: random.Random) -> dict[str, Any]:
    write_stamping(name)
    with ALLOCATIONS[name]() as connect:
        held = {"batch": "allocation", "connect": connect, "shared": "/home/koala/bench-allocation"}
        with koalad_of({"clusters": {"held": held}}) as (koalad, _):
            wait_until_measured(koalad)
            return row_of(koalad, name, "held", jobs, rounds, chance)


def row_of(koalad: Grid, name: str, inside: str, jobs: int, rounds: int, chance: random.Random) -> dict[str, Any]:
    """Measure the cluster `inside` an allocation of the cluster `name`, beside that one's own command."""
    rate, cpu_s = throughput(koalad, inside, jobs)
    ways: dict[str, Callable[[], float]] = {
        "koalapy": lambda: by_koalapy(koalad, name, inside),
        "plain": lambda: by_command(name, SUBMITS[name]),
    }
    starts: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in chance.sample(sorted(ways), len(ways)):
            starts[way].append(ways[way]())
    ours, plain = (statistics.median(starts[way]) for way in ("koalapy", "plain"))
    return {
        "cluster": name, "jobs_a_second": round(rate, 1), "machine_cpu_ms_a_job": round(cpu_s * 1000, 1),
        "start_s": round(ours, 3), "plain_start_s": round(plain, 3), "ratio": round(ours / plain, 3),
        "load": round(os.getloadavg()[0], 1), "holds": rate >= JOBS_A_SECOND and ours <= START_RATIO * plain,
    }  # fmt: skip


def write_stamping(name: str) -> None:
    """Write the script that stamps its first instruction."""
    run(name, f"cd && printf '#!/bin/sh\\ndate +%%s.%%N > {STAMP}.new && mv {STAMP}.new {STAMP}\\n' > stamp.sh")


def throughput(koalad: Grid, inside: str, jobs: int) -> tuple[float, float]:
    """Jobs a second, and the machine's processor seconds for each. Raises SystemExit if one is not done."""
    job = {"name": "true", "components": [{**TRUE, "cluster": inside}]}
    koalad.wait(koalad.submit_many([job] * 16, directory="/tmp"), _WAIT_S)  # once for the caches
    spent, began = _machine_cpu_s(), time.monotonic()
    ended = koalad.wait(koalad.submit_many([job] * jobs, directory="/tmp"), 10 * _WAIT_S)
    took = time.monotonic() - began
    if any(job["state"] != "done" or job["components"][0]["exit_status"] != 0 for job in ended):
        raise SystemExit("a job was not done")
    return jobs / took, (_machine_cpu_s() - spent) / jobs


def by_koalapy(koalad: Grid, name: str, inside: str) -> float:
    program = {"executable": "/bin/sh", "arguments": ["/home/koala/stamp.sh"]}
    component = {"processors": 1, "walltime": "1m", "cluster": inside, **program}
    run(name, f"rm -f {STAMP}")
    began = time.time()
    job = koalad.submit({"name": "stamp", "components": [component]}, directory="/tmp")
    koalad.wait([job], _WAIT_S)
    return _stamped(name) - began


def by_command(name: str, submit: str) -> float:
    """By the command alone: the time that docker takes to run it on the head node is no part of it."""
    called = float(run(name, f"cd; rm -f {STAMP}; date +%s.%N; {submit} >&2").splitlines()[0])
    took = _stamped(name) - called
    time.sleep(1.0)
    return took


def _stamped(name: str) -> float:
    return float(run(name, f"while ! test -s {STAMP}; do sleep 0.05; done; cat {STAMP}"))


def _machine_cpu_s() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    user, nice, system, _, _, irq, softirq = map(int, fields)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run allocation", description=__doc__)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cluster", choices=sorted(ALLOCATIONS), action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    rows = []
    with testgrid.reserved():
        testgrid.up()
        testgrid.reset()
        for name in arguments.cluster or sorted(ALLOCATIONS):
            rows.append(measure(name, arguments.jobs, arguments.rounds, chance))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    figure = min(row["jobs_a_second"] for row in rows)
    last_line("allocation", figure, "jobs/s", JOBS_A_SECOND, all(row["holds"] for row in rows), {"rows": rows})


if __name__ == "__main__":
    main()
