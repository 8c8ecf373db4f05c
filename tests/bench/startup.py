"""The time of short `koala` commands from shell to shell, compared with Python that does nothing.

Each round runs every command once, in random order, and `python3 -c pass` with them. Figures are medians. Processor
time stands beside them, since other load of the machine changes it less. `jobs` asks a koalad that runs. With
--squeue, each round also runs `squeue` inside that container of the test grid, which asks its own slurmctld.

    tests/bench/run startup [--rounds N] [--squeue koala-testgrid-alpha]
"""

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _grid import koalad_of, last_line

KOALA = str(Path(sys.executable).with_name("koala"))
BOUNDS_S = {"--version": 0.25, "--help": 0.2, "submit --nonsense": 0.25, "jobs": 0.25}
_STATUS = {"submit --nonsense": 2}
_TIMED_THERE = """
import resource, subprocess, time
began = time.perf_counter()
subprocess.run(["squeue"], stdout=subprocess.DEVNULL, check=True)
took, spent = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
print(took, spent.ru_utime + spent.ru_stime)
"""


def run(line: list[str], status: int) -> tuple[float, float]:
    """Seconds from shell to shell, and of a processor. Raises SystemExit for a command that ends in another way."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != status:
        raise SystemExit(f"{' '.join(line)} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return took, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def run_squeue(container: str) -> tuple[float, float]:
    """Seconds as `run` has them, taken inside the container. Raises CalledProcessError if squeue fails there."""
    line = ["docker", "exec", container, "python3", "-c", _TIMED_THERE]
    took, spent = subprocess.run(line, check=True, capture_output=True, text=True).stdout.split()
    return float(took), float(spent)


def measure(rounds: int, grid_file: Path, squeue: str, chance: random.Random) -> dict[str, list[tuple[float, float]]]:
    lines = {name: [KOALA, *name.split()] for name in BOUNDS_S}
    lines["jobs"] += ["--grid", str(grid_file)]
    lines["python3 -c pass"] = [sys.executable, "-c", "pass"]
    for name, line in lines.items():  # once for the caches
        run(line, _STATUS.get(name, 0))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in lines}
    for _ in range(rounds):
        for name in chance.sample(sorted(lines), len(lines)):
            found[name].append(run(lines[name], _STATUS.get(name, 0)))
        if squeue:
            found.setdefault("squeue", []).append(run_squeue(squeue))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--squeue", default="", metavar="CONTAINER", help="a container of the test grid that has Slurm")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with koalad_of({"clusters": {"here": {"batch": "local", "connect": "local:", "slots": 1}}}) as (_, grid_file):
        found = measure(arguments.rounds, grid_file, arguments.squeue, random.Random(arguments.seed))
    detail: dict[str, Any] = {"rounds": arguments.rounds, "load": round(os.getloadavg()[0], 1)}
    for name, each in found.items():
        took, spent = ([times[of] for times in each] for of in (0, 1))
        detail[name] = {
            "median_s": round(statistics.median(took), 3),
            "least_s": round(min(took), 3),
            "processor_s": round(statistics.median(spent), 3),
        }
        print(f"{name:20} {detail[name]['median_s']:.3f} s, at least {min(took):.3f} s")
    worst = max(detail[name]["median_s"] / bound for name, bound in BOUNDS_S.items())
    last_line("startup", round(worst, 2), "of its bound", 1.0, worst <= 1, detail)


if __name__ == "__main__":
    main()
